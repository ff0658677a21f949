"""Greedy cover of costs, the clustering of Algorithm 1 and of the authors' code."""

from __future__ import annotations

from bisect import bisect_right
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from ibidem.learn.prune.parts import EntryGroups
from ibidem.learn.prune.windows import Windows, open_windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROUNDS = 32


def cover_greedily(costs: NDArray[np.float32], bounds: NDArray[np.int64], epsilon: float) -> EntryGroups:
    """Again and again make a cluster of the free entry with most free entries within epsilon, and of these.

    costs [m] of groups bounds[i]:bounds[i + 1] -> clusters inside the groups, numbered by rising cost. Where
    several entries have as many, the one of lowest cost is taken (the authors' code takes the earliest).

    A cluster takes all that is free in its window, so what stays free on its two sides is more than 2 epsilon
    apart: the sides no longer touch each other, every cluster is a run of sorted costs, and all free runs of
    all groups can be served in the same round. Runs that many rounds have not used up (costs evenly spread
    over hundreds of epsilons) are finished one by one with a heap.
    """
    windows = open_windows(costs, bounds, epsilon)
    opens = np.zeros(len(windows), dtype=np.bool_)
    starts = np.flatnonzero(windows.left == np.arange(len(windows)))
    ends = np.append(starts[1:], len(windows))[: len(starts)]
    for _ in range(_ROUNDS):
        if not len(starts):
            break
        low, high = _fullest_windows(windows, starts, ends)
        opens[low] = True
        starts, ends = np.concatenate([starts, high]), np.concatenate([low, ends])
        free = starts < ends
        starts, ends = starts[free], ends[free]
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        opens[_cover_run(windows, start, end)] = True
    return EntryGroups.opened(windows.order, opens)


def _fullest_windows(
    windows: Windows, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The window with most entries of each run starts[i]:ends[i], cut to that run; the first of equals."""
    lengths = ends - starts
    begins = np.cumsum(lengths) - lengths
    run = np.repeat(np.arange(len(starts)), lengths)
    places = np.arange(len(run)) + np.repeat(starts - begins, lengths)
    counts = np.minimum(windows.right[places], ends[run]) - np.maximum(windows.left[places], starts[run])
    fullest = np.flatnonzero(counts == np.maximum.reduceat(counts, begins)[run])
    first = np.searchsorted(fullest, begins)
    centres = places[fullest[first]]
    return np.maximum(windows.left[centres], starts), np.minimum(windows.right[centres], ends)


def _cover_run(windows: Windows, start: int, end: int) -> list[int]:
    """Where the clusters of one run begin, by a heap of counts that are renewed only when they come up.

    Counts never grow, so a count that comes up and still holds is the greatest. Each entry's count changes at
    most a few times, since centres are more than epsilon apart: O(n log n).
    """
    left, right = windows.left[start:end].tolist(), windows.right[start:end].tolist()
    heap = [(max(a, start) - min(b, end), place) for place, (a, b) in enumerate(zip(left, right, strict=True), start)]
    heapify(heap)
    lows: list[int] = []
    highs: list[int] = []
    while heap:
        count, place = heappop(heap)
        after = bisect_right(lows, place)
        if after and highs[after - 1] > place:
            continue
        low = max(left[place - start], highs[after - 1] if after else start)
        high = min(right[place - start], lows[after] if after < len(lows) else end)
        if low - high == count:
            lows.insert(after, low)
            highs.insert(after, high)
        else:
            heappush(heap, (low - high, place))
    return lows
