"""BIRCH of costs, which the authors' code uses for groups above 10,000 entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ibidem.errors import UsageError
from ibidem.learn.prune.parts import EntryGroups, split_by_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SURELY = 1 - 1e-6


def grow_trees(costs: NDArray[np.float32], bounds: NDArray[np.int64], epsilon: float) -> EntryGroups:
    """The subclusters of scikit-learn's Birch(threshold=epsilon, n_clusters=None) inside each group of costs [m].

    No radius is greater than half the range, so a group within 2 epsilon is one cluster for certain and needs
    no tree. Raises UsageError where scikit-learn is missing.
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
    for group in np.flatnonzero(ranges >= 2 * epsilon * _SURELY).tolist():
        members = slice(bounds[group], bounds[group + 1])
        labels[members] = Birch(threshold=epsilon, n_clusters=None).fit_predict(wide[members, None])
    return split_by_number(labels, bounds)
