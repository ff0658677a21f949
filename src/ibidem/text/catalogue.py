"""The messages of a gettext catalogue, whatever its file format, as pairs in the user's direction."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.cleaning import clean
from ibidem.text.language import Languages, infer_language
from ibidem.text.pair import Dropped, Found, Unit, join_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# A template still has the placeholder "CHARSET"; its bytes are checked to be UTF-8 like all others.
_CHARSETS = frozenset({"utf-8", "utf8", "ascii", "us-ascii", "ansi_x3.4-1968", "charset"})
_CHARSET = re.compile(r"^content-type:.*?charset=([^\s;]+)", re.IGNORECASE | re.MULTILINE)
_SHOWN = 40  # characters of a header's value in a message
_LANGUAGE = re.compile(r"^language:[ \t]*([A-Za-z][^\s]*)", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a catalogue: an original, its plural if it has one, and the translated forms."""

    original: str
    translations: tuple[str, ...]
    location: int
    plural: str | None = None
    context: str | None = None
    fuzzy: bool = False
    obsolete: bool = False

    @property
    def is_header(self) -> bool:
        """Tell whether this is the entry without an original that describes the catalogue."""
        return not self.original and self.context is None and not self.obsolete

    def forms(self) -> Iterator[tuple[str, str]]:
        """Yield the original with the first form, and the plural, where there is one, with the last."""
        yield self.original, self.translations[0]
        if self.plural is not None:
            yield self.plural, self.translations[-1]


def read_catalogue(messages: Iterable[Message], *, name: str, languages: Languages, recode: str) -> Iterator[Found]:
    """Yield each form of each message, cleaned, with its sides in the user's direction.

    The originals are taken to be in the one of the two languages that the catalogue does not translate into.
    `recode` is the remedy for another encoding than UTF-8.
    """
    stated: str | None = None
    translates_into: str | None = None
    for message in messages:
        if message.is_header:
            header = message.translations[0]
            check_charset(header, name, recode)
            stated = find_language(header) or stated
            continue
        if translates_into is None:
            translates_into = _language(name, stated, languages)
        for original, translation in message.forms():
            if reason := _reason(message, translation):
                yield Dropped(reason)
                continue
            original, translation = clean(original, translation)
            if join_lines(original) == join_lines(translation):
                yield Dropped("identical")
            elif translates_into == languages.source:
                yield Unit(translation, original, message.location)
            else:
                yield Unit(original, translation, message.location)


def _reason(message: Message, translation: str) -> str | None:
    if message.obsolete:
        return "obsolete"
    if message.fuzzy:
        return "fuzzy"
    return None if translation else "untranslated"


def check_charset(header: str, name: str, recode: str) -> str | None:
    """Return the encoding that a header names, in small letters, and refuse any but UTF-8 and what it holds."""
    match = _CHARSET.search(header)
    if match and match[1].lower() not in _CHARSETS:
        raise TextError(f"{name}: the catalogue is in {match[1][:_SHOWN]}, not in UTF-8. {recode}")
    return match[1].lower() if match else None


def find_language(header: str) -> str | None:
    """Return the language that a header says the translations are in."""
    match = _LANGUAGE.search(header)
    return match[1] if match else None


def _language(name: str, stated: str | None, languages: Languages) -> str:
    if languages.catalogue is not None:
        return languages.catalogue
    if stated is None:
        known, what = infer_language(name, languages), "neither its header nor its path names its language"
    else:
        known, what = languages.match(stated), f"its language is {stated[:_SHOWN]!r}"
    if known is None:
        raise TextError(
            f"{name}: {what}, and one of {languages.source!r} and {languages.target!r} is needed. Say which "
            f"one the msgstr entries are in, for instance: --catalogue-language {languages.source}"
        )
    return known
