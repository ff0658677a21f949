"""Options of a translation request: its languages, its memories and its outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ibidem.serve.http_error import HttpError
from ibidem.text import primary_language

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LANGUAGE_NAMES = """
af:Afrikaans sq:Albanian am:Amharic ar:Arabic hy:Armenian as:Assamese az:Azerbaijani eu:Basque be:Belarusian bn:Bengali
bs:Bosnian bg:Bulgarian my:Burmese ca:Catalan zh:Chinese hr:Croatian cs:Czech da:Danish nl:Dutch en:English eo:Esperanto
et:Estonian fi:Finnish fr:French gl:Galician ka:Georgian de:German el:Greek gu:Gujarati he:Hebrew hi:Hindi hu:Hungarian
is:Icelandic id:Indonesian ga:Irish it:Italian ja:Japanese kn:Kannada kk:Kazakh km:Khmer ko:Korean ky:Kyrgyz lo:Lao
la:Latin lv:Latvian lt:Lithuanian lb:Luxembourgish mk:Macedonian ms:Malay ml:Malayalam mt:Maltese mr:Marathi
mn:Mongolian ne:Nepali no:Norwegian nb:Norwegian nn:Norwegian or:Odia fa:Persian pl:Polish pt:Portuguese pa:Punjabi
ro:Romanian
ru:Russian sr:Serbian si:Sinhala sk:Slovak sl:Slovenian so:Somali es:Spanish sw:Swahili sv:Swedish tl:Tagalog tg:Tajik
ta:Tamil te:Telugu th:Thai tr:Turkish tk:Turkmen uk:Ukrainian ur:Urdu ug:Uyghur uz:Uzbek vi:Vietnamese cy:Welsh xh:Xhosa
yo:Yoruba zu:Zulu
"""
_NAME_BY_CODE = dict(pair.split(":") for pair in _LANGUAGE_NAMES.split())
_MAX_QUOTED = 40


@dataclass(frozen=True)
class RequestOptions:
    """Options of a request other than its texts; requests with equal options share batches.

    Attributes:
        memories: Names and weights of the memories, in the order of the server's memories.
        alternatives: Number of further translations.
        explain: Whether to explain the translation.
    """

    memories: tuple[tuple[str, float], ...] = ()
    alternatives: int = 0
    explain: bool = False


def language_name(code: str) -> str:
    """Return the English name of a language, or its code if the name is not in the table.

    Examples:
        >>> language_name("de"), language_name("tlh")
        ('German', 'tlh')
    """
    return _NAME_BY_CODE.get(code, code)


def check_languages(languages: tuple[str, str], source: str | None, target: str | None) -> None:
    """Check the languages that a request names.

    Args:
        languages: Source and target language of the server.
        source: Source language of the request; None, `""` and `"auto"` stand for the server's.
        target: Target language of the request; None and `""` stand for the server's.

    Raises:
        HttpError: 400, the server does not translate this pair.
    """
    if source not in (None, "", "auto") and primary_language(str(source)) != languages[0]:
        raise HttpError(400, f"{_shorten(source)} is not supported: this server translates from {languages[0]}")
    if target not in (None, "") and primary_language(str(target)) != languages[1]:
        raise HttpError(400, f"{_shorten(target)} is not supported: this server translates to {languages[1]}")


def choose_memories(
    given: Sequence[str] | Mapping[str, float] | None, available: Mapping[str, float], most: int
) -> tuple[tuple[str, float], ...]:
    """Resolve the memories that a request names.

    Args:
        given: Names, each alone or as `NAME:WEIGHT`, or weights by name; None for all memories. The name `none` is
            ignored, so that `["none"]` selects the base model alone.
        available: Default weights of the server's memories by name.
        most: Largest number of memories of a request.

    Returns:
        Names and weights in the order of `available`, so that equal selections compare equal.

    Raises:
        HttpError: 400, there are too many names, an unknown name or an invalid weight.

    Examples:
        >>> choose_memories(["b:3", "a"], {"a": 1.0, "b": 1.0}, 16)
        (('a', 1.0), ('b', 3.0))
    """
    if given is None:
        return tuple(available.items())
    if len(given) > most:
        raise HttpError(400, f"Invalid request: at most {most} memories")
    if hasattr(given, "items"):
        chosen = dict(given.items())
    else:
        chosen = dict(_split_weight(name, available) for name in given if name != "none")
    for name, weight in chosen.items():
        if name not in available:
            raise HttpError(400, f"There is no memory {_shorten(name)}")
        if not 0 < weight < math.inf:
            raise HttpError(400, f"Invalid weight of the memory {name}: it must be above 0 and finite")
    return tuple((name, float(chosen[name])) for name in available if name in chosen)


def _split_weight(value: str, available: Mapping[str, float]) -> tuple[str, float]:
    """Split NAME:WEIGHT; a name alone has its default weight."""
    name, colon, weight = value.rpartition(":")
    if value in available or not colon:
        return value, available.get(value, 1.0)
    try:
        return name, float(weight)
    except ValueError:
        return value, 1.0


def _shorten(text: object) -> str:
    """Limit the length of a client's text in an error message."""
    shown = str(text)
    return shown if len(shown) <= _MAX_QUOTED else f"{shown[:_MAX_QUOTED]}…"
