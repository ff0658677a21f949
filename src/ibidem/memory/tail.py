"""The tail of a memory: what its journals added and removed since its segments were sealed."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ibidem.memory.damage import DamagedFile
from ibidem.memory.ends import read_ends
from ibidem.memory.generations import MANIFEST
from ibidem.memory.journal import Change, Journal, journal_path, list_journals
from ibidem.memory.pairs import StoredPair

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ibidem.memory.ends import Ends
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


def read_tail(
    folder: Path,
    first_journal: int,
    first_id: int,
    known: Tail | None = None,
    *,
    protected: bool = True,
    beyond: bool = True,
) -> Tail:
    """Read the tail of a manifest: all changes in the journal that it names and in later ones.

    known: a tail of the same manifest that was read earlier, which saves reading what it holds already. protected:
    whether the manifest's format demands committed ends. beyond: take over a whole record beyond the committed end,
    which a killed writer left, also where `known` is given. Raises DamagedMemoryError.
    """
    last = known.journals[-1] if known is not None and known.journals else None
    if known is not None and last is not None and last.end == last.committed == last.size():
        return known
    ends = read_ends(folder, required=protected)
    check_age(folder, first_journal, ends)
    if known is not None and last is not None:
        committed = None if ends is None else ends.of(last.number)
        if committed is not None and committed.bytes == last.committed and last.size() == last.end:
            return known
        if last.end == last.committed:
            changes, read = last.read(committed, beyond=beyond)
            return known.extended(changes, (*known.journals[:-1], read)) if changes else known
        # A record beyond the committed end was taken over, and another may have come in its place: read all again.
    tail = Tail(first_id)
    for path in _paths(folder, first_journal, ends):
        journal = Journal(path)
        changes, journal = journal.read(None if ends is None else ends.of(journal.number))
        tail = tail.extended(changes, (*tail.journals, journal))
    return tail


def check_age(folder: Path, first_journal: int, ends: Ends | None) -> None:
    """Raise DamagedFile for a manifest that needs journals which were removed after later generations."""
    if ends is not None and first_journal < ends.first:
        reason = f"it needs journal {first_journal}, and those before {ends.first} are gone: it is an old copy"
        raise DamagedFile(folder / MANIFEST, reason)


def _paths(folder: Path, first: int, ends: Ends | None) -> list[Path]:
    """The journals from a number on: those that were committed, or the one that would come first."""
    if ends is None:
        paths = list_journals(folder, first)
    else:
        paths = [journal_path(folder, number) for number in sorted(ends.journals) if number >= first]
    return paths or [journal_path(folder, first)]
