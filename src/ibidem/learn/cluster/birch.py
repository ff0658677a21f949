"""BIRCH (Zhang et al. 1996), the paper's method for memories of 100 million entries and more (section 4.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.errors import UsageError
from ibidem.learn.cluster.families import NOISE

if TYPE_CHECKING:
    from numpy.typing import NDArray

# scikit-learn rejects 0, which is derived if most keys have copies.
_LEAST_THRESHOLD = 1e-150


def derive_threshold(eps: float, min_samples: int) -> float:
    """Derive the largest radius of a BIRCH cluster from DBSCAN's eps.

    It is the radius of the sparsest neighbourhood that is dense to DBSCAN: a key with m - 1 others at the distance
    eps in orthogonal directions has the radius eps (m - 1) / m, with m = min_samples.

    Args:
        eps: Radius of DBSCAN's neighbourhoods.
        min_samples: Number of points that make a core point; below 2 it counts as 2.

    Returns:
        The threshold, in the units of eps.
    """
    count = max(2, min_samples)
    return eps * (count - 1) / count


def birch(points: NDArray[np.floating[Any]], threshold: float, min_samples: int) -> NDArray[np.int64]:
    """Cluster points with scikit-learn's Birch, without its final global step.

    Args:
        points: [n, d].
        threshold: Largest radius of a cluster.
        min_samples: Smaller clusters are noise, as they would be to DBSCAN; otherwise every isolated key would be a
            cluster with a centre.

    Returns:
        Labels [n]: clusters are numbered by their first point; points that are not finite are NOISE.

    Raises:
        UsageError: scikit-learn is not installed.

    Examples:
        >>> birch(np.array([[0.0], [0.1], [9.0], [9.1], [50.0]]), threshold=1.0, min_samples=2).tolist()
        [0, 0, 1, 1, -1]
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
    # Birch computes radii as differences of squares: in float32, or far from the origin, they lose their digits.
    wide = points[usable].astype(np.float64)
    found = Birch(threshold=max(threshold, _LEAST_THRESHOLD), n_clusters=None).fit_predict(wide - wide.mean(0))
    _, firsts, members, sizes = np.unique(found, return_index=True, return_inverse=True, return_counts=True)
    large = sizes >= min_samples
    numbers = np.full(len(firsts), NOISE, np.int64)
    numbers[np.flatnonzero(large)[np.argsort(firsts[large])]] = np.arange(large.sum())
    labels[usable] = numbers[members]
    return labels
