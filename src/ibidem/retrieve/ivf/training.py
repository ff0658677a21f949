"""Centroids for an inverted file: k-means in two levels, then rounds of it with approximate assignment.

Plain k-means compares every key with every centroid. Here keys are first divided among about √lists cells, and k-means
inside a cell makes its share of the centroids; then the edges between cells are smoothed by rounds in which a key is
compared, by their codes, with the centroids of the nearest groups only.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

from ibidem.native import LANES, Centroids, Coding, Ivf, pack_centroids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.retrieve.keys import Floats

# Groups of centroids that a key is compared with when it is assigned to a list.
ASSIGN_GROUPS = 20
# Centroids in a group and groups in a region on average: these are blocks of sixteen, and where nearly all are full,
# some end up far from their own.
PER_GROUP = 13

# One component in so many is clipped by its code.
_CLIPPED = 2000
_CODING_KEYS = 1 << 16
_KEYS_PER_CELL = 256
_LARGE_CELL = 4096
_CELL_ROUNDS = 8
_INNER_ROUNDS = 6
_SMOOTHING_ROUNDS = 4
_GROUP_ROUNDS = 8
# Groups that a centroid may ask for room.
_NEAR_GROUPS = 8
# Elements of distances held at once.
_ELEMENTS = 1 << 23


@contextmanager
def limit_threads(threads: int | None) -> Iterator[None]:
    """Let torch, and the native library with it, use this many threads inside the block (given None: as before)."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if threads is None else threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Tree:
    """Centroids in groups and groups in regions, which still move with the keys around them.

    centres: [lists, d]; groups, regions: the means of what is in each.
    """

    def __init__(self, coding: Coding, centres: Tensor, generator: torch.Generator) -> None:
        self._coding = coding
        self._centres = centres
        self._groups = cluster(centres, -(-len(centres) // PER_GROUP), _GROUP_ROUNDS, generator)
        self._regions = cluster(self._groups, -(-len(self._groups) // PER_GROUP), _GROUP_ROUNDS, generator)
        arranged = torch.from_numpy(arrange(centres, self._groups))
        self._group_of = arranged // LANES
        self._group_places = torch.from_numpy(arrange(self._groups, self._regions))
        self._places = LANES * self._group_places[self._group_of] + arranged % LANES
        self._number_of_place = torch.zeros(LANES**2 * len(self._regions), dtype=torch.int64)
        self._number_of_place[self._places] = torch.arange(len(centres))

    def packed(self) -> Centroids:
        """The centroids as a search takes them."""
        points = (self._regions, self._groups, self._group_places, self._centres, self._places)
        return pack_centroids(self._coding, *(each.numpy() for each in points))

    def smooth(self, points: Tensor) -> None:
        """Move every centroid to the mean of the points [n, d] that are assigned to its list."""
        ivf = Ivf(self.packed())
        near = [ivf.assign(part.float().numpy(), ASSIGN_GROUPS) for part in _parts(points, points.shape[1])]
        numbers = self._number_of_place[torch.from_numpy(np.concatenate(near)).long()]
        self._centres = _means(points, numbers, self._centres)
        self._groups = _means(self._centres, self._group_of, self._groups)
        self._regions = _means(self._groups, self._group_places // LANES, self._regions)


def train_centroids(sample: Floats, lists: int, seed: int) -> Centroids:
    """Centroids of `lists` lists for keys like the sample [n, d], of which there are at least as many."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.from_numpy(sample)
    tree = Tree(fit_coding(sample), _cluster_in_cells(points, lists, generator), generator)
    for _ in range(_SMOOTHING_ROUNDS):
        tree.smooth(points)
    return tree.packed()


def fit_coding(sample: Floats) -> Coding:
    """Codes that span nearly all components of the sample [n, d]."""
    some = sample[:: max(1, len(sample) // _CODING_KEYS)].astype(np.float32)
    mean = some.mean(axis=0, dtype=np.float64).astype(np.float32)
    away = np.abs(some - mean).reshape(-1)
    last = max(0, away.size - 1 - away.size // _CLIPPED)
    span = float(np.partition(away, last)[last]) or float(away.max()) or 1.0
    return Coding(mean, 127.0 / span)


def cluster(points: Tensor, count: int, rounds: int, generator: torch.Generator) -> Tensor:
    """k-means: centres [count, d] of points [n, d], n >= count."""
    centres = points[torch.randperm(len(points), generator=generator)[:count]].clone()
    for _ in range(rounds):
        assigned = nearest(points, centres)
        centres = _means(points, assigned, points[torch.randint(len(points), (count,), generator=generator)])
    return centres


def nearest(points: Tensor, centres: Tensor) -> Tensor:
    """The nearest centre [n] of each point [n, d]."""
    half_squares = centres.square().sum(1) / 2
    parts = _parts(points, len(centres))
    return torch.cat([torch.addmm(half_squares, part.float(), centres.T, alpha=-1).argmin(1) for part in parts])


def _means(points: Tensor, assigned: Tensor, otherwise: Tensor) -> Tensor:
    """The mean of the points assigned to each centre [count, d], and `otherwise` where there are none."""
    sums, width = torch.zeros_like(otherwise), points.shape[1]
    for part, own in zip(_parts(points, width), _parts(assigned, width), strict=True):
        sums.index_add_(0, own, part.float())
    counts = torch.bincount(assigned, minlength=len(otherwise))[:, None]
    return torch.where(counts > 0, sums / counts.clamp_min(1), otherwise)


def _parts(rows: Tensor, width: int) -> tuple[Tensor, ...]:
    """The rows in parts, so that little is held at once of something that takes `width` numbers a row."""
    return torch.split(rows, max(1, _ELEMENTS // width))


def _cluster_in_cells(points: Tensor, lists: int, generator: torch.Generator) -> Tensor:
    """Centres [lists, d]: each cell has as many as its share of the points."""
    cells = max(1, round(math.sqrt(lists)))
    some = points[torch.randperm(len(points), generator=generator)[: _KEYS_PER_CELL * cells]].float()
    cell_of = nearest(points, cluster(some, cells, _CELL_ROUNDS, generator))
    counts = torch.bincount(cell_of, minlength=cells)
    order = torch.argsort(cell_of, stable=True)
    members = torch.split(order, counts.tolist())
    # Products of small cells are done before a second thread has woken up.
    with limit_threads(1 if len(points) < _LARGE_CELL * cells else None):
        parts = [
            cluster(points[own].float(), share, _INNER_ROUNDS, generator)
            for own, share in zip(members, divide(counts.tolist(), lists), strict=True)
            if share
        ]
    return torch.cat(parts)


def divide(counts: list[int], total: int) -> list[int]:
    """Shares that sum up to total, in proportion to the counts and none above its own; sum of counts >= total."""
    exact = np.array(counts) * (total / sum(counts))
    shares = np.floor(exact).astype(np.int64)
    # What rounding left over goes to those who lost most by it; a share below its count always has room for one.
    order = np.argsort(shares - exact, kind="stable")
    open_ = order[shares[order] < np.array(counts)[order]]
    shares[open_[: total - int(shares.sum())]] += 1
    return [int(share) for share in shares]


def arrange(points: Tensor, groups: Tensor) -> NDArray[np.int64]:
    """The place [n] of each point: 16 times the number of a near group [count, d], and its rank in there.

    A group takes sixteen points, those nearest to it first; whom it cannot take asks the group that is next by
    distance, and the last ones any group with room. Needs 16 x count >= n.
    """
    near = min(_NEAR_GROUPS, len(groups))
    half_squares = groups.square().sum(1) / 2
    found = [
        torch.addmm(half_squares, part, groups.T, alpha=-1).topk(near, largest=False)
        for part in _parts(points, len(groups))
    ]
    asked, far = torch.cat([each.indices for each in found]).numpy(), torch.cat([each.values for each in found])
    # The square of the point itself, which is the same for all its groups, decides among the points of one.
    distances = (far + points.square().sum(1, keepdim=True) / 2).numpy()
    places, taken = np.full(len(points), -1, np.int64), np.zeros(len(groups), np.int64)
    for choice in range(near):
        open_ = np.flatnonzero(places < 0)
        open_ = open_[np.argsort(distances[open_, choice], kind="stable")]
        wish = asked[open_, choice]
        rank = taken[wish] + ranks(wish, np.bincount(wish, minlength=len(groups)))
        in_ = rank < LANES
        places[open_[in_]] = LANES * wish[in_] + rank[in_]
        taken = np.minimum(LANES, taken + np.bincount(wish, minlength=len(groups)))
    free = np.setdiff1d(np.arange(LANES * len(groups)), places)
    open_ = np.flatnonzero(places < 0)
    places[open_] = free[: len(open_)]
    return places


def ranks(bins: NDArray[np.integer], sizes: NDArray[np.integer]) -> NDArray[np.int64]:
    """How many items [n] of the same bin come before each."""
    order = np.argsort(bins, kind="stable")
    begins = np.cumsum(sizes) - sizes
    found = np.empty(len(bins), np.int64)
    found[order] = np.arange(len(bins)) - begins[bins[order]]
    return found
