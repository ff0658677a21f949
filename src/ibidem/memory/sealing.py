"""Sealing: what the journals say becomes part of the segments, and what was removed is really gone from them."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ibidem.errors import MismatchError
from ibidem.memory.pieces import Piece, join_pieces, keep_pairs, new_piece, sealed_piece
from ibidem.memory.removals import numbers_among

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ibidem.memory.manifest import Manifest, SegmentRecord
    from ibidem.memory.segment import Segment
    from ibidem.memory.tail import Tail

# Small segments at the end are taken up into the new one, so that many seals do not make many segments.
_LARGEST_MERGED = 1 << 17


class Sealed(NamedTuple):
    """A manifest with the tail in its segments; ids of removed pairs, and the numbers that removed entries had."""

    manifest: Manifest
    removed_pairs: NDArray[np.int64]
    removed_entries: NDArray[np.int64]


def seal_tail(
    manifest: Manifest,
    segments: Sequence[Segment],
    tail: Tail,
    removed_before: NDArray[np.int64],
    write: Callable[[Piece], SegmentRecord],
) -> Sealed:
    """Write the segments that change, and the new pairs as one; `removed_before`: ids of removed pairs, rising.

    The commit of the manifest makes them part of the memory. Pairs keep their order, so all numbers of what is not
    removed move down by what was removed before them.
    """
    origins = _number_origins(manifest, tail)
    gone = numbers_among(tail.removed_sealed, removed_before)
    new = _new_pieces(tail, origins, manifest)
    records: list[SegmentRecord] = []
    removed_entries = []
    first_pairs = list(accumulate((record.pairs for record in manifest.segments), initial=0))
    first_entries = list(accumulate((record.entries for record in manifest.segments), initial=0))
    merged_from = _first_merged(manifest, sum(piece.counts.tokens for piece in new))
    merged: list[Piece] = []
    for number, segment in enumerate(segments):
        local = gone[(gone >= first_pairs[number]) & (gone < first_pairs[number + 1])] - first_pairs[number]
        if not len(local) and number < merged_from:
            records.append(segment.record)
            continue
        kept = np.ones(segment.record.pairs, bool)
        kept[local] = False
        removed_entries.append(first_entries[number] + segment.entries_of(local))
        piece = keep_pairs(sealed_piece(segment), kept)
        if number >= merged_from:
            merged.append(piece)
        elif piece.counts.pairs:
            records.append(write(piece))
    joined = join_pieces([*merged, *new]) if merged or new else None
    if joined is not None and joined.counts.pairs:
        records.append(write(joined))
    added_and_removed = tail.first_id + np.flatnonzero(~tail.alive)
    next_journal = max((journal.number for journal in tail.journals), default=manifest.journal) + 1
    return Sealed(
        replace(manifest, segments=tuple(records), origins=tuple(origins), journal=next_journal),
        np.concatenate([tail.removed_sealed, added_and_removed]),
        np.concatenate([np.empty(0, np.int64), *removed_entries]),
    )


def _number_origins(manifest: Manifest, tail: Tail) -> dict[str, int]:
    names = dict.fromkeys((*manifest.origins, *(name for data in tail.added for name in data.origins)))
    return {name: number for number, name in enumerate(names)}


def _new_pieces(tail: Tail, origins: dict[str, int], manifest: Manifest) -> list[Piece]:
    """The added pairs that were not removed again, in the manifest's layout."""
    layout = manifest.layout
    pieces = []
    start = 0
    for data in tail.added:
        if (layout.keys and data.keys is None) or (layout.compact and data.compact is None):
            raise MismatchError(
                "a journal's pairs lack keys that this generation has: they were added to a later one with other keys"
            )
        data = replace(data, keys=data.keys if layout.keys else None, compact=data.compact if layout.compact else None)
        alive = tail.alive[start : start + data.pairs]
        start += data.pairs
        pieces.append(keep_pairs(new_piece(data, origins, clusters=layout.clusters), alive))
    return [piece for piece in pieces if piece.counts.pairs]


def _first_merged(manifest: Manifest, tokens: int) -> int:
    """The first of the segments at the end that are no longer than what would be added to them."""
    number = len(manifest.segments)
    while number and manifest.segments[number - 1].tokens <= tokens < _LARGEST_MERGED:
        number -= 1
        tokens += manifest.segments[number].tokens
    return number
