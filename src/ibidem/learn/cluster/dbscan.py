"""DBSCAN (Ester et al. 1996) with the labels of scikit-learn's, but without a list of neighbours.

Three passes over tiles of the distance matrix, of which one is held at a time: count each point's neighbours (those
with enough are core points), join core points that are near to one another, and give the other points to the
lowest-numbered cluster that reaches them. Clusters are numbered by their lowest core point. Distances are symmetric,
so the first two passes need half the tiles, and the second only those whose points are not in one cluster yet.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ibidem.errors import UsageError
from ibidem.learn.cluster.components import merge_linked
from ibidem.learn.cluster.labels import NOISE
from ibidem.learn.cluster.nearness import Nearness

# Bytes that a cell of the distance matrix takes while it is worked on: a float32, three masks, an int32.
CELL_BYTES = 12
_CPU_BLOCK_BYTES = 48 << 20
_CUDA_BLOCK_BYTES = 1 << 30


def dbscan(points: Tensor, eps: float, min_samples: int, *, block_bytes: int | None = None) -> Tensor:
    """Cluster points [n, d] float32; gives labels [n] int64 from 0, and NOISE for points of no cluster.

    A point with min_samples points within eps, itself among them, is a core point. block_bytes: about the memory for
    a tile of distances, and as much again where that holds the answers for all pairs, a byte each (None: 48 MiB on the
    CPU, so up to 7,000 points; 1 GiB on CUDA); beside it there are three copies of the points.
    """
    _check(eps, min_samples)
    if points.ndim != 2:
        raise UsageError(f"DBSCAN got points of shape {list(points.shape)}: give them as [points, dimensions].")
    if block_bytes is None:
        block_bytes = _CUDA_BLOCK_BYTES if points.is_cuda else _CPU_BLOCK_BYTES
    side = max(1, math.isqrt(max(0, block_bytes) // CELL_BYTES))
    if len(points) <= side:
        return dbscan_families(points[None], eps, min_samples)[0]
    tiles = _Tiles(Nearness(points[None].to(torch.float32), eps), len(points), points.device, block_bytes)
    core = _count(tiles, len(points), side, points.device) >= min_samples
    inner, outer = core.nonzero()[:, 0], (~core).nonzero()[:, 0]
    roots = _join(tiles, inner, len(points), side)
    labels = _number(roots[None], core[None])[0]
    for rows in torch.split(outer, side) if len(inner) else ():
        for columns in torch.split(inner, side):
            reached = _lowest(tiles.again(rows, columns), labels[columns][None, None])[0]
            labels[rows] = torch.minimum(labels[rows], reached)
    return _mark_noise(labels)


def dbscan_families(points: Tensor, eps: float, min_samples: int) -> Tensor:
    """Cluster several small families at once, each by itself: points [f, n, d], gives labels [f, n] int64.

    Families of fewer than n points are filled up with NaN, which is labelled NOISE. All f n² distances are held.
    """
    _check(eps, min_samples)
    families, count = points.shape[:2]
    if count == 0:
        return torch.empty(families, 0, dtype=torch.int64, device=points.device)
    near = Nearness(points.to(torch.float32), eps).tile(slice(None), slice(None))
    core = near.sum(2, dtype=torch.int32) >= min_samples
    near &= core[:, None, :]
    nodes = torch.arange(families * count, device=points.device).view(families, count)
    roots = merge_linked(nodes.flatten(), near & core[:, :, None], nodes, nodes).view(families, count)
    labels = _number(roots - nodes[:, :1], core)
    return _mark_noise(torch.where(core, labels, _lowest(near, labels[:, None])))


def _check(eps: float, min_samples: int) -> None:
    if not (eps >= 0 and math.isfinite(eps)):
        raise UsageError(f"DBSCAN got eps = {eps}: give a distance of 0 or more.")
    if min_samples < 1:
        raise UsageError(f"DBSCAN got min_samples = {min_samples}: give 1 or more.")


class _Tiles:
    """Tiles of a nearness, each computed anew when it is wanted again, unless all of them can be held."""

    def __init__(self, near: Nearness, count: int, device: torch.device, block_bytes: int) -> None:
        self._near = near
        held = count * count <= block_bytes
        self._held = torch.empty(count, count, dtype=torch.bool, device=device) if held else None

    def first(self, rows: slice, columns: slice) -> Tensor:
        """The tile [r, c] of two runs of points, and its mirror image are held if all are."""
        tile = self._near.tile(rows, columns)[0]
        if self._held is not None:
            self._held[rows, columns] = tile
            self._held[columns, rows] = tile.T
        return tile

    def again(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The tile [1, r, c] of any points."""
        if self._held is not None:
            return self._held[rows].index_select(1, columns)[None]
        return self._near.tile(rows, columns)


def _count(tiles: _Tiles, count: int, side: int, device: torch.device) -> Tensor:
    """Count the near points of every point, itself among them: [n] int32."""
    degrees = torch.zeros(count, dtype=torch.int32, device=device)
    blocks = [slice(start, min(start + side, count)) for start in range(0, count, side)]
    for number, rows in enumerate(blocks):
        degrees[rows] += tiles.first(rows, rows).sum(1, dtype=torch.int32)
        for columns in blocks[number + 1 :]:
            tile = tiles.first(rows, columns)
            degrees[rows] += tile.sum(1, dtype=torch.int32)
            degrees[columns] += tile.sum(0, dtype=torch.int32)
    return degrees


def _join(tiles: _Tiles, inner: Tensor, count: int, side: int) -> Tensor:
    """Join the core points `inner` that are near to one another; gives roots [n]."""
    roots = torch.arange(count, device=inner.device)
    while len(inner):
        rows, inner = inner[:side], inner[side:]
        for columns in (rows, *torch.split(inner, side)):
            known = roots[torch.cat([rows, columns])]
            if bool((known != known[0]).any()):
                roots = merge_linked(roots, tiles.again(rows, columns), rows[None], columns[None])
        # Neighbours in this order mostly share a cluster already, so that many tiles need no distances.
        inner = inner[roots[inner].argsort(stable=True)]
    return roots


def _number(roots: Tensor, core: Tensor) -> Tensor:
    """Number clusters by their lowest core point; roots, core: [f, n], gives [f, n], n where there is no cluster."""
    count = core.shape[1]
    first = core & (roots == torch.arange(count, device=roots.device))
    numbers = first.cumsum(1) - 1
    return torch.where(core, numbers.gather(1, roots), count)


def _lowest(near: Tensor, labels: Tensor) -> Tensor:
    """Find the lowest label among the near points; near [f, r, c], labels [f, 1, c], gives [f, r] int64."""
    narrow = torch.where(near, labels.to(torch.int32), torch.iinfo(torch.int32).max)
    return narrow.amin(2).to(torch.int64)


def _mark_noise(labels: Tensor) -> Tensor:
    """Put NOISE in place of numbers that are no cluster's."""
    return torch.where(labels < labels.shape[-1], labels, NOISE)
