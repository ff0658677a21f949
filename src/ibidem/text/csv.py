"""CSV: tables of texts, as parallel text and as documents."""

from __future__ import annotations

import csv
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import TextError
from ibidem.text.columns import find_columns, read_rows
from ibidem.text.document import Edit
from ibidem.text.inline import plain_text
from ibidem.text.replacement import ReplacementBuilder, TextFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ibidem.text.document import Document
    from ibidem.text.inline import Pieces
    from ibidem.text.language import Languages
    from ibidem.text.pair import ReadResult
    from ibidem.text.stream import Stream

_DELIMITERS = ",;\t|"
_SAMPLE_LINES = 50
# The first line by which Excel states the delimiter.
_STATED = re.compile(r'sep=([^"\r\n])\r?\Z', re.IGNORECASE)
_QUOTED = re.compile(r'"(?:[^"]|"")*+("?)')
# A quote opens a cell only at its beginning; within a cell it is text, such as that of inches.
_QUOTED_CELL = re.compile(rf'(?:^|(?<=[{_DELIMITERS}]))"(?:[^"]|"")*+(?:"|\Z)', re.MULTILINE)
_IDENTIFIERS = frozenset({"id", "key", "identifier", "context", "schlüssel"})


def _choose_delimiter(lines: Sequence[str]) -> str:
    """Return the delimiter that most of the first lines have in the same number, a comma if there is none."""
    unquoted = _QUOTED_CELL.sub("", "\n".join(lines))
    best = (0, 0, 0)
    for order, delimiter in enumerate(_DELIMITERS):
        counts = Counter(line.count(delimiter) for line in unquoted.split("\n") if delimiter in line)
        if counts:
            usual, lines_with_it = counts.most_common(1)[0]
            best = max(best, (lines_with_it, usual, -order))
    return _DELIMITERS[-best[2]]


def read_csv(stream: Stream, languages: Languages) -> Iterator[ReadResult]:
    """Yield the pairs of a CSV file with a comma, a semicolon, a tab or a bar between the cells.

    A first line `sep=;`, which Excel reads and writes, states the delimiter.

    Args:
        stream: The opened file.
        languages: The two languages, which the first row names; see `read_rows`.

    Raises:
        TextError: If the columns are not known, or the file is not UTF-8.
    """

    def rows() -> Iterator[tuple[int, list[str]]]:
        lines = stream.lines()
        sample = [line for _, line in zip(range(_SAMPLE_LINES), (text for _, text in lines), strict=False)]
        stated = _STATED.fullmatch(sample[0]) if sample else None
        last = 1 if stated else 0

        def texts() -> Iterator[str]:
            yield from (f"{line}\n" for line in sample[last:])
            yield from (f"{line}\n" for _, line in lines)

        skipped = last
        reader = csv.reader(texts(), delimiter=stated[1] if stated else _choose_delimiter(sample))
        try:
            for cells in reader:
                yield last + 1, cells
                last = skipped + reader.line_num
        except csv.Error as error:
            raise TextError(
                f"{stream.name}, line {skipped + reader.line_num}: not valid CSV ({error}). Check the quotes in this "
                "line."
            ) from error

    return read_rows(rows(), stream.name, languages)


class _Cell(NamedTuple):
    """A cell: its places in characters, its text, and whether it has quotes."""

    start: int
    end: int
    text: str
    quoted: bool


def read_csv_document(data: bytes, name: str, languages: Languages) -> Document:
    """Read a CSV file as a document.

    If the first row names the columns of both languages, empty cells of the target column are filled. If not, the text
    of each cell is replaced by its translation, except in columns named `id`, `key` or `context`. A first line `sep=;`
    states the delimiter and stays.

    Args:
        data: The file, in UTF-8, or UTF-16 with a byte order mark.
        name: Its name, for messages.
        languages: The two languages.

    Raises:
        TextError: If a quote is not closed, or the file is not in UTF-8.
    """
    file = TextFile(data, name)
    sample = file.text.split("\n", _SAMPLE_LINES)[:_SAMPLE_LINES]
    stated = _STATED.match(sample[0])
    delimiter = stated[1] if stated else _choose_delimiter(sample)
    builder = ReplacementBuilder(name=name)
    columns = None
    skipped: set[int] = set()
    for number, row in enumerate(_scan(file, delimiter, len(sample[0]) + 1 if stated else 0)):
        if number == 0:
            columns = find_columns([cell.text for cell in row], languages)
            skipped = {at for at, cell in enumerate(row) if cell.text.strip().lower() in _IDENTIFIERS}
            if columns is not None or skipped:
                continue
        if columns is None:
            for at, cell in enumerate(row):
                if at not in skipped:
                    span, line = file.span(cell.start, cell.end), file.line_of(cell.start)
                    builder.replace(data, span, (cell.text,), line, _encoder(file, cell.quoted, delimiter))
        elif max(columns) < len(row):
            source, target = row[columns.source], row[columns.target]
            segment = builder.add((source.text,), file.line_of(source.start), target=target.text)
            span = file.span(target.start, target.end)
            builder.set_text(segment, None, _encoder(file, target.quoted or source.quoted, delimiter))
            builder.edits.append(Edit(*span, (segment,), (segment,)))
    return builder.build_replaced(name, "CSV", data)


def _encoder(file: TextFile, quoted: bool, delimiter: str) -> Callable[[Pieces], bytes]:
    def encode(pieces: Pieces) -> bytes:
        text = plain_text(pieces)
        # Any delimiter in a cell without quotes may be taken for that of the file.
        needed = any(character in text for character in f'{_DELIMITERS}{delimiter}"\n\r')
        return file.encode('"' + text.replace('"', '""') + '"' if quoted or needed else text)

    return encode


def _scan(file: TextFile, delimiter: str, place: int) -> Iterator[list[_Cell]]:
    """Yield the cells of each row from a place on."""
    text = file.text
    plain = re.compile(f"[^{re.escape(delimiter)}\r\n]*")
    row: list[_Cell] = []
    while place < len(text) or row:
        start = place
        if quoted := text.startswith('"', place):
            found = _QUOTED.match(text, place)
            if found is None or not found[0].endswith('"') or len(found[0]) < 2 or found[1] != '"':
                raise TextError(f'{file.name}, line {file.line_of(start)}: a " that is not closed. Add the second one.')
            place = found.end()
        rest = plain.match(text, place)
        place = rest.end() if rest else place
        written = text[start:place]
        cell = written[1:].replace('""', "\0").replace('"', "").replace("\0", '"') if quoted else written
        row.append(_Cell(start, place, cell, quoted))
        if text.startswith(delimiter, place):
            place += 1
            if place == len(text):
                row.append(_Cell(place, place, "", False))
                yield row
                return
            continue
        yield row
        row = []
        place += 2 if text.startswith("\r\n", place) else 1
