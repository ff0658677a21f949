"""PO, gettext's catalogue as text, parsed line by line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import TextError
from ibidem.text.catalogue import Message, read_catalogue
from ibidem.text.limits import LONGEST, LONGEST_UNIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ibidem.text.language import Languages
    from ibidem.text.pair import Found
    from ibidem.text.stream import Stream

RECODE = "Convert it first: msgconv -t UTF-8 -o NEW.po OLD.po"

# Possessive, since two runs of white space side by side would be tried in every division: quadratic in a long line.
_FIELD = re.compile(r"(msgctxt|msgid_plural|msgid|msgstr)\s*+(?:\[\s*+([0-9]{1,3})\s*+\]\s*+)?(?=\")")
_STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"\s*')
_MOST_COMMENTS = 1000  # notes, or lines of flags, of one entry: more would fill the memory
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


class Span(NamedTuple):
    """Where the strings of a field stand: line and column, from 1 and from 0, of the first quote and after the last."""

    line: int
    column: int
    last_line: int
    end: int


@dataclass(slots=True)
class Comments:
    """The comments before an entry: flags and notes with their text, and the line of the former msgid."""

    flags: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    former: int | None = None

    @property
    def is_fuzzy(self) -> bool:
        """Whether a person has to look at the translation."""
        return "fuzzy" in self.names()

    def names(self) -> list[str]:
        """The flags."""
        return [name for text in self.flags.values() for name in text[2:].replace(",", " ").split()]


class Entry(NamedTuple):
    """A message with its comments, the line of its first field, and where each of its fields stands."""

    message: Message
    comments: Comments
    line: int
    fields: Mapping[str, Span]


def read_messages(stream: Stream) -> Iterator[Message]:
    """Yield every message, header, fuzzy and obsolete ones included, with the line of its `msgid`."""
    return (entry.message for entry in read_entries(stream.lines(RECODE), stream.name))


def read_entries(lines: Iterable[tuple[int, str]], name: str) -> Iterator[Entry]:
    """Yield every entry of the catalogue with these lines, numbered from 1."""
    draft = _Draft()
    comments = Comments()
    beside = 0
    for number, line in lines:
        text = line.strip()
        obsolete = text.startswith("#~")
        if obsolete:
            text = text[2:].lstrip()
        if not text or text[0] in "#|":
            beside += len(line) + 1
            if beside > LONGEST_UNIT:
                raise TextError(
                    f"{name}, line {number}: more than {LONGEST_UNIT:,} characters of comments and blank lines before "
                    "one entry. Remove them, for instance: msgattrib --no-obsolete --no-location -o NEW.po OLD.po"
                )
            _note(text, number, name, comments)
            continue
        beside = 0
        column = len(line.rstrip()) - len(text)
        try:
            if keyword := _FIELD.match(text):
                if draft.is_complete and keyword[1] in ("msgctxt", "msgid"):
                    yield draft.entry(name)
                    draft = _Draft()
                if draft.is_empty:
                    draft.comments, draft.obsolete, draft.line, comments = comments, obsolete, number, Comments()
                draft.open(keyword[1], keyword[2], number, column + keyword.end())
                text = text[keyword.end() :]
            draft.extend(_unquote(text), number, len(line.rstrip()))
        except ValueError as error:
            raise TextError(f"{name}, line {number}: {error}") from error
    if draft.is_complete:
        yield draft.entry(name)
    elif not draft.is_empty:
        raise TextError(
            f"{name}, line {draft.location}: the file ends inside this entry, before its msgstr. "
            "Restore the rest of the file, or remove the entry."
        )


def _note(text: str, number: int, name: str, comments: Comments) -> None:
    """Keep what a comment says; "|" is what is left of "#~|", the former msgid of an obsolete entry."""
    if text.startswith("#|"):
        comments.former = comments.former or number
    elif text.startswith(("#,", "#=")):
        if len(comments.flags) == _MOST_COMMENTS:
            raise TextError(f"{name}, line {number}: more than {_MOST_COMMENTS:,} lines of flags. Remove them.")
        comments.flags[number] = text
    elif text.startswith(("#.", "# ")) and len(comments.notes) < _MOST_COMMENTS:
        comments.notes.append(text[2:].strip())


@dataclass(slots=True)
class _Draft:
    """An entry while its lines are read; texts are bytes, since escapes such as `\\303\\244` are."""

    comments: Comments = field(default_factory=Comments)
    obsolete: bool = False
    line: int = 0
    location: int = 0
    texts: dict[str, bytearray] = field(default_factory=dict)
    length: int = 0
    current: str = ""
    spans: dict[str, Span] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not self.texts

    @property
    def is_complete(self) -> bool:
        return "msgstr" in self.texts or "msgstr[0]" in self.texts

    def open(self, keyword: str, index: str | None, line: int, column: int) -> None:
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
        self.current = name
        self.texts[name] = bytearray()
        self.spans[name] = Span(line, column, line, column)

    def extend(self, part: bytes, line: int, end: int) -> None:
        """Add a string, which ends at this place, to the field that is open."""
        if not self.current:
            raise ValueError("a string that belongs to no keyword. Write msgid or msgstr before it.")
        self.length += len(part) or 1  # any number of empty strings would otherwise pass
        if self.length > LONGEST:
            raise ValueError(f"an entry longer than {LONGEST:,} bytes. Remove or split it.")
        self.texts[self.current] += part
        self.spans[self.current] = self.spans[self.current]._replace(last_line=line, end=end)

    def entry(self, name: str) -> Entry:
        """Return the finished entry of the file with this name."""
        try:
            texts = {keyword: text.decode("utf-8") for keyword, text in self.texts.items()}
        except UnicodeDecodeError as error:
            raise TextError(
                f"{name}, line {self.location}: escapes in this entry do not give UTF-8 ({error.reason}). {RECODE}"
            ) from error
        message = Message(
            original=texts["msgid"],
            plural=texts.get("msgid_plural"),
            translations=tuple(text for keyword, text in texts.items() if keyword.startswith("msgstr")),
            context=texts.get("msgctxt"),
            location=self.location,
            fuzzy=self.comments.is_fuzzy,
            obsolete=self.obsolete,
        )
        return Entry(message, self.comments, self.line, self.spans)

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
