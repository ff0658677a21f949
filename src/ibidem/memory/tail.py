"""The tail of a memory: what its journals added and removed since its segments were sealed."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ibidem.memory.journal import Change, Journal, journal_path, list_journals
from ibidem.memory.pairs import StoredPair

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ibidem.memory.pairs import SegmentData


@dataclass(frozen=True, eq=False)
class Tail:
    """Pairs that were added, in order, and the ids of pairs that were removed, sealed ones or added ones.

    An added pair that was removed again keeps its place, so that numbers and ids stay as they are until all is sealed.
    first_id: the id of the first added pair. journals: where it was read from, to go on reading.
    """

    first_id: int
    journals: tuple[Journal, ...] = ()
    added: tuple[SegmentData, ...] = ()
    removed: frozenset[int] = field(default_factory=frozenset)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)

    @property
    def pairs(self) -> int:
        """The number of pairs that were added, those among them that were removed again counted in."""
        return int(self._first_pairs[-1])

    @property
    def entries(self) -> int:
        """The number of entries of all added pairs."""
        return len(self.values)

    @property
    def bytes(self) -> int:
        """The bytes of the journals that it was read from."""
        return sum(journal.end for journal in self.journals)

    @property
    def next_id(self) -> int:
        """The id that the next pair will have."""
        return self.first_id + self.pairs

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """[pairs + 1] where the entries of each added pair begin."""
        lengths = np.concatenate([np.empty(0, np.int64), *(data.lengths for data in self.added)])
        return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])

    @cached_property
    def values(self) -> NDArray[np.int32]:
        """[entries] the token ids of all added pairs."""
        return np.concatenate([np.empty(0, np.int32), *(data.values for data in self.added)])

    @cached_property
    def alive(self) -> NDArray[np.bool_]:
        """[pairs] which added pairs were not removed again."""
        ids = range(self.first_id, self.next_id)
        return np.fromiter((number not in self.removed for number in ids), bool, self.pairs)

    @cached_property
    def alive_entries(self) -> NDArray[np.bool_]:
        """[entries] which entries belong to such pairs."""
        return np.repeat(self.alive, np.diff(self.offsets))

    @property
    def removed_sealed(self) -> NDArray[np.int64]:
        """The ids of removed pairs that lie in sealed segments, rising."""
        return np.array(sorted(number for number in self.removed if number < self.first_id), np.int64)

    def keys(self, *, compact: bool, dimension: int) -> NDArray[np.float16]:
        """[entries, dimension] the compact keys, or the model's own, of all added pairs."""
        parts = [data.compact if compact else data.keys for data in self.added]
        return np.concatenate([np.empty((0, dimension), np.float16), *(part for part in parts if part is not None)])

    def pair(self, index: int, first_entry: int) -> StoredPair:
        """The added pair with this number; `first_entry` is the number of the tail's first entry."""
        number = int(np.searchsorted(self._first_pairs, index, side="right")) - 1
        data, local = self.added[number], index - int(self._first_pairs[number])
        start, stop = (first_entry + place for place in self.offsets[index : index + 2].tolist())
        return StoredPair(
            source=data.sources[local],
            target=data.targets[local],
            origin=data.origins[local],
            location=data.locations[local],
            entries=range(start, stop),
            id=self.first_id + index,
        )

    def find(self, source: str, target: str | None = None) -> list[int]:
        """The ids of added pairs with these texts, or with this source, that were not removed."""
        texts = ((s, t) for data in self.added for s, t in zip(data.sources, data.targets, strict=True))
        ids = enumerate(texts, start=self.first_id)
        return [number for number, (s, t) in ids if s == source and target in (None, t) and number not in self.removed]

    def find_origin(self, origin: str) -> list[int]:
        """The ids of added pairs of this origin that were not removed."""
        ids = enumerate((name for data in self.added for name in data.origins), start=self.first_id)
        return [number for number, name in ids if name == origin and number not in self.removed]

    def extended(self, changes: Sequence[Change], journals: tuple[Journal, ...]) -> Tail:
        """The tail after further changes."""
        added = [change.added for change in changes if change.added is not None]
        new = [id for change in changes for id in change.removed]
        removed = self.removed.union(new) if new else self.removed
        return Tail(self.first_id, journals, (*self.added, *added), removed)

    @cached_property
    def _first_pairs(self) -> NDArray[np.int64]:
        return np.cumsum([0] + [data.pairs for data in self.added], dtype=np.int64)


def read_tail(folder: Path, first_journal: int, first_id: int, known: Tail | None = None) -> Tail:
    """The tail of a manifest: all changes in the journal that it names and in later ones.

    `known`, a tail of the same manifest that was read earlier, saves reading what it holds already.
    """
    if known is not None and known.journals:
        *done, last = known.journals
        if last.size() == last.end:
            return known
        changes, read = last.read()
        return known.extended(changes, (*done, read)) if changes else known
    tail = Tail(first_id)
    paths = list_journals(folder, first_journal) or [journal_path(folder, first_journal)]
    for path in paths:
        changes, journal = Journal(path).read()
        tail = tail.extended(changes, (*tail.journals, journal))
    return tail
