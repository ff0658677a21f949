"""DBSCAN (Ester et al. 1996) with the labels of scikit-learn's, without a stored list of neighbours.

The distance matrix is computed in tiles, one at a time, in three passes: count each point's neighbours (points with
enough of them are core points), join core points within eps of each other into components, and assign the other
points to the lowest-numbered cluster within eps. Clusters are numbered by their first core point. Distances are
symmetric, so the first two passes need half the tiles, and the second pass skips tiles of one component.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ibidem.errors import UsageError
from ibidem.learn.cluster.families import NOISE

# Bytes of a cell of the distance matrix while it is in use: a float32, three masks and an int32.
CELL_BYTES = 12
_CPU_BLOCK_BYTES = 48 << 20
_CUDA_BLOCK_BYTES = 1 << 30
# Unit roundoff of float32.
_UNIT = 2.0**-24
# Each operation may also lose a part below the normal float32 numbers.
_UNDERFLOW = 2.0**-120
# Sums of larger squared lengths might overflow: such points have no neighbours.
_LARGEST_SQUARE = 2.0**118
_LARGEST_LIMIT = 2.0**126
# Components of difference vectors in float64 held at once.
_DIFFERENCES = 2**21


def dbscan(points: Tensor, eps: float, min_samples: int, *, block_bytes: int | None = None) -> Tensor:
    """Cluster points with DBSCAN.

    Args:
        points: [n, d], converted to float32.
        eps: Radius of a neighbourhood; a distance of exactly eps is inside.
        min_samples: Number of points within eps, the point itself included, that make it a core point.
        block_bytes: Approximate memory for a tile of distances. The neighbourhoods of all pairs, one byte each, are
            stored as well if they fit the same number of bytes. None: 48 MiB on a CPU, 1 GiB on a GPU. Three copies
            of the points come on top.

    Returns:
        Labels [n] int64, numbered from 0; NOISE for points of no cluster.

    Raises:
        UsageError: The points are not 2-d, or eps or min_samples is out of its range.

    Examples:
        >>> points = torch.tensor([[0.0], [0.1], [0.2], [9.0], [9.1], [50.0]])
        >>> dbscan(points, eps=0.5, min_samples=2).tolist()
        [0, 0, 0, 1, 1, -1]
    """
    _check(eps, min_samples)
    if points.ndim != 2:
        raise UsageError(f"DBSCAN got points of shape {list(points.shape)}: give them as [points, dimensions].")
    if block_bytes is None:
        block_bytes = _CUDA_BLOCK_BYTES if points.is_cuda else _CPU_BLOCK_BYTES
    side = max(1, math.isqrt(max(0, block_bytes) // CELL_BYTES))
    if len(points) <= side:
        return dbscan_families(points[None], eps, min_samples)[0]
    tiles = _Tiles(RadiusQuery(points[None].to(torch.float32), eps), len(points), points.device, block_bytes)
    core = _count_neighbours(tiles, len(points), side, points.device) >= min_samples
    inner, outer = core.nonzero()[:, 0], (~core).nonzero()[:, 0]
    roots = _join_cores(tiles, inner, len(points), side)
    labels = _number_clusters(roots[None], core[None])[0]
    for rows in torch.split(outer, side) if len(inner) else ():
        for columns in torch.split(inner, side):
            reached = _lowest_label(tiles.select(rows, columns), labels[columns][None, None])[0]
            labels[rows] = torch.minimum(labels[rows], reached)
    return _mark_noise(labels)


def dbscan_families(points: Tensor, eps: float, min_samples: int) -> Tensor:
    """Cluster several small families at once, each by itself.

    All f n² distances are held at once.

    Args:
        points: [f, n, d]; families of fewer than n points are padded with NaN.
        eps: Radius of a neighbourhood.
        min_samples: Number of points within eps that make a core point.

    Returns:
        Labels [f, n] int64, numbered from 0 in each family; NOISE for points of no cluster and for padding.

    Raises:
        UsageError: eps or min_samples is out of its range.
    """
    _check(eps, min_samples)
    families, count = points.shape[:2]
    if count == 0:
        return torch.empty(families, 0, dtype=torch.int64, device=points.device)
    near = RadiusQuery(points.to(torch.float32), eps).tile(slice(None), slice(None))
    core = near.sum(2, dtype=torch.int32) >= min_samples
    near &= core[:, None, :]
    nodes = torch.arange(families * count, device=points.device).view(families, count)
    roots = merge_linked(nodes.flatten(), near & core[:, :, None], nodes, nodes).view(families, count)
    labels = _number_clusters(roots - nodes[:, :1], core)
    return _mark_noise(torch.where(core, labels, _lowest_label(near, labels[:, None])))


class RadiusQuery:
    """Decide exactly which points lie within eps of each other, tile by tile.

    A squared distance |a|² + |b|² - 2 a·b costs one matrix product in float32. The points are centred first, because
    its rounding error grows with their lengths and not with their distance. A bound on that error finds the pairs
    that are too close to eps to decide; those are computed again from the differences a - b in float64. The result
    is exact, and depends neither on the size of the tiles nor on the device.

    Args:
        points: [f, n, d] float32, the points of one or more families. A point that is not finite, or longer than
            10^17, is within eps of no point, not even of itself: pad families with NaN.
        eps: Radius; a distance of exactly eps is inside.
    """

    def __init__(self, points: Tensor, eps: float) -> None:
        self._points = points
        self._every = torch.arange(points.shape[1], device=points.device)
        self._eps_square = eps * eps
        usable = points.square().sum(2, dtype=torch.float64) < _LARGEST_SQUARE
        self._centred = points.masked_fill(~usable[:, :, None], 0.0)
        means = self._centred.sum(1, dtype=torch.float64) / usable.sum(1).clamp_min(1)[:, None]
        self._centred -= means.to(torch.float32)[:, None]
        self._squares = self._centred.square().sum(2, dtype=torch.float64).masked_fill_(~usable, torch.inf)
        # The error bound holds for products in float32 only, not for TF32 or bfloat16.
        self._type = torch.float32 if torch.get_float32_matmul_precision() == "highest" else torch.float64
        self._scores = torch.empty(0, dtype=self._type, device=points.device)
        longest = self._squares.masked_fill(~usable, 0.0).amax(1, keepdim=True).sqrt()
        bound = self._bound_error(self._squares.sqrt(), longest, points.shape[2])
        limit = self._eps_square - self._squares
        # For an unusable point both limits are -inf, below all scores, and its own score is inf, above all limits.
        self._least = (limit - bound).to(self._type)
        self._most = (limit + bound).masked_fill(~usable, -torch.inf).clamp_max(_LARGEST_LIMIT).to(self._type)

    def tile(self, rows: Tensor | slice, columns: Tensor | slice) -> Tensor:
        """Return which of the points `rows` lie within eps of which of `columns`, in each family: [f, r, c] bool.

        Args:
            rows: The numbers of r points.
            columns: The numbers of c points.
        """
        left, right = self._centred[:, rows].to(self._type), self._centred[:, columns].to(self._type)
        squares = self._squares[:, None, columns].to(self._type)
        scores = self._buffer(len(left), left.shape[1], right.shape[1])
        torch.baddbmm(squares, left, right.transpose(1, 2), alpha=-2, out=scores)
        near = scores <= self._most[:, rows, None]
        undecided = flat_nonzero(near & (scores > self._least[:, rows, None]))
        if len(undecided):
            row, column = undecided // right.shape[1], undecided % right.shape[1]
            family, row = row // left.shape[1], row % left.shape[1]
            near.view(-1)[undecided] = self._measure(family, self._every[rows][row], self._every[columns][column])
        return near

    def _buffer(self, *shape: int) -> Tensor:
        """Return a buffer for scores; it is reused, because allocating it for each tile is slow."""
        cells = math.prod(shape)
        if len(self._scores) < cells:
            self._scores = torch.empty(cells, dtype=self._type, device=self._points.device)
        return self._scores[:cells].view(shape)

    def _measure(self, family: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """Decide pairs of points from their differences in float64; all arguments [p], returns [p] bool."""
        step = max(1, _DIFFERENCES // max(1, self._points.shape[2]))
        parts = [
            (self._points[f, a].double() - self._points[f, b].double()).square_().sum(1) <= self._eps_square
            for f, a, b in zip(*(torch.split(part, step) for part in (family, left, right)), strict=True)
        ]
        return torch.cat(parts)

    def _bound_error(self, lengths: Tensor, longest: Tensor, dimension: int) -> Tensor:
        """Bound the error of a rough squared distance from each point to any other: [f, n] float64.

        A product a·b of d terms is off by at most d units of |a| |b|, so 2 a·b by at most d/2 units of (|a| + |b|)²;
        the constant covers centring, squares, sums, and limits rounded to float32. lengths: [f, n]; longest: [f, 1].
        """
        sizes = (lengths + longest).square()
        return _UNIT * ((dimension / 2 + 8) * sizes + 8 * self._eps_square) + dimension * _UNDERFLOW


def flat_nonzero(mask: Tensor) -> Tensor:
    """Return the positions of true cells in the flattened mask: [p] int64.

    Args:
        mask: Booleans of any shape, contiguous.
    """
    if mask.device.type == "cpu":  # numpy is much faster here
        return torch.from_numpy(np.flatnonzero(mask.numpy()))
    return mask.view(-1).nonzero()[:, 0]


def merge_linked(roots: Tensor, links: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Join the connected components of linked nodes, by hooking of roots and pointer jumping.

    One call for each tile of a graph, in any order, joins all components.

    Args:
        roots: [nodes] int64, for each node the lowest known node of its component; a root points at itself.
        links: [f, r, c] bool, the links between the nodes `rows` and `columns`.
        rows: [f, r] int64.
        columns: [f, c] int64.

    Returns:
        The new roots, [nodes] int64.
    """
    beyond = len(roots)
    while True:
        left, right = roots[rows], roots[columns]
        narrow_left, narrow_right = left.to(torch.int32)[:, :, None], right.to(torch.int32)[:, None, :]
        crossing = links & (narrow_left != narrow_right)
        if int(crossing.count_nonzero()) == 0:
            return roots
        for own, other, dim in ((left, narrow_right, 2), (right, narrow_left, 1)):
            lowest = torch.where(crossing, other, beyond).amin(dim)
            roots = roots.scatter_reduce(0, own.flatten(), lowest.flatten().to(torch.int64), "amin")
        roots = _flatten_trees(roots)


def _flatten_trees(roots: Tensor) -> Tensor:
    """Point every node at the root of its tree; on entry each node points at a lower one or at itself."""
    while True:
        above = roots[roots]
        if torch.equal(above, roots):
            return roots
        roots = above


def _check(eps: float, min_samples: int) -> None:
    if not (eps >= 0 and math.isfinite(eps)):
        raise UsageError(f"DBSCAN got eps = {eps}: give a distance of 0 or more.")
    if min_samples < 1:
        raise UsageError(f"DBSCAN got min_samples = {min_samples}: give 1 or more.")


class _Tiles:
    """The tiles of a radius query: stored if all of them fit block_bytes, else computed again on each call."""

    def __init__(self, query: RadiusQuery, count: int, device: torch.device, block_bytes: int) -> None:
        self._query = query
        fits = count * count <= block_bytes
        self._stored = torch.empty(count, count, dtype=torch.bool, device=device) if fits else None

    def compute(self, rows: slice, columns: slice) -> Tensor:
        """Compute the tile [r, c] of two slices of points; it and its transpose are stored if all tiles fit."""
        tile = self._query.tile(rows, columns)[0]
        if self._stored is not None:
            self._stored[rows, columns] = tile
            self._stored[columns, rows] = tile.T
        return tile

    def select(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the tile [1, r, c] of any points, after all slices were computed."""
        if self._stored is not None:
            return self._stored[rows].index_select(1, columns)[None]
        return self._query.tile(rows, columns)


def _count_neighbours(tiles: _Tiles, count: int, side: int, device: torch.device) -> Tensor:
    """Count the points within eps of every point, itself included: [n] int32."""
    degrees = torch.zeros(count, dtype=torch.int32, device=device)
    blocks = [slice(start, min(start + side, count)) for start in range(0, count, side)]
    for number, rows in enumerate(blocks):
        degrees[rows] += tiles.compute(rows, rows).sum(1, dtype=torch.int32)
        for columns in blocks[number + 1 :]:
            tile = tiles.compute(rows, columns)
            degrees[rows] += tile.sum(1, dtype=torch.int32)
            degrees[columns] += tile.sum(0, dtype=torch.int32)
    return degrees


def _join_cores(tiles: _Tiles, inner: Tensor, count: int, side: int) -> Tensor:
    """Join the core points `inner` within eps of each other; returns roots [n]."""
    roots = torch.arange(count, device=inner.device)
    while len(inner):
        rows, inner = inner[:side], inner[side:]
        for columns in (rows, *torch.split(inner, side)):
            known = roots[torch.cat([rows, columns])]
            if bool((known != known[0]).any()):
                roots = merge_linked(roots, tiles.select(rows, columns), rows[None], columns[None])
        # In this order adjacent points mostly share a component already, so that many tiles are skipped.
        inner = inner[roots[inner].argsort(stable=True)]
    return roots


def _number_clusters(roots: Tensor, core: Tensor) -> Tensor:
    """Number clusters by their first core point; roots, core: [f, n]; returns [f, n], n for points of no cluster."""
    count = core.shape[1]
    first = core & (roots == torch.arange(count, device=roots.device))
    numbers = first.cumsum(1) - 1
    return torch.where(core, numbers.gather(1, roots), count)


def _lowest_label(near: Tensor, labels: Tensor) -> Tensor:
    """Find the lowest label within eps; near [f, r, c], labels [f, 1, c]; returns [f, r] int64."""
    narrow = torch.where(near, labels.to(torch.int32), torch.iinfo(torch.int32).max)
    return narrow.amin(2).to(torch.int64)


def _mark_noise(labels: Tensor) -> Tensor:
    """Replace labels that are no cluster's by NOISE."""
    return torch.where(labels < labels.shape[-1], labels, NOISE)
