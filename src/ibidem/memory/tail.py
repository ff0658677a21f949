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
from ibidem.memory.generations import MANIFEST, check_newest, current_manifest, load_snapshot
from ibidem.memory.journal import ENDS, Change, Journal, journal_path, read_ends
from ibidem.memory.lock import is_being_written
from ibidem.memory.manifest import SOURCE_WIDTH
from ibidem.memory.pairs import SegmentContent, StoredPair, join_contents, keep_pairs, make_content, read_content

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ibidem.memory.journal import Ends
    from ibidem.memory.key_coding import KeyCoding
    from ibidem.memory.manifest import Manifest, SegmentRecord
    from ibidem.memory.pairs import SegmentData
    from ibidem.memory.segment import Segment

_ATTEMPTS = 100
_ID_BYTES = 8
# Small segments at the end are joined to the new one, so that frequent seals do not make many segments.
_LARGEST_MERGED = 1 << 17


@dataclass(frozen=True, eq=False)
class Tail:
    """The changes of the journals: pairs that were added since the segments were sealed, and ids of removed pairs.

    An added pair that was removed again keeps its place, so that numbers and ids stay valid until the tail is sealed.

    Attributes:
        first_id: The id of the first added pair.
        journals: The journals, as far as they were read.
        added: The added pairs, a part for each record.
        removed: The ids of removed pairs, sealed or added.
    """

    first_id: int
    journals: tuple[Journal, ...] = ()
    added: tuple[SegmentData, ...] = ()
    removed: frozenset[int] = field(default_factory=frozenset)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)

    @property
    def pairs(self) -> int:
        """The number of added pairs, including those that were removed again."""
        return int(self._first_pairs[-1])

    @property
    def entries(self) -> int:
        """The number of entries of all added pairs."""
        return len(self.values)

    @property
    def bytes(self) -> int:
        """The size of the journals in bytes."""
        return sum(journal.end for journal in self.journals)

    @property
    def next_id(self) -> int:
        """The id that the next pair will get."""
        return self.first_id + self.pairs

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """[pairs + 1] the first entry of each added pair."""
        lengths = np.concatenate([np.empty(0, np.int64), *(data.lengths for data in self.added)])
        return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])

    @cached_property
    def values(self) -> NDArray[np.int32]:
        """[entries] the target token ids of all added pairs."""
        return np.concatenate([np.empty(0, np.int32), *(data.values for data in self.added)])

    @cached_property
    def log_probs(self) -> NDArray[np.float32]:
        """[entries] the base model's log-probabilities of the values of all added pairs."""
        return np.concatenate([np.empty(0, np.float32), *(data.log_probs for data in self.added)])

    @cached_property
    def source_vectors(self) -> NDArray[np.int8]:
        """[pairs, 64] the source vectors of all added pairs."""
        parts = [data.stored_source_vectors() for data in self.added]
        return np.concatenate([np.empty((0, SOURCE_WIDTH), np.int8), *parts])

    @cached_property
    def active(self) -> NDArray[np.bool_]:
        """[pairs] whether each added pair was not removed again."""
        ids = range(self.first_id, self.next_id)
        return np.fromiter((number not in self.removed for number in ids), bool, self.pairs)

    @cached_property
    def active_entries(self) -> NDArray[np.bool_]:
        """[entries] whether the pair of each entry was not removed again."""
        return np.repeat(self.active, np.diff(self.offsets))

    @property
    def removed_sealed(self) -> NDArray[np.int64]:
        """The ids of removed pairs that are in sealed segments, ascending."""
        return np.array(sorted(number for number in self.removed if number < self.first_id), np.int64)

    def keys(self, coding: KeyCoding | None, dimension: int) -> NDArray[np.float16]:
        """Return the keys of all added pairs.

        Args:
            coding: The codes of the compact keys; None returns the model's own keys.
            dimension: The dimension of these keys.

        Returns:
            [entries, dimension] float16.
        """
        if coding is None:
            parts = [data.keys for data in self.added if data.keys is not None]
        else:
            parts = [coding.decode(data.compact) for data in self.added if data.compact is not None]
        return np.concatenate([np.empty((0, dimension), np.float16), *parts])

    def pair(self, index: int, first_entry: int) -> StoredPair:
        """Return an added pair.

        Args:
            index: The number of the pair in the tail.
            first_entry: The number of the tail's first entry in the memory.
        """
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
        """Return the ids of added pairs with given texts, without removed ones.

        Args:
            source: The source text, compared exactly.
            target: The target text, compared exactly; None accepts any.
        """
        texts = ((s, t) for data in self.added for s, t in zip(data.sources, data.targets, strict=True))
        ids = enumerate(texts, start=self.first_id)
        return [number for number, (s, t) in ids if s == source and target in (None, t) and number not in self.removed]

    def find_origin(self, origin: str) -> list[int]:
        """Return the ids of added pairs of an origin, without removed ones.

        Args:
            origin: The name of the origin.
        """
        ids = enumerate((name for data in self.added for name in data.origins), start=self.first_id)
        return [number for number, name in ids if name == origin and number not in self.removed]

    def extended(self, changes: Sequence[Change], journals: tuple[Journal, ...]) -> Tail:
        """Return the tail after further changes.

        Args:
            changes: The changes, in their order.
            journals: All journals of the tail, read up to these changes.
        """
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
    uncommitted: bool = True,
) -> Tail:
    """Read the tail of a manifest: all changes in its first journal and in later ones.

    Args:
        folder: The folder of the memory.
        first_journal: The number of the manifest's first journal.
        first_id: The id of the first pair after the segments.
        known: A tail of the same manifest that was read earlier; its records are not read again.
        uncommitted: Whether this process holds the lock; see `read_journal`.

    Raises:
        DamagedMemoryError: A journal, or the file of committed ends, is damaged.
    """
    last = known.journals[-1] if known is not None and known.journals else None
    if known is not None and last is not None and last.end == last.committed == last.size():
        return known
    ends = read_ends(folder)
    check_age(folder, first_journal, ends)
    if known is not None and last is not None:
        committed = ends.of(last.number)
        if committed.bytes == last.committed and last.size() == last.end:
            return known
        if last.end == last.committed:
            changes, read = read_journal(folder, last, ends, uncommitted=uncommitted)
            return known.extended(changes, (*known.journals[:-1], read)) if changes else known
        # An uncommitted record was accepted, and another one may have replaced it: all records are read again.
    tail = Tail(first_id)
    for path in _paths(folder, first_journal, ends):
        changes, journal = read_journal(folder, Journal(path), ends, uncommitted=uncommitted)
        tail = tail.extended(changes, (*tail.journals, journal))
    return tail


def check_age(folder: Path, first_journal: int, ends: Ends) -> None:
    """Check that the journals that a manifest needs were not deleted after later generations.

    Args:
        folder: The folder of the memory.
        first_journal: The number of the manifest's first journal.
        ends: The committed ends.

    Raises:
        DamagedFile: The manifest is an old copy.
    """
    if first_journal < ends.first:
        reason = f"it needs journal {first_journal}, and those before {ends.first} were deleted: it is an old copy"
        raise DamagedFile(folder / MANIFEST, reason)


def read_journal(folder: Path, journal: Journal, ends: Ends, *, uncommitted: bool) -> tuple[list[Change], Journal]:
    """Read the changes of a journal, with a complete record beyond the committed end if its writer has ended.

    Such a record was left by a killed writer, and the next writer commits it. The record of a running writer is ignored
    until it is committed, since the writer may still fail and take it back.

    Args:
        folder: The folder of the memory.
        journal: The journal, as far as it was read.
        ends: The committed ends.
        uncommitted: Whether this process holds the lock, so that no other writer runs.

    Returns:
        The changes after `journal.end`, and the journal as far as it was read.

    Raises:
        DamagedMemoryError: The journal or the committed ends are damaged.
    """
    end = ends.of(journal.number)
    if uncommitted:
        return journal.read(end)
    size = journal.size()
    if size > end.bytes:
        check_ends(folder, journal, ends)
        changes, read = journal.read(end)
        # The order matters: the record was there before the check, and a writer that starts later accepts it.
        ended = read.end > end.bytes and not is_being_written(folder)
        if ended and journal.size() == size and read_ends(folder) == ends:
            return changes, read
    return journal.read(end, uncommitted=False)


def check_ends(folder: Path, journal: Journal, ends: Ends) -> None:
    """Check that at most one record of a journal is not committed.

    A writer commits each record before it writes the next; more records mean an old copy of the committed ends, or a
    writer that has committed since they were read.

    Args:
        folder: The folder of the memory.
        journal: The journal, as far as it was read.
        ends: The committed ends.

    Raises:
        DamagedFile: The committed ends are an old copy, or the journal is damaged.
    """
    end = ends.of(journal.number)
    if journal.size() <= end.bytes:
        return
    read = journal.read(end)[1]
    if read.records > end.records + 1 and read_ends(folder) == ends:
        reason = f"it is older than {journal.path.name}: there are {read.records} records, not {end.records}"
        raise DamagedFile(folder / ENDS, reason, "`ibidem repair` brings it up to date")


def _paths(folder: Path, first: int, ends: Ends) -> list[Path]:
    """Return the committed journals from a number on, or the path of the first one if there are none."""
    paths = [journal_path(folder, number) for number in sorted(ends.journals) if number >= first]
    return paths or [journal_path(folder, first)]


class State(NamedTuple):
    """A manifest with its tail.

    Attributes:
        manifest: The manifest.
        tail: The changes of its journals.
        stamp: Inode, time and size of the manifest file, to detect a new manifest.
    """

    manifest: Manifest
    tail: Tail
    stamp: tuple[int, ...]


def next_id(manifest: Manifest) -> int:
    """Return the id of the first pair after the segments of a manifest.

    Args:
        manifest: The manifest; ids of pairs that were removed from its segments are not given again.
    """
    removed = manifest.artefacts.get(REMOVED_PAIRS)
    return manifest.counts.pairs + (0 if removed is None else removed.bytes // _ID_BYTES)


def read_state(folder: Path, known: State | None = None, *, uncommitted: bool = False) -> State:
    """Read the newest manifest and its tail.

    Args:
        folder: The folder of the memory.
        known: A state that was read earlier; unchanged parts are not read again.
        uncommitted: See `read_tail`.

    Raises:
        DamagedMemoryError: A manifest, a snapshot or a journal is damaged.
        MemoryFolderError: There is no memory, or writers change it faster than it can be read.
    """
    for _ in range(_ATTEMPTS):
        stamp = read_stamp(folder)
        if known is not None and stamp and stamp == known.stamp:
            manifest, tail = known.manifest, known.tail
        else:
            manifest, tail = current_manifest(folder), None
        try:
            if tail is None:
                check_newest(folder, manifest)
                for record in manifest.snapshots.values():
                    load_snapshot(folder, record)
            found = read_tail(
                folder,
                manifest.journal,
                next_id(manifest),
                tail,
                uncommitted=uncommitted,
            )
        except DamagedMemoryError:
            if read_stamp(folder) == stamp:
                raise
            continue  # a writer has committed since, and deleted files of the manifest before
        # A writer seals a journal before it deletes it: with an unchanged manifest no journal was missed.
        if read_stamp(folder) == stamp:
            return State(manifest, found, stamp)
    raise MemoryFolderError(f"{folder} changes faster than it can be read: wait for its writers, then run again")


def read_stamp(folder: Path) -> tuple[int, ...]:
    """Return inode, time and size of the manifest; empty if it cannot be read.

    Args:
        folder: The folder of the memory.
    """
    try:
        status = (folder / MANIFEST).stat()
    except OSError:
        return ()
    return (status.st_ino, status.st_mtime_ns, status.st_size)


class SealedTail(NamedTuple):
    """The result of sealing a tail.

    Attributes:
        manifest: The manifest with the new segments.
        removed_pairs: The ids of the pairs that were removed.
        removed_entries: The numbers that the removed entries had.
    """

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
    """Write the segments that change, and the added pairs as one segment.

    The commit of the manifest makes them part of the memory. Pairs keep their order; numbers decrease by the number of
    removed pairs or entries before them.

    Args:
        manifest: The manifest before.
        segments: Readers of its segments.
        tail: The changes.
        removed_before: [n] the ids of pairs that were removed earlier, ascending.
        write: The function that writes the content of a segment and returns its record.
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
    """Return the contents of the added pairs that were not removed again, in the layout of the manifest."""
    layout = manifest.layout
    contents = []
    start = 0
    for data in tail.added:
        if (layout.keys and data.keys is None) or (layout.compact and data.compact is None):
            raise MismatchError(
                "pairs of a journal lack keys that this generation stores, since they were added to a later generation "
                "with other keys: learn the memory again"
            )
        data = replace(data, keys=data.keys if layout.keys else None, compact=data.compact if layout.compact else None)
        active = tail.active[start : start + data.pairs]
        start += data.pairs
        contents.append(keep_pairs(make_content(data, origins, clusters=layout.clusters), active))
    return [content for content in contents if content.counts.pairs]


def _first_merged(manifest: Manifest, tokens: int) -> int:
    """Return the first of the last segments that are not larger than the content that would be joined to them."""
    number = len(manifest.segments)
    while number and manifest.segments[number - 1].tokens <= tokens < _LARGEST_MERGED:
        number -= 1
        tokens += manifest.segments[number].tokens
    return number
