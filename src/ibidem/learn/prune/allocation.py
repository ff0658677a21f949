"""Allocation of the entries to keep: how many each cluster keeps at a pruning rate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.learn.limits import check_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from fractions import Fraction

    from numpy.typing import NDArray

ROWS_PER_BLOCK = 1 << 18
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
    distinct, often = count_distinct(sizes[rows] for rows in row_slices(len(sizes)))
    members = distinct * often
    small = 0  # how many of the distinct sizes keep one entry
    while True:
        left, group_size = wanted - int(often[:small].sum()), int(members[small:].sum())
        fewer = int(np.searchsorted(distinct, -(-group_size // left)))  # size * left < group_size
        if fewer <= small:
            break
        small = fewer
    # Both factors are at most the number of entries.
    check_count("entries", math.isqrt(left * group_size), _LARGEST_FACTOR, "prune smaller memories")
    summed = last = 0
    for rows in row_slices(len(sizes)):
        large = np.flatnonzero(sizes[rows] >= distinct[small]) + rows.start
        if len(large):
            sums = np.cumsum(sizes[large]) + summed
            ends = (left * sums + group_size // 2) // group_size
            kept[large] = np.diff(ends, prepend=last)
            summed, last = int(sums[-1]), int(ends[-1])
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


def count_distinct(blocks: Iterable[NDArray[np.integer[Any]]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the distinct numbers of an array that is given in blocks.

    Args:
        blocks: The array, in blocks.

    Returns:
        The distinct numbers in increasing order, and how often each occurs.
    """
    distinct = counts = np.empty(0, np.int64)
    for block in blocks:
        own, often = np.unique(block, return_counts=True)
        distinct, inverse = np.unique(np.concatenate([distinct, own.astype(np.int64)]), return_inverse=True)
        summed = np.zeros(len(distinct), np.int64)
        np.add.at(summed, inverse, np.concatenate([counts, often]))
        counts = summed
    return distinct, counts


def row_slices(size: int) -> Iterator[slice]:
    """Iterate over the slices of an array that is processed in blocks.

    Args:
        size: The length of the array.
    """
    for start in range(0, size, ROWS_PER_BLOCK):
        yield slice(start, min(size, start + ROWS_PER_BLOCK))


ALLOCATIONS: dict[str, Callable[[NDArray[np.int64], Fraction], NDArray[np.int64]]] = {
    "exact": allocate_exactly,
    "floor": allocate_floored,
}
