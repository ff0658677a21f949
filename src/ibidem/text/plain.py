"""Formats of one segment or pair a line: plain text, in one file or two aligned ones, and TSV without quoting."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.columns import HEADER, Columns, find_columns
from ibidem.text.document import DocumentBuilder, Edit, read_lines
from ibidem.text.inline import plain_text
from ibidem.text.pair import Dropped, PairWriter, Unit
from ibidem.text.replacement import ReplacementBuilder, TextFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.text.document import Document, Segment
    from ibidem.text.inline import Pieces
    from ibidem.text.language import Languages
    from ibidem.text.pair import LocatedPair, ReadResult
    from ibidem.text.stream import Stream


def read_aligned(source: Stream, target: Stream, languages: Languages) -> Iterator[ReadResult]:
    """Yield the pairs of two files whose lines are translations of each other.

    A first line that names the languages is dropped, such as `German` in one file and `English` in the other.

    Args:
        source: The opened file of the sources.
        target: The opened file of the targets.
        languages: The two languages.

    Raises:
        TextError: If one file has more lines than the other; this is found when the shorter one ends.
    """
    targets = target.lines()
    for number, text in source.lines():
        translation = next(targets, None)
        if translation is None:
            break
        if number == 1 and find_columns([text, translation[1]], languages) == Columns(0, 1):
            yield Dropped(HEADER)
        else:
            yield Unit(text, translation[1], number)
    for stream in (source, target):
        for _ in stream.raw_lines():
            pass
    if source.line != target.line:
        raise TextError(
            f"{source.name} has {source.line:,} lines but {target.name} has {target.line:,}. Line n of one file "
            "must translate line n of the other: find where they differ (compare the last lines of both) and "
            "align them."
        )


def read_plain_document(data: bytes, name: str) -> Document:
    """Read a document in which each line is a segment that its translation replaces.

    A blank line stays as it is, and a line that cannot be translated becomes empty.

    Args:
        data: The file, in UTF-8.
        name: Its name, for messages.

    Raises:
        TextError: If a line is too long or not UTF-8.
    """
    builder = DocumentBuilder()
    for line in read_lines(data, name):
        number = builder.add((line.text,), line.number, locked="" if line.text.strip() else "a blank line")
        builder.edits.append(Edit(line.start, line.end, (number,), (number,)))
    return builder.build(name, "plain text", data, encode_line, clear_failed=True)


_PARAGRAPH = re.compile(r"(?:^.*\S.*$\n?)+", re.MULTILINE)


def read_text_document(data: bytes, name: str) -> Document:
    """Read a text whose paragraphs, which blank lines separate, are replaced by their translations.

    Lines that were wrapped inside a sentence are translated as one and wrapped again; other lines stay apart. A
    paragraph that cannot be translated stays as it is.

    Args:
        data: The file, in UTF-8, or UTF-16 with a byte order mark.
        name: Its name, for messages.

    Raises:
        TextError: If the file is not text, or not in UTF-8.
    """
    file, builder = TextFile(data, name), ReplacementBuilder(name=name)

    def encode(pieces: Pieces) -> bytes:
        return file.encode(plain_text(pieces))

    for found in _PARAGRAPH.finditer(file.text):
        source = found[0].rstrip("\r\n")
        span = file.span(found.start(), found.start() + len(source))
        builder.replace(data, span, (source,), file.line_of(found.start()), encode)
    return builder.build_replaced(name, "text", data)


def encode_line(_: Segment, pieces: Pieces) -> bytes:
    """Encode a target as one line.

    Args:
        pieces: The target, without line breaks.

    Raises:
        ValueError: If it contains a line break.
    """
    text = plain_text(pieces)
    if "\n" in text:
        raise ValueError("a line break was added")
    return text.encode("utf-8")


_BREAKS = str.maketrans("\t\n\r", "   ")


def read_tsv(stream: Stream, languages: Languages) -> Iterator[ReadResult]:
    """Yield the pair of each line.

    A first line that names the columns of both languages is dropped (see `find_columns`), and gives their order.

    Args:
        stream: The opened file; a blank line is dropped.
        languages: The two languages.

    Raises:
        TextError: If a line does not have two columns.
    """
    named: Columns | None = None
    for number, line in stream.lines():
        columns = line.split("\t")
        if number == 1 and (named := find_columns(columns, languages)) is not None:
            yield Dropped(HEADER)
        elif named is not None and len(columns) > max(named):
            yield Unit(columns[named.source], columns[named.target], number)
        elif len(columns) == 2:
            yield Unit(columns[0], columns[1], number)
        elif len(columns) == 1 and not line.strip():
            yield Dropped("blank line")
        else:
            raise TextError(
                f"{stream.name}, line {number}: {len(columns)} "
                f"{'column' if len(columns) == 1 else 'columns'} where there must be 2. "
                "Put exactly one tab, between the source and the target, on each line."
            )


def read_tsv_document(data: bytes, name: str) -> Document:
    """Read a document of lines with one column, which need a target, or two.

    Args:
        data: The file, in UTF-8.
        name: Its name, for messages.

    Raises:
        TextError: If a line has more columns.
    """
    builder = DocumentBuilder()
    for line in read_lines(data, name):
        source, tab, target = line.text.partition("\t")
        if "\t" in target:
            columns = line.text.count("\t") + 1
            raise TextError(
                f"{name}, line {line.number}: {columns} columns where there must be 1 or 2. "
                "Put at most one tab, between the source and the target, on each line."
            )
        number = builder.add((source,), line.number, target=target)
        start = line.position(len(source) + len(tab))
        builder.edits.append(Edit(start, line.end, (number,), (number,) if tab else (b"\t", number)))
    return builder.build(name, "TSV", data, _encode_target)


def _encode_target(segment: Segment, pieces: Pieces) -> bytes:
    encoded = encode_line(segment, pieces)
    if b"\t" in encoded:
        raise ValueError("a tab was added")
    return encoded


def _format_pair(pair: LocatedPair, _: Languages) -> tuple[str, bool]:
    source, target = pair.source.translate(_BREAKS), pair.target.translate(_BREAKS)
    return f"{source}\t{target}\n", (source, target) != (pair.source, pair.target)


TSV_WRITER = PairWriter(lambda _: "", _format_pair)
"""Writes pairs as TSV; a tab or a line break becomes a space."""
