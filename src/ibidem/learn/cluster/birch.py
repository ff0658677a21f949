"""BIRCH (Zhang et al. 1996), the paper's method for memories of 100 million entries and more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ibidem.errors import UsageError
from ibidem.learn.cluster.labels import NOISE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ibidem.retrieve.keys import Floats


def derive_threshold(eps: float, min_samples: int) -> float:
    """The largest radius of a cluster, on eps's scale: that of the sparsest neighbourhood that is dense to DBSCAN.

    A key with min_samples - 1 others at a distance of eps, in directions at right angles, has the radius
    eps (min_samples - 1) / min_samples. On two memories this left about as many entries noise as DBSCAN did.
    """
    count = max(2, min_samples)
    return eps * (count - 1) / count


def birch(points: Floats, threshold: float, min_samples: int) -> NDArray[np.int64]:
    """Cluster points [n, d] with scikit-learn's Birch, without its last, global step; gives labels [n].

    Clusters are numbered by their lowest point; those of fewer than min_samples points are NOISE, as they would be to
    DBSCAN, since otherwise every lonely key would be a cluster with a centre. So are points that are not finite.
    Raises UsageError where scikit-learn is missing.
    """
    try:
        from sklearn.cluster import Birch  # takes a second to import
    except ImportError as error:
        raise UsageError(
            "Clustering keys with birch needs scikit-learn: run `pip install scikit-learn`, or use dbscan."
        ) from error
    labels = np.full(len(points), NOISE, np.int64)
    usable = np.flatnonzero(np.isfinite(points).all(1))
    if len(usable) == 0:
        return labels
    # Its radius is a difference of squares: float64 and centred, or digits are lost.
    wide = points[usable].astype(np.float64)
    # It refuses 0, which is derived where most keys have copies.
    found = Birch(threshold=max(threshold, 1e-150), n_clusters=None).fit_predict(wide - wide.mean(0))
    _, firsts, members, sizes = np.unique(found, return_index=True, return_inverse=True, return_counts=True)
    large = sizes >= min_samples
    numbers = np.full(len(firsts), NOISE, np.int64)
    numbers[np.flatnonzero(large)[np.argsort(firsts[large])]] = np.arange(large.sum())
    labels[usable] = numbers[members]
    return labels
