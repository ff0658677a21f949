"""Families: the entries of each value (target token), the special labels of entries, and reading of a family's keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ibidem.retrieve import Keys

# A label of an entry is the number of its cluster, or one of these three.
NOISE = -1
"""The entry was clustered and belongs to no cluster."""

UNSAMPLED = -2
"""The entry's family is larger than the bound, and the entry was not drawn into the clustered sample."""

EXCLUDED = -3
"""The entry's token is not clustered, such as padding."""

# Entries sorted at a time.
_CHUNK = 1 << 22


@dataclass(frozen=True)
class Families:
    """Hold the entries of every family; excluded values have no family.

    Attributes:
        values: [families] int32, the values in ascending order.
        bounds: [families + 1] int64, the bounds of each family in `order`.
        order: [entries of all families]: order[bounds[i] : bounds[i + 1]] are the entries of family i, ascending;
            int32 if the entries' numbers fit, else int64.
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
        """Return the entries of a family, ascending: [n].

        Args:
            family: The number of the family, in the order of values.
        """
        return self.order[self.bounds[family] : self.bounds[family + 1]].astype(np.int64)

    def sample(self, family: int, bound: int, seed: int) -> NDArray[np.int64]:
        """Draw at most `bound` entries of a family without replacement.

        The draw depends on the seed and the family's value alone, not on other families or the order of calls.

        Args:
            family: The number of the family, in the order of values.
            bound: The most entries to draw.
            seed: Seed of the draw.

        Returns:
            [n] entries, ascending; all entries of the family if there are no more than `bound`.
        """
        entries = self.entries(family)
        if len(entries) <= bound:
            return entries
        random = np.random.default_rng([seed, int(self.values[family])])
        return np.sort(random.choice(entries, bound, replace=False, shuffle=False))


def group_by_value(values: NDArray[np.int32], excluded: Sequence[int] = ()) -> Families:
    """Group entries by value with a counting sort that reads the values in chunks.

    Args:
        values: [entries], the token id of each entry.
        excluded: Token ids that get no family.

    Returns:
        The families in ascending order of their values.

    Raises:
        UsageError: `values` is not a 1-d array of integers of 0 or more.

    Examples:
        >>> families = group_by_value(np.array([7, 4, 7, 9], np.int32), excluded=[9])
        >>> families.values.tolist(), families.entries(1).tolist()
        ([4, 7], [0, 2])
    """
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


def gather_points(keys: Keys, entries: NDArray[np.int64], device: torch.device) -> torch.Tensor:
    """Read the keys of entries [n], ascending, onto a device: [n, d] float32.

    Args:
        keys: The keys of the memory.
        entries: [n] entry numbers, ascending.
        device: Device of the result.
    """
    found = np.ascontiguousarray(keys.gather(entries))
    return torch.from_numpy(found).to(device).to(torch.float32)


def gather_families(keys: Keys, members: Sequence[NDArray[np.int64]], device: torch.device) -> torch.Tensor:
    """Read the keys of several families in one pass.

    Args:
        keys: The keys of the memory.
        members: The entries of each family, ascending.
        device: Device of the result.

    Returns:
        [families, n, d] float32, where n is the size of the largest family; smaller families are padded with NaN.
    """
    lengths = np.array([len(entries) for entries in members])
    every = np.concatenate(members)
    order = np.argsort(every, kind="stable")
    points = gather_points(keys, every[order], device)
    widest = int(lengths.max())
    places = np.concatenate([family * widest + np.arange(length) for family, length in enumerate(lengths)])
    padded = torch.full((len(members) * widest, keys.dimension), torch.nan, device=device)
    padded[torch.from_numpy(places[order]).to(device)] = points
    return padded.view(len(members), widest, keys.dimension)
