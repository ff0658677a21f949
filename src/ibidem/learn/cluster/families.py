"""Families: the entries of each value, listed without sorting more than a chunk of them at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_CHUNK = 1 << 22


@dataclass(frozen=True)
class Families:
    """The families of a memory, excluded values left out.

    values: [families] int32, rising; bounds: [families + 1] int64; order: [entries of them all], int32 where they
    can be numbered so: order[bounds[i] : bounds[i + 1]] are the entries of family i, rising.
    """

    values: NDArray[np.int32]
    bounds: NDArray[np.int64]
    order: NDArray[np.signedinteger[Any]]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of entries of each family: [families]."""
        return np.diff(self.bounds)

    def entries(self, family: int) -> NDArray[np.int64]:
        """The entries of a family, rising: [n]."""
        return self.order[self.bounds[family] : self.bounds[family + 1]].astype(np.int64)

    def sample(self, family: int, bound: int, seed: int) -> NDArray[np.int64]:
        """Its entries, or `bound` of them drawn without replacement, rising.

        The draw depends on the seed and the value alone, not on other families or the order of work.
        """
        entries = self.entries(family)
        if len(entries) <= bound:
            return entries
        random = np.random.default_rng([seed, int(self.values[family])])
        return np.sort(random.choice(entries, bound, replace=False, shuffle=False))


def group_by_value(values: NDArray[np.int32], excluded: Sequence[int] = ()) -> Families:
    """Group entries by value; values: [entries]. A counting sort: beside the order, only chunks are held."""
    if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer):
        raise UsageError(f"Values must be a 1-d array of token ids, not {values.ndim}-d {values.dtype}.")
    if len(values) and values.min() < 0:
        raise UsageError(f"Values hold {values.min()}: token ids are 0 or more.")
    width = int(values.max()) + 1 if len(values) else 0
    counts = np.zeros(width, np.int64)
    for start in range(0, len(values), _CHUNK):
        counts += np.bincount(values[start : start + _CHUNK], minlength=width)
    kept = np.ones(width, bool)
    kept[[token for token in excluded if 0 <= token < width]] = False
    counts[~kept] = 0
    ends = np.cumsum(counts)
    places = ends - counts
    narrow = len(values) <= np.iinfo(np.int32).max
    order: NDArray[Any] = np.empty(int(counts.sum()), np.int32 if narrow else np.int64)
    for start in range(0, len(values), _CHUNK):
        chunk = values[start : start + _CHUNK]
        local = np.argsort(chunk, kind="stable")
        local = local[kept[chunk[local]]]
        found, firsts, lengths = np.unique(chunk[local], return_index=True, return_counts=True)
        order[np.arange(len(local)) + np.repeat(places[found] - firsts, lengths)] = local + start
        places[found] += lengths
    present = np.flatnonzero(counts)
    bounds = np.concatenate([np.zeros(1, np.int64), ends[present]])
    return Families(present.astype(np.int32), bounds, order)
