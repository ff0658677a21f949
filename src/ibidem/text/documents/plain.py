"""Plain text: each line is a segment, and its translation takes its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.text.documents.document import Document, Draft, Edit
from ibidem.text.documents.lines import read_lines
from ibidem.text.documents.segment import State
from ibidem.text.inline import plain_text

if TYPE_CHECKING:
    from ibidem.text.documents.segment import Segment
    from ibidem.text.inline import Pieces


def read_plain(data: bytes, name: str) -> Document:
    """Read lines; a blank one stays as it is, and one that could not be translated is left empty."""
    draft = Draft()
    for line in read_lines(data, name):
        blank = not line.text.strip()
        number = draft.add(
            source=(line.text,),
            location=line.number,
            state=State.LOCKED if blank else State.EMPTY,
            locked="a blank line" if blank else "",
        )
        draft.edits.append(Edit(line.start, line.end, (number,), (number,)))
    return Document(name, "plain text", data, draft.segments, draft.edits, encode_line, blank_losses=True)


def encode_line(_: Segment, pieces: Pieces) -> bytes:
    """A target as one line; raises ValueError if it is none."""
    text = plain_text(pieces)
    if "\n" in text:
        raise ValueError("a line break came up")
    return text.encode("utf-8")
