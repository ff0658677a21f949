"""Allocation of the entries to keep: how many each cluster keeps at a pruning rate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ibidem.learn.limits import check_count

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

    from numpy.typing import NDArray

_AUTHORS_MINIMUM = 2
# The product of two numbers of entries must fit into int64.
_LARGEST_FACTOR = math.isqrt((1 << 63) - (1 << 33))


def allocate_exactly(sizes: NDArray[np.int64], share: Fraction) -> NDArray[np.int64]:
    """Keep round(share * entries) in total (halves up), in proportion to sizes, and at least one of every cluster.

    Clusters that are too small for one entry at the adjusted share keep one. The others divide the remainder in
    proportion to their sizes: with T entries to keep for clusters of B entries in total, the adjusted share is T / B,
    and the j-th cluster keeps floor(T S_j / B + 1/2) - floor(T S_{j-1} / B + 1/2), where S_j is the sum of the first j
    sizes. Each cluster, and each run of clusters such as a family, thus keeps its share rounded down or up: rounding
    favours no size. With more clusters than entries to keep, each cluster keeps one, and the rate is not reached.

    Args:
        sizes: [clusters] entries of each cluster.
        share: The share of entries to keep.

    Returns:
        [clusters] entries to keep of each cluster.
    """
    kept = np.ones_like(sizes)
    wanted = round_share(int(sizes.sum()), share)
    if wanted <= len(sizes):
        return kept
    distinct, often = np.unique(sizes, return_counts=True)
    members = distinct * often
    small = 0  # how many of the distinct sizes keep one entry
    while True:
        left, group_size = wanted - int(often[:small].sum()), int(members[small:].sum())
        fewer = int(np.searchsorted(distinct, -(-group_size // left)))  # size * left < group_size
        if fewer <= small:
            break
        small = fewer
    large = sizes >= distinct[small]
    # Both factors are at most the number of entries.
    check_count("entries", math.isqrt(left * group_size), _LARGEST_FACTOR, "prune smaller memories")
    ends = (left * np.cumsum(sizes[large]) + group_size // 2) // group_size
    kept[large] = np.diff(ends, prepend=0)
    return kept


def allocate_floored(sizes: NDArray[np.int64], share: Fraction) -> NDArray[np.int64]:
    """Keep max(min(2, n), floor(share * n)) of the n entries of each cluster, as the authors' code does.

    Clusters of one and two entries stay whole, and so do the groups that the authors' code skips, those of at most
    max(2, floor(share * n)) entries. The achieved rate differs from the requested one.

    Args:
        sizes: [clusters] entries of each cluster.
        share: The share of entries to keep.

    Returns:
        [clusters] entries to keep of each cluster.
    """
    return np.maximum(np.minimum(_AUTHORS_MINIMUM, sizes), share.numerator * sizes // share.denominator)


def round_share(number: int, share: Fraction) -> int:
    """Return round(share * number), halves up, in integer arithmetic.

    Args:
        number: A number of entries, at least 0.
        share: The share of them, from 0 to 1.
    """
    return int((2 * share.numerator * number + share.denominator) // (2 * share.denominator))


ALLOCATIONS: dict[str, Callable[[NDArray[np.int64], Fraction], NDArray[np.int64]]] = {
    "exact": allocate_exactly,
    "floor": allocate_floored,
}
