"""The tail of a memory: pairs added and removed by its journals since its segments were sealed.

`read_state` reads the newest manifest with its tail from disk. `seal_tail` turns a tail into segments, from which
removed pairs are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ibidem.errors import DamagedMemoryError, MemoryFolderError, MismatchError
from ibidem.memory.artefacts import REMOVED_PAIRS, numbers_among
from ibidem.memory.files import DamagedFile
from ibidem.memory.generations import MANIFEST, current_manifest, listed_snapshots, load_snapshot
from ibidem.memory.journal import Change, Journal, journal_path, list_journals, read_ends
from ibidem.memory.pairs import SegmentContent, StoredPair, join_contents, keep_pairs, make_content, read_content

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ibidem.memory.journal import Ends
    from ibidem.memory.manifest import Manifest, SegmentRecord
    from ibidem.memory.pairs import SegmentData
    from ibidem.memory.segment import Segment


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
    def active(self) -> NDArray[np.bool_]:
        """[pairs] which added pairs were not removed again."""
        ids = range(self.first_id, self.next_id)
        return np.fromiter((number not in self.removed for number in ids), bool, self.pairs)

    @cached_property
    def alive_entries(self) -> NDArray[np.bool_]:
        """[entries] which entries belong to such pairs."""
        return np.repeat(self.active, np.diff(self.offsets))

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
    uncommitted: bool = True,
) -> Tail:
    """Read the tail of a manifest: all changes in the journal that it names and in later ones.

    known: a tail of the same manifest that was read earlier, which saves reading what it holds already. protected:
    whether the manifest's format demands committed ends. uncommitted: take over a whole record beyond the committed end,
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
            changes, read = last.read(committed, uncommitted=uncommitted)
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


_ATTEMPTS = 100
_ID_BYTES = 8


class State(NamedTuple):
    """A manifest, its tail, and a stamp that another manifest in its place would not have."""

    manifest: Manifest
    tail: Tail
    stamp: tuple[int, ...]


def next_id(manifest: Manifest) -> int:
    """The id of the first pair that is not in the segments of this manifest."""
    removed = manifest.artefacts.get(REMOVED_PAIRS)
    return manifest.counts.pairs + (0 if removed is None else removed.bytes // _ID_BYTES)


def read_state(folder: Path, known: State | None = None, *, uncommitted: bool = True) -> State:
    """The state on disk; what is in `known` and did not change since then is not read again.

    uncommitted: see `read_tail`. Raises DamagedMemoryError for a manifest, a snapshot or a journal that is not as written.
    """
    for _ in range(_ATTEMPTS):
        stamp = read_stamp(folder)
        if known is not None and stamp and stamp == known.stamp:
            manifest, tail = known.manifest, known.tail
        else:
            manifest, tail = current_manifest(folder), None
        try:
            if tail is None:
                for record in listed_snapshots(folder, manifest).values():
                    load_snapshot(folder, record)
            protected = manifest.format > 3
            found = read_tail(
                folder,
                manifest.journal,
                next_id(manifest),
                tail,
                protected=protected,
                uncommitted=uncommitted,
            )
        except DamagedMemoryError:
            if read_stamp(folder) == stamp:
                raise
            continue  # a writer has committed since, and removed what the manifest before it named
        # A writer seals a journal before it removes it: an unchanged manifest means that none was missed.
        if read_stamp(folder) == stamp:
            return State(manifest, found, stamp)
    raise MemoryFolderError(f"{folder} is changed faster than it can be read: wait for its writers, and run again")


def read_stamp(folder: Path) -> tuple[int, ...]:
    """Return inode, time and size of the manifest, or nothing if it cannot be read."""
    try:
        status = (folder / MANIFEST).stat()
    except OSError:
        return ()
    return (status.st_ino, status.st_mtime_ns, status.st_size)


# Small segments at the end are taken up into the new one, so that many seals do not make many segments.
_LARGEST_MERGED = 1 << 17


class SealedTail(NamedTuple):
    """A manifest with the tail in its segments; ids of removed pairs, and the numbers that removed entries had."""

    manifest: Manifest
    removed_pairs: NDArray[np.int64]
    removed_entries: NDArray[np.int64]


def seal_tail(
    manifest: Manifest,
    segments: Sequence[Segment],
    tail: Tail,
    removed_before: NDArray[np.int64],
    write: Callable[[SegmentContent], SegmentRecord],
) -> SealedTail:
    """Write the segments that change, and the new pairs as one; `removed_before`: ids of removed pairs, rising.

    The commit of the manifest makes them part of the memory. Pairs keep their order, so all numbers of what is not
    removed move down by what was removed before them.
    """
    origins = _number_origins(manifest, tail)
    gone = numbers_among(tail.removed_sealed, removed_before)
    new = _new_contents(tail, origins, manifest)
    records: list[SegmentRecord] = []
    removed_entries = []
    first_pairs = list(accumulate((record.pairs for record in manifest.segments), initial=0))
    first_entries = list(accumulate((record.entries for record in manifest.segments), initial=0))
    merged_from = _first_merged(manifest, sum(content.counts.tokens for content in new))
    merged: list[SegmentContent] = []
    for number, segment in enumerate(segments):
        local = gone[(gone >= first_pairs[number]) & (gone < first_pairs[number + 1])] - first_pairs[number]
        if not len(local) and number < merged_from:
            records.append(segment.record)
            continue
        kept = np.ones(segment.record.pairs, bool)
        kept[local] = False
        removed_entries.append(first_entries[number] + segment.entries_of(local))
        content = keep_pairs(read_content(segment), kept)
        if number >= merged_from:
            merged.append(content)
        elif content.counts.pairs:
            records.append(write(content))
    joined = join_contents([*merged, *new]) if merged or new else None
    if joined is not None and joined.counts.pairs:
        records.append(write(joined))
    added_and_removed = tail.first_id + np.flatnonzero(~tail.active)
    next_journal = max((journal.number for journal in tail.journals), default=manifest.journal) + 1
    return SealedTail(
        replace(manifest, segments=tuple(records), origins=tuple(origins), journal=next_journal),
        np.concatenate([tail.removed_sealed, added_and_removed]),
        np.concatenate([np.empty(0, np.int64), *removed_entries]),
    )


def _number_origins(manifest: Manifest, tail: Tail) -> dict[str, int]:
    names = dict.fromkeys((*manifest.origins, *(name for data in tail.added for name in data.origins)))
    return {name: number for number, name in enumerate(names)}


def _new_contents(tail: Tail, origins: dict[str, int], manifest: Manifest) -> list[SegmentContent]:
    """The added pairs that were not removed again, in the manifest's layout."""
    layout = manifest.layout
    contents = []
    start = 0
    for data in tail.added:
        if (layout.keys and data.keys is None) or (layout.compact and data.compact is None):
            raise MismatchError(
                "a journal's pairs lack keys that this generation has: they were added to a later one with other keys"
            )
        data = replace(data, keys=data.keys if layout.keys else None, compact=data.compact if layout.compact else None)
        active = tail.active[start : start + data.pairs]
        start += data.pairs
        contents.append(keep_pairs(make_content(data, origins, clusters=layout.clusters), active))
    return [content for content in contents if content.counts.pairs]


def _first_merged(manifest: Manifest, tokens: int) -> int:
    """The first of the segments at the end that are no longer than what would be added to them."""
    number = len(manifest.segments)
    while number and manifest.segments[number - 1].tokens <= tokens < _LARGEST_MERGED:
        number -= 1
        tokens += manifest.segments[number].tokens
    return number
