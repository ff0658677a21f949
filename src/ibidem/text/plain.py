"""Plain text: two files with aligned lines as parallel text, and one file of lines as a document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.document import DocumentBuilder, Edit, read_lines
from ibidem.text.inline import plain_text
from ibidem.text.pair import Unit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.text.document import Document, Segment
    from ibidem.text.inline import Pieces
    from ibidem.text.pair import ReadResult
    from ibidem.text.stream import Stream


def read_aligned(source: Stream, target: Stream) -> Iterator[ReadResult]:
    """Yield the pairs of two files whose lines are translations of each other.

    Raises:
        TextError: If one file has more lines than the other; this is found when the shorter one ends.
    """
    targets = target.lines()
    for number, text in source.lines():
        translation = next(targets, None)
        if translation is None:
            break
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
    """
    builder = DocumentBuilder()
    for line in read_lines(data, name):
        number = builder.add((line.text,), line.number, locked="" if line.text.strip() else "a blank line")
        builder.edits.append(Edit(line.start, line.end, (number,), (number,)))
    return builder.build(name, "plain text", data, encode_line, clear_failed=True)


def encode_line(_: Segment, pieces: Pieces) -> bytes:
    """Encode a target as one line; raises ValueError if it contains a line break."""
    text = plain_text(pieces)
    if "\n" in text:
        raise ValueError("a line break was added")
    return text.encode("utf-8")
