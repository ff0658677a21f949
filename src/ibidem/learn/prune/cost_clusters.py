"""Clusters of similar translation cost inside groups: step 1 of Algorithm 1 (the paper's section 3.2).

Costs are numbers on a line. After a sort, the costs within epsilon of one cost are a run of consecutive entries, which
makes the greedy clustering and DBSCAN exact in O(n log n) time and O(n) memory.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from ibidem.errors import UsageError
from ibidem.learn.prune.groups import EntryGroups, refine, split_by_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ibidem.learn.prune.pruning import PruneSettings

    Splitter = Callable[..., EntryGroups]

EPSILONS = tuple(10.0 ** (half / 2) for half in range(-4, 11))
"""The values that are tried where no epsilon is given."""

# At the very limit every cluster is reduced to one entry: clusters must be able to lose this share more than the rate.
_MARGIN = 0.05
# A cost is a log-perplexity; the perplexity of a higher one would overflow float32.
_HIGHEST_COST = np.float32(80)
_NOISE = -1
_ROUNDS = 32
_BITS = np.uint64(32)
_BELOW_ONE = 1 - 1e-6


def cluster_costs(
    costs: NDArray[np.float32], groups: EntryGroups, settings: PruneSettings, epsilon: float
) -> EntryGroups:
    """Split groups into clusters of entries with similar cost.

    Args:
        costs: [entries] log-perplexities.
        groups: The groups to split.
        settings: Its `method` and `scale` are used.
        epsilon: Half the width of a cluster, on the scale of the settings.

    Returns:
        Clusters; those of one group are adjacent.
    """
    splitter, scale = SPLITTERS[settings.method](settings), SCALES[settings.scale]
    return refine(groups, costs, lambda own, bounds: splitter(scale(own), bounds, epsilon=epsilon))


def fit_cost_clusters(
    costs: NDArray[np.float32], groups: EntryGroups, settings: PruneSettings
) -> tuple[EntryGroups, float]:
    """Return the clusters of the smallest of EPSILONS from which the rate can be removed, and that epsilon.

    Uses bisection, since a larger epsilon gives fewer clusters. If no epsilon suffices, the largest is used.

    Args:
        costs: [entries] translation costs.
        groups: The groups to divide into clusters.
        settings: The rate, the method and the scale; its epsilon is ignored.

    Returns:
        The clusters, and their epsilon.
    """
    low, high = 0, len(EPSILONS) - 1
    found: dict[int, EntryGroups] = {}
    while low < high:
        middle = (low + high) // 2
        found.clear()
        found = {middle: cluster_costs(costs, groups, settings, EPSILONS[middle])}
        if can_remove(found[middle], len(costs), settings.rate):
            high = middle
        else:
            low = middle + 1
    clusters = found[high] if high in found else cluster_costs(costs, groups, settings, EPSILONS[high])
    return clusters, EPSILONS[high]


def can_remove(groups: EntryGroups, entries: int, rate: float) -> bool:
    """Return whether the rate of entries, and a margin, can be removed while each group keeps one entry.

    Args:
        groups: The groups or clusters of the entries.
        entries: The number of entries.
        rate: The share of entries to remove.
    """
    return len(groups) <= entries * (1 - (1 + _MARGIN) * rate)


@dataclass(frozen=True, eq=False)
class Windows:
    """The costs within epsilon of each cost.

    Attributes:
        order: [m] entries sorted by group, then cost, then number.
        left: [m] the entries within epsilon of the one at position i, and in its group, are at left[i]:right[i].
        right: [m] see `left`.
    """

    order: NDArray[np.int64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.order)


def find_windows(costs: NDArray[np.float32], bounds: NDArray[np.int64], epsilon: float) -> Windows:
    """Sort the costs [m] of each group bounds[i]:bounds[i + 1] and find the window of each cost.

    Two costs are near if |a - b| <= epsilon in float64. scikit-learn compares the squares, which is equivalent.

    Args:
        costs: [m] the costs, group after group.
        bounds: [groups + 1] where each group begins, and m.
        epsilon: The largest difference of near costs.
    """
    groups = np.repeat(np.arange(len(bounds) - 1, dtype=np.uint64) << _BITS, np.diff(bounds))
    keys = groups | _to_sortable(costs)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    sorted_costs = costs[order]
    lowest, highest = -_highest_near(-sorted_costs, epsilon), _highest_near(sorted_costs, epsilon)
    left = np.searchsorted(keys, groups | _to_sortable(lowest), side="left")
    right = np.searchsorted(keys, groups | _to_sortable(highest), side="right")
    return Windows(order, left, right)


def _to_sortable(costs: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Map costs to integers below 2³² in the same order, so that group and cost form one key."""
    bits = (np.asarray(costs, dtype=np.float32) + np.float32(0)).view(np.uint32)  # + 0 makes -0.0 equal 0.0
    flip = np.where(bits >> 31, np.uint32(0xFFFFFFFF), np.uint32(0x80000000))
    return (bits ^ flip).astype(np.uint64)


def _highest_near(costs: NDArray[np.float32], epsilon: float) -> NDArray[np.float32]:
    """Return the highest float32 within epsilon of each cost."""
    wide = costs.astype(np.float64)
    # Near 0 a float32 is finer than the last bit of epsilon: a difference of less than half of that bit is near too.
    edge = (wide + epsilon) + np.spacing(epsilon) / 2
    highest: NDArray[np.float32] = np.minimum(edge, np.finfo(np.float32).max).astype(np.float32)
    # The estimate is wrong by a step or two in either direction: the comparison itself corrects it.
    while (beyond := highest - wide > epsilon).any():
        highest[beyond] = np.nextafter(highest[beyond], np.float32(-np.inf))
    while True:
        following = np.nextafter(highest, np.float32(np.inf))
        within = following - wide <= epsilon
        if not within.any():
            return highest
        highest[within] = following[within]


def cluster_greedily(costs: NDArray[np.float32], bounds: NDArray[np.int64], epsilon: float) -> EntryGroups:
    """Repeatedly form a cluster from the free entry with the most free entries within epsilon, and those entries.

    This is the clustering of Algorithm 1 and of the authors' code. Of entries with equally many, the one with the
    lowest cost is taken (the authors' code takes the earliest).

    A cluster takes all free entries of its window, so the free entries on its two sides are more than 2 epsilon
    apart and independent of each other. Therefore every cluster is a run of sorted costs, and one round can process
    all free runs of all groups. Runs that remain after many rounds (costs spread evenly over hundreds of epsilons)
    are finished one by one with a heap.

    Args:
        costs: [m] costs of the groups bounds[i]:bounds[i + 1].
        bounds: [groups + 1].
        epsilon: Half the width of a cluster.

    Returns:
        Clusters inside the groups, in increasing order of cost.
    """
    windows = find_windows(costs, bounds, epsilon)
    is_start = np.zeros(len(windows), dtype=np.bool_)
    starts = np.flatnonzero(windows.left == np.arange(len(windows)))
    ends = np.append(starts[1:], len(windows))[: len(starts)]
    for _ in range(_ROUNDS):
        if not len(starts):
            break
        low, high = _fullest_windows(windows, starts, ends)
        is_start[low] = True
        starts, ends = np.concatenate([starts, high]), np.concatenate([low, ends])
        free = starts < ends
        starts, ends = starts[free], ends[free]
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        is_start[_cluster_run(windows, start, end)] = True
    return EntryGroups.from_starts(windows.order, is_start)


def _fullest_windows(
    windows: Windows, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the window with the most entries of each run starts[i]:ends[i], clipped to it; the first of equals."""
    lengths = ends - starts
    begins = np.cumsum(lengths) - lengths
    run = np.repeat(np.arange(len(starts)), lengths)
    places = np.arange(len(run)) + np.repeat(starts - begins, lengths)
    counts = np.minimum(windows.right[places], ends[run]) - np.maximum(windows.left[places], starts[run])
    fullest = np.flatnonzero(counts == np.maximum.reduceat(counts, begins)[run])
    first = np.searchsorted(fullest, begins)
    centres = places[fullest[first]]
    return np.maximum(windows.left[centres], starts), np.minimum(windows.right[centres], ends)


def _cluster_run(windows: Windows, start: int, end: int) -> list[int]:
    """Return where the clusters of one run begin, with a heap whose counts are updated only when they are popped.

    Counts never increase, so a popped count that is still valid is the greatest. Each count changes at most a few
    times, since centres are more than epsilon apart: O(n log n).
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


def cluster_with_dbscan(
    costs: NDArray[np.float32], bounds: NDArray[np.int64], epsilon: float, min_samples: int
) -> EntryGroups:
    """Return DBSCAN's clusters inside groups bounds[i]:bounds[i + 1] of costs [m]; each noise point is a cluster.

    Args:
        costs: [m] the costs, group after group.
        bounds: [groups + 1] where each group begins, and m.
        epsilon: The largest difference of near costs.
        min_samples: The neighbours of a core point, itself included.
    """
    return split_by_number(label_dbscan(costs, bounds, epsilon, min_samples), bounds)


def label_dbscan(
    costs: NDArray[np.float32], bounds: NDArray[np.int64], epsilon: float, min_samples: int
) -> NDArray[np.int64]:
    """Return the labels of scikit-learn's DBSCAN (Ester et al. 1996) for each group of costs.

    An entry is a core point if its window holds `min_samples` entries. Core points are connected if no gap between
    adjacent ones is wider than epsilon. A border point takes the lower-numbered of the clusters whose nearest core
    points, on its two sides, are within epsilon.

    Args:
        costs: [m] costs of the groups bounds[i]:bounds[i + 1].
        bounds: [groups + 1].
        epsilon: The radius of a neighbourhood.
        min_samples: Neighbours of a core point, itself included.

    Returns:
        [m] cluster numbers from 0 in each group, -1 for noise.

    Examples:
        >>> costs, bounds = np.array([0.1, 5.0, 0.2], np.float32), np.array([0, 3])
        >>> label_dbscan(costs, bounds, epsilon=1.5, min_samples=2).tolist()
        [0, -1, 0]
    """
    windows = find_windows(costs, bounds, epsilon)
    cores = np.flatnonzero(windows.right - windows.left >= min_samples)
    labels = np.full(len(windows), _NOISE, dtype=np.int64)
    if not len(cores):
        return labels
    clusters = _number_clusters(windows, cores)
    places = np.arange(len(windows))
    # The nearest core point on either side; for a core point, both are the point itself.
    below = np.searchsorted(cores, places, side="right") - 1
    above = np.minimum(np.searchsorted(cores, places, side="left"), len(cores) - 1)
    far = len(cores)
    labelled = np.minimum(
        np.where((below >= 0) & (cores[below] >= windows.left), clusters[below], far),
        np.where((cores[above] >= places) & (cores[above] < windows.right), clusters[above], far),
    )
    labels[windows.order] = np.where(labelled < far, labelled, _NOISE)
    return _restart_in_groups(labels, bounds)


def _number_clusters(windows: Windows, cores: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the cluster of each core point [cores], numbered by the first entry among a cluster's core points."""
    starts = np.ones(len(cores), dtype=np.bool_)
    np.greater(windows.left[cores[1:]], cores[:-1], out=starts[1:])
    first = np.minimum.reduceat(windows.order[cores], np.flatnonzero(starts))
    ranks = np.empty(len(first), dtype=np.int64)
    ranks[np.argsort(first)] = np.arange(len(first))
    places: NDArray[np.int64] = np.cumsum(starts, dtype=np.int64) - 1
    return ranks[places]


def _restart_in_groups(labels: NDArray[np.int64], bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number the clusters of every group from 0; the given numbers increase from group to group."""
    highest = np.maximum.accumulate(np.maximum.reduceat(labels, bounds[:-1]))
    before = np.concatenate([[_NOISE], highest[:-1]]) + 1
    return np.where(labels == _NOISE, _NOISE, labels - np.repeat(before, np.diff(bounds)))


def cluster_with_birch(costs: NDArray[np.float32], bounds: NDArray[np.int64], epsilon: float) -> EntryGroups:
    """Return the subclusters of scikit-learn's Birch(threshold=epsilon, n_clusters=None) inside each group.

    The authors' code uses BIRCH for groups above 10,000 entries. A radius is at most half the range, so a group
    within 2 epsilon is one cluster and needs no tree.

    Args:
        costs: [m] costs of the groups bounds[i]:bounds[i + 1].
        bounds: [groups + 1].
        epsilon: The largest radius of a subcluster.

    Raises:
        UsageError: scikit-learn is missing.
    """
    try:
        from sklearn.cluster import Birch
    except ImportError as error:
        raise UsageError(
            "Clustering costs with birch needs scikit-learn: run `pip install scikit-learn`, or use greedy, "
            "which needs nothing and is exact."
        ) from error
    labels = np.zeros(len(costs), dtype=np.int64)
    starts = bounds[:-1]
    wide = costs.astype(np.float64)
    ranges = np.maximum.reduceat(wide, starts) - np.minimum.reduceat(wide, starts) if len(starts) else wide
    for group in np.flatnonzero(ranges >= 2 * epsilon * _BELOW_ONE).tolist():
        members = slice(bounds[group], bounds[group + 1])
        labels[members] = Birch(threshold=epsilon, n_clusters=None).fit_predict(wide[members, None])
    return split_by_number(labels, bounds)


SPLITTERS: dict[str, Callable[[PruneSettings], Splitter]] = {
    "greedy": lambda _: cluster_greedily,
    "dbscan": lambda settings: partial(cluster_with_dbscan, min_samples=settings.min_samples),
    "birch": lambda _: cluster_with_birch,
}

SCALES: dict[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = {
    "log": lambda costs: costs,
    "perplexity": lambda costs: np.exp(np.minimum(costs, _HIGHEST_COST)),
}
