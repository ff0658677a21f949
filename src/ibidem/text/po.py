"""PO, gettext's catalogue as text, parsed line by line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.catalogue import Message, read_catalogue
from ibidem.text.stream import LONGEST, Stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.text.language import Languages
    from ibidem.text.pair import Found

RECODE = "Convert it first: msgconv -t UTF-8 -o NEW.po OLD.po"

_FIELD = re.compile(r"(msgctxt|msgid_plural|msgid|msgstr)\s*(?:\[\s*([0-9]{1,3})\s*\])?\s*(?=\")")
_STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"\s*')
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]+)|([0-7]{1,3})|(.?))", re.DOTALL)
_LETTERS = {
    b"n": b"\n",
    b"t": b"\t",
    b"b": b"\b",
    b"r": b"\r",
    b"f": b"\f",
    b"v": b"\v",
    b"a": b"\a",
    b"\\": b"\\",
    b'"': b'"',
    b"'": b"'",
    b"?": b"?",
}


def read_po(stream: Stream, languages: Languages) -> Iterator[Found]:
    """Yield the pairs of a PO catalogue; see `read_catalogue` for their direction and cleaning."""
    return read_catalogue(read_messages(stream), name=stream.name, languages=languages, recode=RECODE)


def read_messages(stream: Stream) -> Iterator[Message]:
    """Yield every entry, header, fuzzy and obsolete ones included, with the line of its `msgid`."""
    draft = _Draft()
    fuzzy = False
    for number, line in stream.lines(RECODE):
        text = line.strip()
        obsolete = text.startswith("#~")
        if obsolete:
            text = text[2:].lstrip()
        if text.startswith(("#,", "#=")):
            fuzzy = fuzzy or "fuzzy" in text[2:].replace(",", " ").split()
        # "|" is what is left of "#~|", the former msgid of an obsolete entry.
        if not text or text[0] in "#|":
            continue
        try:
            if keyword := _FIELD.match(text):
                if draft.is_complete and keyword[1] in ("msgctxt", "msgid"):
                    yield draft.message(stream.name)
                    draft = _Draft()
                if draft.is_empty:
                    draft.fuzzy, draft.obsolete, fuzzy = fuzzy, obsolete, False
                draft.open(keyword[1], keyword[2], number)
                text = text[keyword.end() :]
            draft.extend(_unquote(text))
        except ValueError as error:
            raise TextError(f"{stream.name}, line {number}: {error}") from error
    if draft.is_complete:
        yield draft.message(stream.name)
    elif not draft.is_empty:
        raise TextError(
            f"{stream.name}, line {draft.location}: the file ends inside this entry, before its msgstr. "
            "Restore the rest of the file, or remove the entry."
        )


@dataclass(slots=True)
class _Draft:
    """An entry while its lines are read; texts are bytes, since escapes such as `\\303\\244` are."""

    fuzzy: bool = False
    obsolete: bool = False
    location: int = 0
    texts: dict[str, bytearray] = field(default_factory=dict)
    length: int = 0
    current: bytearray | None = None

    @property
    def is_empty(self) -> bool:
        return not self.texts

    @property
    def is_complete(self) -> bool:
        return "msgstr" in self.texts or "msgstr[0]" in self.texts

    def open(self, keyword: str, index: str | None, line: int) -> None:
        """Begin a field, and check that gettext allows it here."""
        name = keyword if index is None else f"{keyword}[{int(index)}]"
        if name in self.texts:
            raise ValueError(f"a second {name} in one entry. Remove it, or add the missing msgstr before it.")
        if (need := self._need(keyword, index)) and need not in self.texts:
            raise ValueError(f"{name} without {need} before it. Add it, or remove the entry.")
        if (self.is_complete and keyword != "msgstr") or (keyword == "msgctxt" and not self.is_empty):
            raise ValueError(f"{name} in the wrong place. The order is msgctxt, msgid, msgid_plural, msgstr.")
        if (index is not None) != (keyword == "msgstr" and "msgid_plural" in self.texts):
            raise ValueError(
                f"{name} does not fit: msgstr has an index, as in msgstr[0], exactly in an entry with msgid_plural."
            )
        if keyword == "msgid" or self.is_empty:
            self.location = line
        self.current = self.texts[name] = bytearray()

    def extend(self, part: bytes) -> None:
        """Add a string to the field that is open."""
        if self.current is None:
            raise ValueError("a string that belongs to no keyword. Write msgid or msgstr before it.")
        self.length += len(part)
        if self.length > LONGEST:
            raise ValueError(f"an entry longer than {LONGEST:,} bytes. Remove or split it.")
        self.current += part

    def message(self, name: str) -> Message:
        """Return the finished entry of the file with this name."""
        try:
            texts = {keyword: text.decode("utf-8") for keyword, text in self.texts.items()}
        except UnicodeDecodeError as error:
            raise TextError(
                f"{name}, line {self.location}: escapes in this entry do not give UTF-8 ({error.reason}). {RECODE}"
            ) from error
        return Message(
            original=texts["msgid"],
            plural=texts.get("msgid_plural"),
            translations=tuple(text for keyword, text in texts.items() if keyword.startswith("msgstr")),
            context=texts.get("msgctxt"),
            location=self.location,
            fuzzy=self.fuzzy,
            obsolete=self.obsolete,
        )

    @staticmethod
    def _need(keyword: str, index: str | None) -> str | None:
        if keyword in ("msgctxt", "msgid"):
            return None
        if index is not None and int(index) > 0:
            return f"msgstr[{int(index) - 1}]"
        return "msgid"


def _unquote(text: str) -> bytes:
    """Return the bytes that the quoted strings on one line stand for."""
    parts = []
    place = 0
    while place < len(text):
        match = _STRING.match(text, place)
        if match is None:
            raise ValueError(
                f"cannot be parsed at {text[place : place + 30]!r}. Write a keyword (msgctxt, msgid, "
                'msgid_plural, msgstr) and a string in "quotes", closed on the same line.'
            )
        parts.append(match[1])
        place = match.end()
    return b"".join(_ESCAPE.sub(_unescape, part.encode("utf-8")) for part in parts)


def _unescape(escape: re.Match[bytes]) -> bytes:
    hexadecimal, octal, letter = escape.groups()
    if hexadecimal:
        return bytes([int(hexadecimal[-2:], 16)])
    if octal:
        return bytes([int(octal, 8) & 0xFF])
    if letter not in _LETTERS:
        shown = escape[0].decode("utf-8", "replace")
        raise ValueError(f"{shown} is no escape of gettext. Write \\\\ for a backslash.")
    return _LETTERS[letter]
