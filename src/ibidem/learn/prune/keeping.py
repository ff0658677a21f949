"""How many entries of each cluster are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

    from numpy.typing import NDArray

_AUTHORS_LEAST = 2


def count_exactly(sizes: NDArray[np.int64], share: Fraction) -> NDArray[np.int64]:
    """Keep round(share * entries) in all (halves up), in proportion, and at least one of every cluster.

    Clusters too small for one entry at the adjusted share keep one. The others divide what is left in
    proportion to their sizes: with T entries for clusters of together B entries, the adjusted share is T / B,
    and the j-th of them keeps floor(T S_j / B + 1/2) - floor(T S_{j-1} / B + 1/2), S_j the sum of the first j
    sizes. So each keeps its share rounded down or up, and so does every run of them, a whole family for
    instance: rounding favours no size. If there are more clusters than entries to keep, each keeps one, and
    fewer are removed than asked. All in whole numbers, so the total is exact.

    sizes [clusters] -> kept [clusters].
    """
    kept = np.ones_like(sizes)
    wanted = count_wanted(int(sizes.sum()), share)
    if wanted <= len(sizes):
        return kept
    distinct, often = np.unique(sizes, return_counts=True)
    members = distinct * often
    small = 0  # that many of the distinct sizes keep one
    while True:
        left, group_size = wanted - int(often[:small].sum()), int(members[small:].sum())
        fewer = int(np.searchsorted(distinct, -(-group_size // left)))  # size * left < together
        if fewer <= small:
            break
        small = fewer
    large = sizes >= distinct[small]
    # Both factors are at most the number of entries: no overflow below three thousand million.
    ends = (left * np.cumsum(sizes[large]) + group_size // 2) // group_size
    kept[large] = np.diff(ends, prepend=0)
    return kept


def count_floored(sizes: NDArray[np.int64], share: Fraction) -> NDArray[np.int64]:
    """The authors' rule: max(min(2, n), floor(share * n)) of n entries.

    It leaves clusters of one and two alone, and so also the groups that their code passes over, those of at
    most max(2, floor(share * n)). The rate achieved differs from the one asked for. sizes [clusters] -> kept.
    """
    return np.maximum(np.minimum(_AUTHORS_LEAST, sizes), share.numerator * sizes // share.denominator)


COUNTERS: dict[str, Callable[[NDArray[np.int64], Fraction], NDArray[np.int64]]] = {
    "exact": count_exactly,
    "floor": count_floored,
}


def count_wanted(number: int, share: Fraction) -> int:
    """round(share * number), halves up, without floats."""
    return int((2 * share.numerator * number + share.denominator) // (2 * share.denominator))
