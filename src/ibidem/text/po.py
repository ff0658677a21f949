"""PO: the text catalogue of gettext, parsed line by line, as parallel text and as a document.

In a document, new translations are flagged `fuzzy` by default, as is usual for machine translation: msgfmt leaves
fuzzy entries out until a person has reviewed them. Headers, comments, previous msgids and obsolete entries stay
unchanged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import TextError
from ibidem.text.catalogue import Message, check_charset, find_language, read_catalogue, remove_context
from ibidem.text.document import DeclaredLanguage, DocumentBuilder, Edit, newline_of, read_lines
from ibidem.text.inline import plain_text
from ibidem.text.stream import MAX_TEXT, MAX_UNIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ibidem.text.document import Document, Line, Segment
    from ibidem.text.inline import Pieces
    from ibidem.text.language import Languages
    from ibidem.text.pair import ReadResult
    from ibidem.text.stream import Stream

RECODE = "Convert it first: msgconv -t UTF-8 -o NEW.po OLD.po"

# Possessive: adjacent runs of white space would be tried in every division, quadratic in a long line.
_FIELD = re.compile(r"(msgctxt|msgid_plural|msgid|msgstr)\s*+(?:\[\s*+([0-9]{1,3})\s*+\]\s*+)?(?=\")")
_STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"\s*')
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]+)|([0-7]{1,3})|(.?))", re.DOTALL)
_WRITTEN_ESCAPES = {"n": "\n", "t": "\t", "b": "\b", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "\\": "\\", '"': '"'}
_READ_ESCAPES = {letter.encode(): text.encode() for letter, text in {**_WRITTEN_ESCAPES, "'": "'", "?": "?"}.items()}
_ESCAPES = str.maketrans({text: f"\\{letter}" for letter, text in _WRITTEN_ESCAPES.items()})
_MAX_COMMENTS = 1000  # notes, or lines of flags, of one entry: more would fill the memory

_PRINTF_FLAGS = frozenset(
    f"{language}-format"
    for language in ("c", "objc", "python", "php", "perl", "tcl", "awk", "lua", "ruby", "gcc-internal", "gfc-internal")
)
_SOURCE_LANGUAGE = re.compile(r"^x-source-language:[ \t]*([A-Za-z]\S*)", re.IGNORECASE | re.MULTILINE)
_WRAP_WIDTH = 79
_UNWRAPPED_LENGTH = 100  # a longer line of text means that the file does not wrap its lines
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_WORD = re.compile(r"\S*\s*")


def read_po(stream: Stream, languages: Languages) -> Iterator[ReadResult]:
    """Yield the pairs of a PO catalogue; see `read_catalogue` for their direction and cleaning.

    Args:
        stream: The opened file.
        languages: The two languages of the corpus.

    Raises:
        TextError: If an entry is not valid, the catalogue is not in UTF-8, or its language is unknown.
    """
    messages = (entry.message for entry in read_entries(stream.lines(RECODE), stream.name))
    return read_catalogue(messages, name=stream.name, languages=languages, recode=RECODE)


class Span(NamedTuple):
    """The position of the quoted strings of a field.

    Attributes:
        line: The line of the first quote, from 1.
        column: The column of the first quote, from 0.
        last_line: The line of the last quote.
        end: The column after the last quote.
    """

    line: int
    column: int
    last_line: int
    end: int


@dataclass(slots=True)
class Comments:
    """The comments before an entry.

    Attributes:
        flags: The lines of flags, by their numbers.
        notes: The notes of translators and developers.
        previous: The line of the previous msgid, None if there is none.
    """

    flags: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    previous: int | None = None

    @property
    def is_fuzzy(self) -> bool:
        """Whether the translation is marked as doubtful."""
        return any("fuzzy" in _split_flags(text) for text in self.flags.values())

    @property
    def is_printf(self) -> bool:
        """Whether the text is marked as a format string."""
        return any(name in _PRINTF_FLAGS for text in self.flags.values() for name in _split_flags(text))


def _split_flags(text: str) -> list[str]:
    return text[2:].replace(",", " ").split()


class Entry(NamedTuple):
    """A message with its comments and the positions of its fields.

    Attributes:
        message: The message.
        comments: The comments before it.
        line: The line of its first field, from 1.
        fields: The positions of the fields, by keyword, such as `msgstr[0]`.
    """

    message: Message
    comments: Comments
    line: int
    fields: Mapping[str, Span]


def read_entries(lines: Iterable[tuple[int, str]], name: str) -> Iterator[Entry]:
    """Yield every entry of a catalogue, including the header, fuzzy and obsolete entries.

    Args:
        lines: The lines of the file, with their numbers from 1.
        name: The name of the file, for messages.

    Raises:
        TextError: If an entry is not valid.
    """
    builder = _EntryBuilder()
    comments = Comments()
    between = 0
    for number, line in lines:
        text = line.strip()
        obsolete = text.startswith("#~")
        if obsolete:
            text = text[2:].lstrip()
        if not text or text[0] in "#|":
            between += len(line) + 1
            if between > MAX_UNIT_BYTES:
                raise TextError(
                    f"{name}, line {number}: more than {MAX_UNIT_BYTES:,} characters of comments and blank lines "
                    "before one entry. Remove them, for instance: "
                    "msgattrib --no-obsolete --no-location -o NEW.po OLD.po"
                )
            _add_comment(text, number, name, comments)
            continue
        between = 0
        column = len(line.rstrip()) - len(text)
        try:
            if keyword := _FIELD.match(text):
                if builder.is_complete and keyword[1] in ("msgctxt", "msgid"):
                    yield builder.build(name)
                    builder = _EntryBuilder()
                if builder.is_empty:
                    builder.comments, builder.obsolete, builder.line, comments = comments, obsolete, number, Comments()
                builder.open(keyword[1], keyword[2], number, column + keyword.end())
                text = text[keyword.end() :]
            else:
                # Comments between the lines of a string belong to it, not to the next entry.
                comments = Comments()
            builder.extend(_unquote(text), number, len(line.rstrip()))
        except ValueError as error:
            raise TextError(f"{name}, line {number}: {error}") from error
    if builder.is_complete:
        yield builder.build(name)
    elif not builder.is_empty:
        raise TextError(
            f"{name}, line {builder.location}: the file ends inside this entry, before its msgstr. "
            "Restore the rest of the file, or remove the entry."
        )


def _add_comment(text: str, number: int, name: str, comments: Comments) -> None:
    # An obsolete entry has its previous msgid after "#~|", of which "|" is left here and is ignored.
    if text.startswith("#|"):
        comments.previous = comments.previous or number
    elif text.startswith(("#,", "#=")):
        if len(comments.flags) == _MAX_COMMENTS:
            raise TextError(f"{name}, line {number}: more than {_MAX_COMMENTS:,} lines of flags. Remove them.")
        comments.flags[number] = text
    elif text.startswith(("#.", "# ")) and len(comments.notes) < _MAX_COMMENTS:
        comments.notes.append(text[2:].strip())


@dataclass(slots=True)
class _EntryBuilder:
    r"""An entry while its lines are read; texts are bytes, since escapes such as `\303\244` are bytes."""

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
        if (required := _find_required(keyword, index)) and required not in self.texts:
            raise ValueError(f"{name} without {required} before it. Add it, or remove the entry.")
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
        """Add a string, which ends at a column of a line, to the open field."""
        if not self.current:
            raise ValueError("a string that belongs to no keyword. Write msgid or msgstr before it.")
        self.length += len(part) or 1  # otherwise any number of empty strings would be accepted
        if self.length > MAX_TEXT:
            raise ValueError(f"an entry longer than {MAX_TEXT:,} bytes. Remove or split it.")
        self.texts[self.current] += part
        self.spans[self.current] = self.spans[self.current]._replace(last_line=line, end=end)

    def build(self, name: str) -> Entry:
        """Return the entry."""
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


def _find_required(keyword: str, index: str | None) -> str | None:
    """Return the field that must stand before another one."""
    if keyword in ("msgctxt", "msgid"):
        return None
    if index is not None and int(index) > 0:
        return f"msgstr[{int(index) - 1}]"
    return "msgid"


def _unquote(text: str) -> bytes:
    """Return the bytes that the quoted strings on one line stand for."""
    parts = []
    position = 0
    while position < len(text):
        match = _STRING.match(text, position)
        if match is None:
            raise ValueError(
                f"cannot be parsed at {text[position : position + 30]!r}. Write a keyword (msgctxt, msgid, "
                'msgid_plural, msgstr) and a string in "quotes", closed on the same line.'
            )
        parts.append(match[1])
        position = match.end()
    return b"".join(_ESCAPE.sub(_unescape, part.encode("utf-8")) for part in parts)


def _unescape(escape: re.Match[bytes]) -> bytes:
    hexadecimal, octal, letter = escape.groups()
    if hexadecimal:
        return bytes([int(hexadecimal[-2:], 16)])
    if octal:
        return bytes([int(octal, 8) & 0xFF])
    if letter not in _READ_ESCAPES:
        shown = escape[0].decode("utf-8", "replace")
        raise ValueError(f"{shown} is no escape of gettext. Write \\\\ for a backslash.")
    return _READ_ESCAPES[letter]


def read_po_document(data: bytes, name: str, *, mark_fuzzy: bool = True) -> Document:
    """Read a catalogue as a document; an entry with plural forms has a segment for each form.

    Args:
        data: The file, in UTF-8.
        name: Its name, for messages.
        mark_fuzzy: Whether a filled entry gets the flag `fuzzy`; if not, it loses the flag.

    Raises:
        TextError: If an entry is not valid, or the catalogue is in another encoding.
    """
    lines = list(read_lines(data, name, RECODE))
    newline = newline_of(data)
    builder = DocumentBuilder()
    charset: str | None = None
    for entry in read_entries(((line.number, line.text) for line in lines), name):
        if entry.message.is_header:
            header = entry.message.translations[0]
            charset = check_charset(header, name, RECODE)
            builder.languages += _declared_languages(header, entry.line)
            continue
        numbers = tuple(_add_forms(entry, builder, lines))
        if not entry.message.obsolete:
            builder.edits += _edit_flags(entry, numbers, lines, newline, mark_fuzzy)
    return builder.build(name, "PO", data, _choose_encoder(lines, newline, charset))


def _declared_languages(header: str, line: int) -> Iterator[DeclaredLanguage]:
    if tag := find_language(header):
        yield DeclaredLanguage(True, tag, line)
    if match := _SOURCE_LANGUAGE.search(header):
        yield DeclaredLanguage(False, match[1], line)


def _add_forms(entry: Entry, builder: DocumentBuilder, lines: Sequence[Line]) -> Iterator[int]:
    """Add a segment for each form; the source is the msgid for the first form, the msgid_plural for the others."""
    message = entry.message
    for form, existing in enumerate(message.translations):
        singular = message.plural is None or (form == 0 and len(message.translations) > 1)
        source = message.original if singular else message.plural or ""
        locked = "obsolete" if message.obsolete else "" if source.strip() else "an empty source"
        number = builder.add(
            (remove_context(source),),
            message.location,
            target=existing,
            fuzzy=message.fuzzy,
            locked=locked,
            context=message.context,
            notes=tuple(entry.comments.notes),
            printf=entry.comments.is_printf,
        )
        if not locked:
            span = entry.fields["msgstr" if message.plural is None else f"msgstr[{form}]"]
            start, end = lines[span.line - 1].position(span.column), lines[span.last_line - 1].position(span.end)
            builder.edits.append(Edit(start, end, (number,), (number,)))
        yield number


def _edit_flags(
    entry: Entry, numbers: tuple[int, ...], lines: Sequence[Line], newline: bytes, mark_fuzzy: bool
) -> Iterator[Edit]:
    """Add or remove the flag `fuzzy` of an entry, as gettext writes it."""
    flags = entry.comments.flags
    if mark_fuzzy and not entry.message.fuzzy:
        if number := next((number for number, text in flags.items() if text.startswith("#,")), None):
            position = lines[number - 1].position(lines[number - 1].text.index("#,") + 2)
            yield Edit(position, position, numbers, (b" fuzzy,",))
        else:
            position = lines[(entry.comments.previous or entry.line) - 1].start
            yield Edit(position, position, numbers, (b"#, fuzzy" + newline,))
    elif not mark_fuzzy and entry.message.fuzzy:
        for number, text in flags.items():
            names = [name for name in _split_flags(text) if name != "fuzzy"]
            line = lines[number - 1]
            if names:
                kept = f"{text[:2]} {', '.join(names)}".encode()
                yield Edit(line.start, line.end, numbers, (kept,), whole=True)
            else:
                yield Edit(line.start, lines[number].start, numbers, (b"",), whole=True)


def _choose_encoder(lines: Sequence[Line], newline: bytes, charset: str | None) -> Callable[[Segment, Pieces], bytes]:
    """Return an encoder that wraps strings at 79 columns, unless the file has longer lines."""
    strings = (line.text for line in lines if line.text.startswith(('"', "msg")))
    unwrapped = any(len(text) > _UNWRAPPED_LENGTH and " " in text[12:-12] for text in strings)
    width = None if unwrapped else _WRAP_WIDTH

    def encode(_: Segment, pieces: Pieces) -> bytes:
        text = plain_text(pieces)
        if charset not in (None, "utf-8", "utf8") and not text.isascii():
            raise ValueError(f"the catalogue is in {charset}, which has no such characters: make it UTF-8")
        return quote(text, newline.decode(), width).encode("utf-8")

    return encode


def quote(text: str, newline: str, width: int | None) -> str:
    """Quote a text as gettext does.

    Args:
        text: The text.
        newline: The line end of the file.
        width: The number of columns at which lines are wrapped, None for no limit.

    Returns:
        One string if the text fits on a line, else an empty string and one string for each line.
    """
    whole = text.translate(_ESCAPES)
    keyword = len('msgstr[0] ""')
    if "\n" not in text[:-1] and (width is None or len(whole) + keyword <= width):
        return f'"{whole}"'
    lines = [part for line in _LINE.findall(text) for part in (_wrap(line, width) if width is not None else [line])]
    return newline.join(['""', *(f'"{line.translate(_ESCAPES)}"' for line in lines)])


def _wrap(line: str, width: int) -> Iterator[str]:
    part = ""
    for word in _WORD.findall(line):
        if part and len((part + word).translate(_ESCAPES).rstrip(" ")) + 2 > width:
            yield part
            part = ""
        part += word
    if part:
        yield part
