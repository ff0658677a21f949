"""Tab-separated text: a source on each line, and after a tab its target, unless it has none yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.documents.document import Document, Draft, Edit
from ibidem.text.documents.lines import read_lines
from ibidem.text.documents.plain import encode_line
from ibidem.text.documents.segment import State

if TYPE_CHECKING:
    from ibidem.text.documents.segment import Segment
    from ibidem.text.inline import Pieces


def read_tsv_document(data: bytes, name: str) -> Document:
    """Read lines of one column or two; raises TextError for more."""
    draft = Draft()
    for line in read_lines(data, name):
        source, tab, target = line.text.partition("\t")
        if "\t" in target:
            raise TextError(
                f"{name}, line {line.number}: {line.text.count(chr(9)) + 1} columns where there must be 1 or 2. "
                "Put at most one tab, between the source and the target, on each line."
            )
        blank = not source.strip()
        number = draft.add(
            source=(source,),
            location=line.number,
            target=target,
            state=State.LOCKED if blank else State.FILLED if target.strip() else State.EMPTY,
            locked="an empty source" if blank else "",
        )
        start = line.place(len(source) + len(tab))
        draft.edits.append(Edit(start, line.end, (number,), (b"", number) if tab else (b"\t", number)))
    return Document(name, "TSV", data, draft.segments, draft.edits, _encode)


def _encode(segment: Segment, pieces: Pieces) -> bytes:
    encoded = encode_line(segment, pieces)
    if b"\t" in encoded:
        raise ValueError("a tab came up")
    return encoded
