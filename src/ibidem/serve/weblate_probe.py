"""The test translation with which Weblate checks a service before it saves it.

The forms of Weblate 4 and 5 request the translation of the text "test" from English to German, whatever languages the
service has (`validate_settings` in `weblate/machinery/base.py`), and refuse to save a service that answers with an
error. A server that does not translate from English to German returns this one text unchanged, with a warning that
says so. Every other text in an unsupported direction is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.text import primary_language

if TYPE_CHECKING:
    from collections.abc import Sequence

_TEXT = "test"
_PAIR = ("en", "de")


def is_weblate_probe(
    texts: Sequence[str], source: str | None, target: str | None, pairs: Sequence[tuple[str, str]]
) -> bool:
    """Return whether a request is Weblate's test translation, in a direction that the server does not have.

    Args:
        texts: The texts of the request.
        source: Its source language.
        target: Its target language.
        pairs: The pairs of languages of the server.

    Examples:
        >>> is_weblate_probe(["test"], "en", "de", [("de", "en")]), is_weblate_probe(["x"], "en", "de", [("de", "en")])
        (True, False)
    """
    if _PAIR in pairs or list(texts) != [_TEXT] or not source or not target:
        return False
    return (primary_language(source), primary_language(target)) == _PAIR


def probe_warning(pairs: Sequence[tuple[str, str]]) -> str:
    """Return the warning of the response.

    Args:
        pairs: The pairs of languages of the server.
    """
    known = "; ".join(f"from {source} to {target}" for source, target in pairs)
    return f"not translated: this server translates {known}. Weblate sends this text when a service is saved."
