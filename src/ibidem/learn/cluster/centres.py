"""Centroids of clusters, and the distance of every entry from one: for static pivots and spatial pruning."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ibidem.errors import MismatchError
from ibidem.learn.cluster.families import EXCLUDED
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ibidem.retrieve import Keys

# Components of keys held at once, in float32.
_BLOCK = 2**25
# Components of sums held at once, in float64; the keys are read once for each such part of the clusters.
_SUMS = 2**28
# Scores of keys against centres held at once.
_SCORES = 2**23


def centroids(
    keys: Keys,
    labels: NDArray[np.int32],
    device: str | torch.device = "cpu",
    *,
    count: int | None = None,
    progress: Progress = silent,
) -> NDArray[np.float32]:
    """Compute the mean of each cluster's keys.

    The sums are in float64, which is exact for float16 keys, so that the result does not depend on their order. Keys
    that are not finite are left out.

    Args:
        keys: The keys of the memory.
        labels: [entries], the cluster of each entry; negative labels are left out.
        device: Device of the computation.
        count: Number of clusters; None takes the highest label + 1.
        progress: Progress callback.

    Returns:
        [clusters, d] float32; zeros for a cluster without any finite key.

    Raises:
        MismatchError: `labels` has not one label a key.
    """
    _check(keys, labels)
    clusters = int(labels.max(initial=-1)) + 1 if count is None else count
    means = np.zeros((clusters, keys.dimension), np.float32)
    step = max(1, _SUMS // max(1, keys.dimension))
    for first in range(0, clusters, step):
        held = min(step, clusters - first)
        sums = torch.zeros(held, keys.dimension, dtype=torch.float64, device=device)
        sizes = torch.zeros(held, dtype=torch.int64, device=device)
        for start, points in _read(keys, torch.device(device)):
            done = start + len(points)
            own = torch.from_numpy(labels[start:done].astype(np.int64) - first).to(device)
            counted = (own >= 0) & (own < held) & torch.isfinite(points).all(1)
            sums.index_add_(0, own[counted], points[counted].double())
            sizes += torch.bincount(own[counted], minlength=held)
            progress("Averaging clusters", (first + held * done / keys.size) / clusters, done, "entries")
        means[first : first + held] = (sums / sizes.clamp_min(1)[:, None]).float().cpu().numpy()
    return means


def distances_to_centres(
    keys: Keys,
    values: NDArray[np.int32],
    labels: NDArray[np.int32],
    *,
    device: str | torch.device = "cpu",
    progress: Progress = silent,
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Assign every entry to a cluster, and measure its Euclidean distance from the cluster's centroid.

    Noise and unsampled entries are assigned to the nearest centroid of their family. A family without any cluster
    becomes one, with the mean of its keys as centroid and the next free number, in the order of values. The keys are
    read in blocks, in two or three passes.

    Args:
        keys: The keys of the memory.
        values: [entries], the token id of each entry.
        labels: [entries], the label of each entry.
        device: Device of the computation.
        progress: Progress callback.

    Returns:
        The cluster [entries] int32 and the distance [entries] float32 of each entry. Excluded entries stay EXCLUDED,
        at the distance 0; keys that are not finite have an infinite distance.

    Raises:
        MismatchError: `values` or `labels` has not one item a key.
    """
    _check(keys, values)
    _check(keys, labels)
    place = torch.device(device)
    centres = centroids(keys, labels, place, progress=progress)
    clusters = _label_bare_families(values, labels, len(centres))
    if clusters.max(initial=-1) >= len(centres):
        beyond = np.where(clusters >= len(centres), clusters - len(centres), EXCLUDED).astype(np.int32)
        centres = np.concatenate([centres, centroids(keys, beyond, place, progress=progress)])
    ranges = _ranges(values, clusters, len(centres))
    table = torch.from_numpy(centres).to(place)
    distances = np.zeros(keys.size, np.float32)
    for start, points in _read(keys, place):
        rows = slice(start, start + len(points))
        own = clusters[rows]
        for value, places in _split_by_value(values[rows], np.flatnonzero((own < 0) & (own != EXCLUDED))):
            own[places] = _nearest(points, torch.from_numpy(places).to(place), table, ranges.of(value, place))
        held = np.flatnonzero(own != EXCLUDED)
        chosen = torch.from_numpy(own[held].astype(np.int64)).to(place)
        gaps = points[torch.from_numpy(held).to(place)].sub_(table[chosen])
        distances[start + held] = (
            torch.linalg.vector_norm(gaps, dim=1).nan_to_num(torch.inf, posinf=torch.inf).cpu().numpy()
        )
        progress("Measuring clusters", (start + len(points)) / keys.size, start + len(points), "entries")
    return clusters, distances


class _Ranges(NamedTuple):
    """Clusters ordered by value: order[starts[v] : starts[v + 1]] are those of value v."""

    order: NDArray[np.int64]
    starts: NDArray[np.int64]

    def of(self, value: int, device: torch.device) -> Tensor:
        return torch.from_numpy(self.order[self.starts[value] : self.starts[value + 1]]).to(device)


def _ranges(values: NDArray[np.int32], clusters: NDArray[np.int32], count: int) -> _Ranges:
    """Order clusters by value; a cluster without entries belongs to no value."""
    width = int(values.max(initial=-1)) + 1
    owners = np.full(count, width, np.int64)
    members = clusters >= 0
    owners[clusters[members]] = values[members]
    order = np.argsort(owners, kind="stable")
    return _Ranges(order, np.searchsorted(owners[order], np.arange(width + 1)))


def _label_bare_families(values: NDArray[np.int32], labels: NDArray[np.int32], count: int) -> NDArray[np.int32]:
    """Return a copy of the labels in which each family without any cluster is one, numbered from `count` on."""
    width = int(values.max(initial=-1)) + 1
    clustered, present = np.zeros(width, bool), np.zeros(width, bool)
    clustered[values[labels >= 0]] = True
    present[values[labels != EXCLUDED]] = True
    bare = present & ~clustered
    numbers = count - 1 + np.cumsum(bare)
    changed = bare[values] & (labels != EXCLUDED)
    clusters = labels.copy()
    clusters[changed] = numbers[values[changed]]
    return clusters


def _split_by_value(values: NDArray[np.int32], places: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Split places, which index values, by value."""
    if not len(places):
        return
    order = places[np.argsort(values[places], kind="stable")]
    found, firsts = np.unique(values[order], return_index=True)
    yield from zip(found.tolist(), np.split(order, firsts[1:]), strict=True)


def _nearest(points: Tensor, rows: Tensor, table: Tensor, candidates: Tensor) -> NDArray[np.int32]:
    """Find the nearest of the candidate centroids (rows of table) for points[rows]: [rows] int32."""
    centres = table[candidates]
    squares = centres.square().sum(1)
    parts = [
        candidates[torch.addmm(squares, points[some], centres.T, alpha=-2).argmin(1)]
        for some in torch.split(rows, max(1, _SCORES // len(candidates)))
    ]
    return torch.cat(parts).to(torch.int32).cpu().numpy()


def _read(keys: Keys, device: torch.device) -> Iterator[tuple[int, Tensor]]:
    """Read all keys in blocks [rows, d] float32, each with the number of its first entry."""
    start = 0
    for block in keys.blocks(max(1, _BLOCK // max(1, keys.dimension))):
        points = torch.from_numpy(np.array(block)).to(device).to(torch.float32)
        yield start, points
        start += len(points)


def _check(keys: Keys, array: NDArray[np.int32]) -> None:
    if len(array) != keys.size:
        raise MismatchError(f"There are {keys.size} keys, but an array of {len(array)}: give the arrays of one memory.")
