"""DBSCAN of costs by sorting: exact, in O(n log n) time and O(n) memory (Ester et al. 1996)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ibidem.learn.prune.parts import EntryGroups, split_by_number
from ibidem.learn.prune.windows import Windows, open_windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NOISE = -1


def connect_densely(
    costs: NDArray[np.float32], bounds: NDArray[np.int64], epsilon: float, min_samples: int
) -> EntryGroups:
    """DBSCAN's clusters inside groups bounds[i]:bounds[i + 1] of costs [m]; every noise point is one of its own."""
    return split_by_number(label_densely(costs, bounds, epsilon, min_samples), bounds)


def label_densely(
    costs: NDArray[np.float32], bounds: NDArray[np.int64], epsilon: float, min_samples: int
) -> NDArray[np.int64]:
    """The labels [m] that scikit-learn's DBSCAN gives each group, -1 for noise.

    On a line a window is a run of sorted costs. So an entry is a core point if its window holds min_samples;
    core points are connected if no gap between neighbouring ones is wider than epsilon; a border point takes
    the lower-numbered of the clusters whose nearest core points, on its two sides, are within epsilon.
    """
    windows = open_windows(costs, bounds, epsilon)
    cores = np.flatnonzero(windows.right - windows.left >= min_samples)
    labels = np.full(len(windows), _NOISE, dtype=np.int64)
    if not len(cores):
        return labels
    clusters = _number_clusters(windows, cores)
    places = np.arange(len(windows))
    # The nearest core point on either side: a core point finds itself on both.
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
    """The cluster of each core point [cores], numbered by the first entry among a cluster's core points."""
    opens = np.ones(len(cores), dtype=np.bool_)
    np.greater(windows.left[cores[1:]], cores[:-1], out=opens[1:])
    first = np.minimum.reduceat(windows.order[cores], np.flatnonzero(opens))
    ranks = np.empty(len(first), dtype=np.int64)
    ranks[np.argsort(first)] = np.arange(len(first))
    places: NDArray[np.int64] = np.cumsum(opens, dtype=np.int64) - 1
    return ranks[places]


def _restart_in_groups(labels: NDArray[np.int64], bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number the clusters of every group from 0; numbers rise from group to group already."""
    highest = np.maximum.accumulate(np.maximum.reduceat(labels, bounds[:-1]))
    before = np.concatenate([[_NOISE], highest[:-1]]) + 1
    return np.where(labels == _NOISE, _NOISE, labels - np.repeat(before, np.diff(bounds)))
