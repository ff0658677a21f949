"""The keys of a whole memory, read where they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ibidem.memory.segment import Segment


class KeyView:
    """The keys of all segments as one array [size, dimension] float16 that is never loaded whole.

    Raises DamagedMemoryError when a touched block is not as written, UsageError for entries out of range.
    """

    def __init__(self, segments: Sequence[Segment], dimension: int, name: str = "keys") -> None:
        self._segments = segments
        self._name = name
        self._starts = np.cumsum([0] + [segment.record.entries for segment in segments], dtype=np.int64)
        self.size = int(self._starts[-1])
        self.dimension = dimension

    def __len__(self) -> int:
        return self.size

    def blocks(self, rows: int = 65536) -> Iterator[NDArray[np.float16]]:
        """All keys in entry order, [rows, dimension] at a time (the last may be shorter), read-only."""
        if rows < 1:
            raise UsageError(f"a block of {rows} rows was asked for: give at least 1")
        return (self.read(start, min(start + rows, self.size)) for start in range(0, self.size, rows))

    def read(self, start: int, stop: int) -> NDArray[np.float16]:
        """Keys start:stop, read-only; copied only where they lie in more than one segment."""
        if not 0 <= start <= stop <= self.size:
            raise UsageError(f"entries {start} to {stop} were asked for: this memory has {self.size}")
        parts = []
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        for number in range(first, len(self._segments)):
            origin = int(self._starts[number])
            if origin >= stop:
                break
            segment = self._segments[number]
            parts.append(
                segment.array(self._name).read(max(start - origin, 0), min(stop - origin, segment.record.entries))
            )
        if not parts:
            return np.empty((0, self.dimension), np.float16)
        if len(parts) == 1:
            return parts[0]
        keys = np.concatenate(parts)
        keys.flags.writeable = False
        return keys

    def gather(self, ids: NDArray[np.int64]) -> NDArray[np.float16]:
        """The keys of entries `ids` [n], in that order, copied: [n, dimension]."""
        if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
            raise UsageError(f"entries must be a 1-d array of whole numbers, not {ids.ndim}-d {ids.dtype}")
        if ids.size and (ids.min() < 0 or ids.max() >= self.size):
            raise UsageError(f"entries {ids.min()} to {ids.max()} were asked for: this memory has {self.size}")
        ids = ids.astype(np.int64, copy=False)
        numbers = np.searchsorted(self._starts, ids, side="right") - 1
        # Opening a segment checks its sizes, so nothing is allocated on the word of a manifest alone.
        found = {
            number: self._segments[number].array(self._name).gather(ids[numbers == number] - self._starts[number])
            for number in np.unique(numbers).tolist()
        }
        keys = np.empty((len(ids), self.dimension), np.float16)
        for number, rows in found.items():
            keys[numbers == number] = rows
        return keys
