"""A file of segments that is written back byte for byte, but for the targets that were filled in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ibidem.text.documents.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ibidem.text.inline import Pieces


class Edit(NamedTuple):
    """Bytes that replace those from `start` to `end` once segments are filled.

    `parts` are bytes and numbers of segments, whose targets are written there. It is made once any of its `segments`
    is filled or, if `whole`, once all of them are.
    """

    start: int
    end: int
    segments: tuple[int, ...]
    parts: tuple[bytes | int, ...]
    whole: bool = False


class Claim(NamedTuple):
    """A language that the document says it is in: of its sources or its targets, and on which line it says so."""

    is_target: bool
    tag: str
    line: int


@dataclass(slots=True)
class Draft:
    """What a reader has found so far."""

    segments: list[Segment] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)

    def add(self, **fields: Any) -> int:
        """Add a segment, and give its number."""
        self.segments.append(Segment(len(self.segments), **fields))
        return len(self.segments) - 1


@dataclass(frozen=True)
class Document:
    """The bytes of a file, its segments, and where their targets go.

    `encode` gives the bytes of a target in the document's own writing, and raises ValueError for a text that it
    cannot hold. `blank_losses`: a segment that could not be translated is left empty, since the file has no other
    place for its translation than that of the source.
    """

    name: str
    format: str
    data: bytes
    segments: Sequence[Segment]
    edits: Sequence[Edit]
    encode: Callable[[Segment, Pieces], bytes]
    claims: Sequence[Claim] = ()
    blank_losses: bool = False

    def write(self, targets: Mapping[int, bytes]) -> Iterator[bytes | memoryview]:
        """Yield the file with these encoded targets, by the numbers of their segments; without any, as it was."""
        view = memoryview(self.data)
        last = 0
        for edit in sorted(self.edits, key=lambda edit: edit.start):
            filled = [number in targets for number in edit.segments]
            if not (all(filled) if edit.whole else any(filled)):
                continue
            yield view[last : edit.start]
            for part in edit.parts:
                if isinstance(part, bytes):
                    yield part
                elif part in targets:
                    yield targets[part]
            last = edit.end
        yield view[last:]
