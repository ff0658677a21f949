"""Where an index reads keys from: anything that gives them in blocks and by number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ibidem.errors import MemoryFolderError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]
    Ids = NDArray[np.int64]


class Keys(Protocol):
    """The keys of a memory, float16 or float32, numbered from 0 in the order of `blocks`."""

    @property
    def size(self) -> int:
        """The number of keys."""
        ...

    @property
    def dimension(self) -> int:
        """The number of components of a key."""
        ...

    def blocks(self, rows: int) -> Iterator[Floats]:
        """Give all keys in order, as arrays [at most rows, d]."""
        ...

    def gather(self, ids: Ids) -> Floats:
        """Give the keys of these numbers; ids: [n] int64, gives [n, d]."""
        ...


class ArrayKeys:
    """Keys that lie in one array [size, d] of float16 or float32."""

    def __init__(self, array: Floats) -> None:
        if array.ndim != 2 or array.dtype not in (np.float16, np.float32):
            raise UsageError(
                f"Keys came as an array of shape {list(array.shape)} and type {array.dtype}. "
                "Give a float16 or float32 array of shape [keys, dimensions]."
            )
        self._array = array

    @property
    def size(self) -> int:
        """The number of keys."""
        return len(self._array)

    @property
    def dimension(self) -> int:
        """The number of components of a key."""
        return int(self._array.shape[1])

    def blocks(self, rows: int) -> Iterator[Floats]:
        """Give all keys in order, as views [at most rows, d]."""
        for start in range(0, self.size, rows):
            yield self._array[start : start + rows]

    def gather(self, ids: Ids) -> Floats:
        """Give the keys of these numbers; ids: [n] int64, gives [n, d]."""
        return self._array[ids]


class FirstKeys:
    """The first keys of others."""

    def __init__(self, keys: Keys, size: int) -> None:
        self._keys = keys
        self.size = size
        self.dimension = keys.dimension

    def blocks(self, rows: int) -> Iterator[Floats]:
        """Give these keys in order, as arrays [at most rows, d]."""
        left = self.size
        for block in self._keys.blocks(rows):
            if left <= 0:
                return
            yield block[:left]
            left -= len(block)

    def gather(self, ids: Ids) -> Floats:
        """Give the keys of these numbers; ids: [n] int64, gives [n, d]."""
        return self._keys.gather(ids)


def finite(block: Floats, first: int | None) -> NDArray[np.float32]:
    """Copy keys to float32, and refuse those that are not finite: a graph or a k-means would be spoilt.

    first: the entry of the first key, where they follow one another.
    """
    plain = np.ascontiguousarray(block, dtype=np.float32)
    good = np.isfinite(plain).all(axis=1)
    if not good.all():
        where = "" if first is None else f", the first of them entry {first + int(np.argmin(good))}"
        raise MemoryFolderError(
            f"{int((~good).sum())} keys are not finite numbers{where}. "
            "Check the memory with `ibidem verify`, or use the index setting 'exact', which passes over them."
        )
    return plain
