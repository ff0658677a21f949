"""TSV: a source, a tab and a target on each line, without quoting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.document import DocumentBuilder, Edit, read_lines
from ibidem.text.pair import Dropped, PairWriter, Unit
from ibidem.text.plain import encode_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.text.document import Document, Segment
    from ibidem.text.inline import Pieces
    from ibidem.text.language import Languages
    from ibidem.text.pair import LocatedPair, ReadResult
    from ibidem.text.stream import Stream

_BREAKS = str.maketrans("\t\n\r", "   ")


def read_tsv(stream: Stream) -> Iterator[ReadResult]:
    """Yield the pair of each line.

    Raises:
        TextError: If a line does not have two columns.
    """
    for number, line in stream.lines():
        columns = line.split("\t")
        if len(columns) == 2:
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
