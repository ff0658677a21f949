"""Access to the keys and values of a memory as one array, and to sentence pairs by number, id, text and origin.

The number of a pair is its position. A removed pair keeps its number until the journal is sealed. The id of a pair
never changes and is never given to another pair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.errors import UsageError
from ibidem.memory.artefacts import numbers_among, serials_of
from ibidem.memory.files import DamagedFile
from ibidem.memory.pairs import StoredPair

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ibidem.memory.key_coding import KeyCoding
    from ibidem.memory.segment import Segment
    from ibidem.memory.tail import Tail


class KeyView:
    """The keys of all segments as one array [size, dimension] float16, of which only the requested rows are read.

    Methods raise DamagedMemoryError if a block that they read is damaged.

    Attributes:
        size: The number of keys.
        dimension: The dimension of a key.
        coding: The codes of compact keys, which the methods decode; None for the model's own keys.
    """

    def __init__(self, segments: Sequence[Segment], dimension: int, coding: KeyCoding | None = None) -> None:
        """Join the keys of segments.

        Args:
            segments: The segments.
            dimension: The dimension of a key.
            coding: The codes of the compact keys; None for the model's own keys.
        """
        self._segments = segments
        self._name = "keys" if coding is None else "compact"
        self.coding = coding
        self._starts = np.cumsum([0] + [segment.record.entries for segment in segments], dtype=np.int64)
        self.size = int(self._starts[-1])
        self.dimension = dimension

    def __len__(self) -> int:
        return self.size

    def blocks(self, rows: int = 65536) -> Iterator[NDArray[np.float16]]:
        """Yield all keys in blocks, in the order of the entries.

        Args:
            rows: The number of keys in a block; the last block may be shorter.

        Yields:
            [rows, dimension] float16, read-only.

        Raises:
            UsageError: `rows` is less than 1.
        """
        if rows < 1:
            raise UsageError(f"invalid block of {rows} rows: give at least 1")
        return (self.read(start, min(start + rows, self.size)) for start in range(0, self.size, rows))

    def read(self, start: int, stop: int) -> NDArray[np.float16]:
        """Read the keys start:stop.

        Args:
            start: The first entry.
            stop: The entry after the last.

        Returns:
            [stop - start, dimension] float16, read-only; a copy where the keys are compact or in several segments.

        Raises:
            UsageError: The entries are out of range.
        """
        parts = self.chunks(start, stop)
        if not parts:
            return np.empty((0, self.dimension), np.float16)
        keys = parts[0] if len(parts) == 1 else np.concatenate(parts)
        keys = keys if self.coding is None else self.coding.decode(keys)
        keys.flags.writeable = False
        return keys

    def chunks(self, start: int = 0, stop: int | None = None) -> list[NDArray[Any]]:
        """Return keys as they are stored, verified, an array [entries, dimension] of each segment that has some.

        Args:
            start: The first entry.
            stop: The entry after the last; None for all.

        Raises:
            UsageError: The entries are out of range.
        """
        last = self.size if stop is None else stop
        return [
            segment.array(self._name).read(max(start - origin, 0), min(last - origin, segment.record.entries))
            for origin, segment in self._overlapping(start, last)
        ]

    def _overlapping(self, start: int, stop: int) -> Iterator[tuple[int, Segment]]:
        """Yield the segments that have some of the keys start:stop, each with its first entry."""
        if not 0 <= start <= stop <= self.size:
            raise UsageError(f"entries {start} to {stop} do not exist: this memory has {self.size}")
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        for number in range(first, len(self._segments)):
            origin = int(self._starts[number])
            if origin >= stop:
                return
            yield origin, self._segments[number]

    def gather(self, ids: NDArray[np.int64]) -> NDArray[np.float16]:
        """Copy the keys of given entries.

        Args:
            ids: [n] numbers of entries.

        Returns:
            [n, dimension] float16.

        Raises:
            UsageError: The entries are out of range or not whole numbers.
        """
        if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
            raise UsageError(f"entries must be a 1-d array of whole numbers, not {ids.ndim}-d {ids.dtype}")
        if ids.size and (ids.min() < 0 or ids.max() >= self.size):
            raise UsageError(f"entries {ids.min()} to {ids.max()} do not exist: this memory has {self.size}")
        ids = ids.astype(np.int64, copy=False)
        numbers = np.searchsorted(self._starts, ids, side="right") - 1
        # Opening a segment checks its sizes before memory is allocated.
        found = {
            number: self._segments[number].array(self._name).gather(ids[numbers == number] - self._starts[number])
            for number in np.unique(numbers).tolist()
        }
        keys = np.empty((len(ids), self.dimension), np.float16)
        for number, rows in found.items():
            keys[numbers == number] = rows if self.coding is None else self.coding.decode(rows)
        return keys


class Lookup:
    """The lookup of pairs in the segments and the tail of a generation."""

    def __init__(
        self, segments: Sequence[Segment], origins: Sequence[str], tail: Tail, removed: NDArray[np.int64]
    ) -> None:
        """Prepare the lookup.

        Args:
            segments: The sealed segments.
            origins: The names of the origins, by their numbers in the segments.
            tail: The changes of the journals.
            removed: [n] the ids of pairs that were removed from the segments, ascending.
        """
        self._segments = segments
        self._origins = origins
        self._tail = tail
        self._removed = removed
        self._first_entries = np.cumsum([0] + [segment.record.entries for segment in segments], dtype=np.int64)
        self._first_pairs = np.cumsum([0] + [segment.record.pairs for segment in segments], dtype=np.int64)
        self._sealed_pairs, self._sealed_entries = int(self._first_pairs[-1]), int(self._first_entries[-1])

    def segments(self) -> Iterator[tuple[int, Segment]]:
        """Yield the sealed segments with the numbers of their first pairs, the newest first."""
        yield from reversed(list(zip(self._first_pairs.tolist(), self._segments, strict=False)))

    def hidden_numbers(self) -> frozenset[int]:
        """Return the numbers of the sealed pairs that the tail removes."""
        return frozenset(numbers_among(self._tail.removed_sealed, self._removed).tolist())

    def pair(self, number: int) -> StoredPair:
        """Return the pair with a number.

        Args:
            number: The number, from 0; the pairs of the tail follow the sealed ones.

        Raises:
            UsageError: The number is out of range.
        """
        self._check(number, self._sealed_pairs + self._tail.pairs, "sentence")
        if number >= self._sealed_pairs:
            return self._tail.pair(number - self._sealed_pairs, self._sealed_entries)
        place, local = _place(self._first_pairs, number)
        return next(self._sealed(place, local, local + 1))

    def pairs(self) -> Iterator[StoredPair]:
        """Yield all pairs that were not removed, in the order of their arrival."""
        for place, segment in enumerate(self._segments):
            for pair in self._sealed(place, 0, segment.record.pairs):
                if pair.id not in self._tail.removed:
                    yield pair
        for index in np.flatnonzero(self._tail.active).tolist():
            yield self._tail.pair(index, self._sealed_entries)

    def tokens(self, number: int) -> NDArray[np.int32]:
        """Return the target token ids of the pair with a number.

        Args:
            number: The number of the pair, from 0.

        Returns:
            [tokens] int32, pruned tokens included.

        Raises:
            UsageError: The number is out of range.
        """
        self._check(number, self._sealed_pairs + self._tail.pairs, "sentence")
        if number >= self._sealed_pairs:
            first, last = self._tail.offsets[number - self._sealed_pairs :][:2].tolist()
            return self._tail.values[first:last]
        place, local = _place(self._first_pairs, number)
        segment = self._segments[place]
        first, last = segment.offsets[local : local + 2].tolist()
        return segment.array("values").read(first, last).astype(np.int32)

    def locate(self, entry: int) -> tuple[int, int]:
        """Find the pair of an entry.

        Args:
            entry: The number of the entry, from 0; the entries of the tail follow the sealed ones.

        Returns:
            The number of the pair, and the entry's position among its target tokens.

        Raises:
            UsageError: The number is out of range.
        """
        self._check(entry, self._sealed_entries + self._tail.entries, "entry")
        if entry >= self._sealed_entries:
            local = entry - self._sealed_entries
            index = int(np.searchsorted(self._tail.offsets, local, side="right")) - 1
            return self._sealed_pairs + index, local - int(self._tail.offsets[index])
        place, local = _place(self._first_entries, entry)
        pair, position = self._segments[place].locate(local)
        return int(self._first_pairs[place]) + pair, position

    def number_of(self, id: int) -> int:
        """Return the number of the pair with an id.

        Args:
            id: The id, as `find` returns it.

        Raises:
            UsageError: The pair does not exist or was removed.
        """
        place = int(np.searchsorted(self._removed, id))
        gone = id in self._tail.removed or (place < len(self._removed) and self._removed[place] == id)
        if gone or not 0 <= id < self._tail.next_id:
            why = "it was removed" if gone else f"the ids so far end at {self._tail.next_id - 1}"
            raise UsageError(f"there is no pair with the id {id}: {why}")
        if id >= self._tail.first_id:
            return self._sealed_pairs + id - self._tail.first_id
        return int(numbers_among(np.array([id]), self._removed)[0])

    def find(self, source: str, target: str | None = None) -> list[int]:
        """Return the ids of the pairs with given texts, without removed ones.

        Args:
            source: The source text, compared exactly.
            target: The target text, compared exactly; None accepts any.
        """
        texts = [text.encode("utf-8", "surrogatepass") for text in (source, target) if text is not None]
        found = [segment.find(*texts) for segment in self._segments]
        return [*self._sealed_ids(found), *self._tail.find(source, target)]

    def find_origin(self, origin: str) -> list[int]:
        """Return the ids of the pairs of an origin, without removed ones.

        Args:
            origin: The name of the origin; an unknown one has no pairs.
        """
        if origin not in self._origins:
            return self._tail.find_origin(origin)
        number = self._origins.index(origin)
        found = [segment.find_origin(number) for segment in self._segments]
        return [*self._sealed_ids(found), *self._tail.find_origin(origin)]

    def entries(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of the entries of sealed pairs.

        Args:
            ids: [n] ids of sealed pairs, ascending.

        Returns:
            [entries of these pairs] int64, ascending.
        """
        numbers = numbers_among(ids, self._removed)
        places = np.searchsorted(self._first_pairs, numbers, side="right") - 1
        parts = [
            self._segments[place].entries_of(numbers[places == place] - self._first_pairs[place])
            + self._first_entries[place]
            for place in np.unique(places).tolist()
        ]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def _sealed_ids(self, found: Sequence[NDArray[np.int64]]) -> list[int]:
        """Return the ids of pairs that were found in each segment, without removed ones."""
        parts = [pairs + first for pairs, first in zip(found, self._first_pairs, strict=False)]
        ids = serials_of(np.concatenate([np.empty(0, np.int64), *parts]), self._removed)
        return [id for id in ids.tolist() if id not in self._tail.removed]

    def _sealed(self, place: int, start: int, stop: int) -> Iterator[StoredPair]:
        segment = self._segments[place]
        entry, number = int(self._first_entries[place]), int(self._first_pairs[place]) + start
        ids = serials_of(np.arange(number, number + stop - start), self._removed).tolist()
        for id, (source, target, origin, location, first, last) in zip(ids, segment.pairs(start, stop), strict=True):
            if not 0 <= origin < len(self._origins):
                raise DamagedFile(segment.file("origins"), f"origin {origin} is not in the manifest")
            entries = range(entry + first, entry + last)
            yield StoredPair(source, target, self._origins[origin], location, entries, id)

    @staticmethod
    def _check(number: int, count: int, what: str) -> None:
        if not 0 <= number < count:
            raise UsageError(f"there is no {what} {number}: this memory has {count}, numbered from 0")


def _place(firsts: NDArray[np.int64], number: int) -> tuple[int, int]:
    """Return the segment of a number, and the number inside that segment."""
    place = int(np.searchsorted(firsts, number, side="right")) - 1
    return place, number - int(firsts[place])
