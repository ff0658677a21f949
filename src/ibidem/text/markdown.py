"""Markdown: paragraphs, headings, list items, quotations and cells of tables.

The library markdown-it finds the blocks of text. The inline marks of a block (emphasis, links, code) are codes. Code
blocks, HTML blocks, link definitions and the front matter stay as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from ibidem.errors import TextError
from ibidem.text.inline import Code, Role
from ibidem.text.replacement import ReplacementBuilder, TextFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ibidem.text.document import Document
    from ibidem.text.inline import Pieces

MAX_MARKDOWN_BYTES = 2**21
"""The largest Markdown file, in bytes."""

_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\r?\n.*?^\1[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_PUNCTUATION = r"!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~"
_ESCAPED = re.compile(rf"\\([{_PUNCTUATION}])")
_DELIMITER = re.compile(r"\*{1,3}|_{1,3}|~~")
_AUTOLINK = re.compile(r"<(?:[A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>]*|[\w.+-]+@[\w.-]+)>")
_FOOTNOTE = re.compile(r"\[\^[^\]\s]{1,100}\]")
_DESTINATION = re.compile(r"\]\((?:[^()\n\\]|\\.|\((?:[^()\n\\]|\\.)*\))*\)|\]\[[^\[\]\n]{1,999}\]|\]\[\]")
_BLOCK_START = re.compile(
    r"\s*(?:([0-9]{1,9})(?=[.)](?:\s|$))|(?=(?:[-+*]|#{1,6})(?:\s|$)|[>|]|[-*_=]{2,}\s*$|~~~|```))"
)
# Not between two spaces, where it is text, and not inside a word with underscores.
_EMPHASIS = re.compile(r"(?<!\s)\*|\*(?!\s)|(?<!\w)_(?!\s)|(?<!\s)_(?!\w)")
_SPECIAL = "`[<"
_MAX_WIDTH = 200
_MAX_LABEL = 999
# Stands for a line break that is made by wrapping, until the text is written.
_SOFT_BREAK = "\x1c"


def read_markdown_document(data: bytes, name: str) -> Document:
    """Read a Markdown file as a document whose texts are replaced by their translations.

    Args:
        data: The file, in UTF-8.
        name: Its name, for messages.

    Raises:
        TextError: If the file is not UTF-8 or too large.
    """
    if len(data) > MAX_MARKDOWN_BYTES:
        raise TextError(f"{name}: larger than {MAX_MARKDOWN_BYTES:,} bytes. Divide it into several files.")
    file = TextFile(data, name)
    builder = ReplacementBuilder(name=name)
    for found in _find_texts(file.text):
        span = file.span(found.start, found.end)
        line = file.line_of(found.start)
        builder.replace(data, span, found.pieces, line, _Encoder(file, found).encode)
    return builder.build_replaced(name, "Markdown", data)


@dataclass(frozen=True, slots=True)
class _Text:
    """A text, its place in characters, and how its lines are continued.

    Attributes:
        start: The number of its first character.
        end: The number of the character after it.
        pieces: The text and its codes.
        literal: The special characters that stand in the text without an escape.
        width: The length of the longest line, 0 if there is only one.
        prefix: The beginning of the second line, such as `> `.
        hard_break: The mark of a line break that is kept, at the end of a line.
        is_cell: Whether it is a cell of a table.
    """

    start: int
    end: int
    pieces: Pieces
    literal: str
    width: int
    prefix: str
    hard_break: str
    is_cell: bool


@dataclass(frozen=True, slots=True)
class _Encoder:
    """Writes translations of one text."""

    file: TextFile
    text: _Text

    def encode(self, pieces: Pieces) -> bytes:
        written = [self._escape(piece) if isinstance(piece, str) else piece.text for piece in pieces]
        if self.text.width:
            written = self._wrap(written, [isinstance(piece, Code) for piece in pieces])
        lines = re.split(f"(\n|{_SOFT_BREAK})", "".join(written))
        source = self.text.pieces[0] if self.text.pieces else ""
        begins = isinstance(source, str) and _BLOCK_START.match(source) is not None
        lines[::2] = [line if begins and not number else _guard(line) for number, line in enumerate(lines[::2])]
        continued = self.file.newline + self.text.prefix
        breaks = {"\n": self.text.hard_break + continued, _SOFT_BREAK: continued}
        lines[1::2] = [breaks[one] for one in lines[1::2]]
        return self.file.encode("".join(lines))

    def _escape(self, text: str) -> str:
        """Escape characters that could begin or end emphasis, and others that the source has only with an escape."""
        escaped = [one for one in "\\`[<" if one not in self.text.literal]
        text = re.sub(f"[{re.escape(''.join(escaped))}]", r"\\\g<0>", text) if escaped else text
        text = _EMPHASIS.sub(r"\\\g<0>", text)
        return text.replace("|", "\\|") if self.text.is_cell else text

    def _wrap(self, written: Sequence[str], is_code: Sequence[bool]) -> list[str]:
        """Break lines at spaces of the text where the next word does not begin a block."""
        parts: list[str] = []
        column = 0
        for piece, code in zip(written, is_code, strict=True):
            if code:
                parts.append(piece)
                column += len(piece)
                continue
            words = piece.split(" ")
            for number, word in enumerate(words):
                if number and column + 1 + len(word) > self.text.width and word and not _BLOCK_START.match(word):
                    parts.append(_SOFT_BREAK)
                    column = 0
                elif number:
                    parts.append(" ")
                    column += 1
                parts.append(word)
                column = len(word.rpartition("\n")[2]) if "\n" in word else column + len(word)
        return parts


def _guard(line: str) -> str:
    """Escape the beginning of a line that would begin a block, such as a list."""
    found = _BLOCK_START.match(line)
    return f"{line[: found.end()]}\\{line[found.end() :]}" if found else line


def _find_texts(text: str) -> Iterator[_Text]:
    # The library is imported when it is needed, since its import takes as long as that of all formats together.
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    front = _FRONT_MATTER.match(text)
    first_line = text.count("\n", 0, front.end()) if front else 0
    lines, starts = _split_lines(text)
    environment: dict[str, Any] = {}
    body = "\n".join(["" if number < first_line else line for number, line in enumerate(lines)])
    labels = environment.setdefault("references", {})
    columns: dict[int, int] = {}
    is_cell = False
    for token in parser.parse(body, environment):
        if token.type != "inline" or token.map is None:
            is_cell = token.type in ("th_open", "td_open")
            continue
        # In a cell, a `|` that is text is escaped, also in code.
        content = token.content.replace("|", "\\|") if is_cell else token.content
        places = _locate(content.split("\n"), token.map[0], lines, columns)
        if places:
            yield _read_text(places, lines, starts, labels, is_cell=is_cell)


def _split_lines(text: str) -> tuple[list[str], list[int]]:
    """Return the lines without their ends, and the place of the first character of each."""
    lines, starts, start = [], [], 0
    for raw in text.split("\n"):
        lines.append(raw.removesuffix("\r"))
        starts.append(start)
        start += len(raw) + 1
    return lines, starts


class _Place(NamedTuple):
    """The number of a line, and the columns of a text in it."""

    line: int
    start: int
    end: int


def _locate(content: Sequence[str], first: int, lines: Sequence[str], columns: dict[int, int]) -> list[_Place]:
    """Return the places of the lines of a block, none if one is not found as it is written."""
    places = []
    for number, part in enumerate(content, start=first):
        wanted = part.strip()
        start = lines[number].find(wanted, columns.get(number, 0)) if number < len(lines) else -1
        if start < 0:
            return []
        places.append(_Place(number, start, start + len(wanted)))
        columns[number] = start + len(wanted)
    return places


def _read_text(
    places: Sequence[_Place], lines: Sequence[str], starts: Sequence[int], labels: dict[str, Any], *, is_cell: bool
) -> _Text:
    parts: list[str] = []
    for number, place in enumerate(places):
        part = lines[place.line][place.start : place.end]
        if number + 1 < len(places):
            # Two spaces at the end of a line, which `strip` removed, are a line break.
            part += "  " if lines[place.line][place.end :].startswith("  ") else ""
        parts.append(part)
    following = places[1] if len(places) > 1 else None
    prefix = lines[following.line][: following.start] if following else ""
    scanner = _Scanner("\n".join(parts), labels)
    scanner.scan()
    width = max(place.end for place in places) if len(places) > 1 else 0
    start, end = starts[places[0].line] + places[0].start, starts[places[-1].line] + places[-1].end
    pieces = scanner.finish()
    width = min(width, _MAX_WIDTH)
    return _Text(start, end, pieces, scanner.literal, width, prefix, scanner.hard_break, is_cell)


@dataclass(slots=True)
class _Scanner:
    """Finds the inline marks of a block."""

    text: str
    labels: dict[str, Any]
    literal: str = ""
    hard_break: str = "  "
    parts: list[str | Code | tuple[str, int]] = field(default_factory=list)
    brackets: list[int] = field(default_factory=list)
    pairs: Iterator[int] = field(default_factory=count)

    def scan(self) -> None:
        place = 0
        closers = self._find_code_spans()
        while place < len(self.text):
            character = self.text[place]
            step = 1
            if place in closers:
                step = closers[place] - place
                self.parts.append(Code(self.text[place : closers[place]]))
            elif character == "\\" and (found := _ESCAPED.match(self.text, place)):
                step = 2
                self.parts.append(found[1])
            elif character == "\n":
                self._break_line(place)
            elif found := self._match_single(place):
                step = len(found[0])
                self.parts.append(Code(found[0]))
            elif character == "[" or self.text.startswith("![", place):
                step = 2 if character == "!" else 1
                self.brackets.append(len(self.parts))
                self.parts.append(("![" if character == "!" else "[", place + step))
            elif character == "]" and self.brackets:
                step = self._close_bracket(place)
            elif character in "*_~" and (found := _DELIMITER.match(self.text, place)):
                step = len(found[0])
                self.parts.append((found[0], place))
            else:
                if character in _SPECIAL or character == "\\":
                    self.literal += character
                self.parts.append(character)
            place += step

    def _match_single(self, place: int) -> re.Match[str] | None:
        """Return the address or the reference to a footnote at a place."""
        patterns = {"<": _AUTOLINK, "[": _FOOTNOTE}
        pattern = patterns.get(self.text[place])
        return pattern.match(self.text, place) if pattern else None

    def finish(self) -> Pieces:
        """Return the pieces; a mark without a partner is text."""
        self._pair_emphasis()
        pieces: list[str | Code] = []
        for part in self.parts:
            piece = part[0] if isinstance(part, tuple) else part
            if isinstance(part, tuple):
                self.literal += part[0]
            if isinstance(piece, str) and pieces and isinstance(last := pieces[-1], str):
                pieces[-1] = last + piece
            else:
                pieces.append(piece)
        return tuple(pieces)

    def _find_code_spans(self) -> dict[int, int]:
        """Return the ends of code spans by their starts."""
        runs = [(found.start(), found.end()) for found in re.finditer(r"`+", self.text)]
        later: dict[int, list[int]] = {}
        for start, end in reversed(runs):
            later.setdefault(end - start, []).append(end)
        spans: dict[int, int] = {}
        place = 0
        for start, end in runs:
            same = later[end - start]
            same.pop()
            if start >= place and same and self.text[start - 1 : start] != "\\":
                spans[start] = place = same[-1]
        return spans

    def _break_line(self, place: int) -> None:
        """Make a hard line break a line break of the text, and a soft one a space."""
        if self.text.startswith("\\", place - 1) or self.text.startswith("  ", place - 2):
            self.hard_break = "\\" if self.text.startswith("\\", place - 1) else "  "
            while self.parts and self.parts[-1] in (" ", "\\"):
                self.parts.pop()
            self.parts.append("\n")
        else:
            self.parts.append(" ")

    def _close_bracket(self, place: int) -> int:
        """Make a link of the text since the last bracket, if a destination follows or its label is defined."""
        opening = self.brackets.pop()
        part = self.parts[opening]
        mark, first = part if isinstance(part, tuple) else ("[", place)
        label = self.text[first:place] if place - first <= _MAX_LABEL else ""
        found = _DESTINATION.match(self.text, place)
        written = found[0] if found else "]"
        if not found or found[0] == "][]":
            if " ".join(label.split()).upper() not in self.labels:
                self.literal += "[]"
                self.parts[opening] = mark
                self.parts.append("]")
                return 1
            written = f"][{label}]"
        pair = f"link {next(self.pairs)}"
        self.parts[opening] = Code(mark, Role.OPEN, pair)
        self.parts.append(Code(written, Role.CLOSE, pair))
        return len(found[0]) if found else 1

    def _pair_emphasis(self) -> None:
        """Make codes of delimiters that open and close emphasis."""
        opened: dict[str, list[int]] = {}
        for number, part in enumerate(self.parts):
            if not isinstance(part, tuple) or not _DELIMITER.fullmatch(part[0]):
                continue
            mark, place = part
            before, after = (
                self.text[place - 1 : place] if place else " ",
                self.text[place + len(mark) : place + len(mark) + 1] or " ",
            )
            if "_" in mark and before.isalnum() and after.isalnum():
                continue
            if not before.isspace() and opened.get(mark):
                start = opened[mark].pop()
                pair = f"emphasis {next(self.pairs)}"
                self.parts[start] = Code(mark, Role.OPEN, pair)
                self.parts[number] = Code(mark, Role.CLOSE, pair)
            elif not after.isspace():
                opened.setdefault(mark, []).append(number)
