"""What a clustering found, in figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.learn.cluster.labels import EXCLUDED, NOISE, UNSAMPLED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ibidem.learn.cluster.families import Families

_QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
_CHUNK = 1 << 22


def describe(labels: NDArray[np.int32], families: Families, counts: NDArray[np.int64]) -> dict[str, Any]:
    """Numbers of families and clusters, clusters a family, quantiles of cluster sizes, and shares of all entries.

    labels: [entries]; counts: [families], the clusters of each. Plain numbers, ready for JSON.
    """
    sizes = count_members(labels, int(counts.sum()))
    entries = max(1, len(labels))
    return {
        "entries": len(labels),
        "families": len(families),
        "families_without_cluster": int(np.count_nonzero(counts == 0)),
        "clusters": len(sizes),
        "clusters_per_family": {
            "mean": float(counts.mean()) if len(counts) else 0.0,
            "median": float(np.median(counts)) if len(counts) else 0.0,
            "max": int(counts.max(initial=0)),
        },
        "cluster_sizes": {str(q): float(np.quantile(sizes, q)) for q in _QUANTILES} if len(sizes) else {},
        "noise_share": int(np.count_nonzero(labels == NOISE)) / entries,
        "unsampled_share": int(np.count_nonzero(labels == UNSAMPLED)) / entries,
        "excluded_share": int(np.count_nonzero(labels == EXCLUDED)) / entries,
    }


def count_members(labels: NDArray[np.int32], clusters: int) -> NDArray[np.int64]:
    """The number of entries of each cluster: [clusters]."""
    sizes = np.zeros(clusters, np.int64)
    for start in range(0, len(labels), _CHUNK):
        chunk = labels[start : start + _CHUNK]
        sizes += np.bincount(chunk[chunk >= 0], minlength=clusters)
    return sizes
