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

from ibidem.native.ivf import LANES, Centroids, Coding, Ivf, pack_centroids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor

# Groups of centroids that a key is compared with when it is assigned to a list.
ASSIGN_GROUPS = 20
# Centroids in a group and groups in a region on average: these are blocks of sixteen, and where nearly all are full,
# some end up far from their own.
PER_GROUP = 13

# One component in so many is clipped by its code.
_CLIPPED = 2000
_CODING_KEYS = 1 << 16
_KEYS_PER_CELL = 256
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


def train_centroids(sample: NDArray[np.float32], lists: int, seed: int) -> Centroids:
    """Centroids of `lists` lists for keys like the sample [n, d], of which there are at least as many."""
    generator = torch.Generator().manual_seed(seed)
    coding = fit_coding(sample)
    points = torch.from_numpy(sample)
    centres = _cluster_in_cells(points, lists, generator)
    groups = cluster(centres, -(-lists // PER_GROUP), _GROUP_ROUNDS, generator)
    regions = cluster(groups, -(-len(groups) // PER_GROUP), _GROUP_ROUNDS, generator)
    group_places = torch.from_numpy(arrange(groups, regions))
    arranged = torch.from_numpy(arrange(centres, groups))
    group_of = arranged // LANES
    places = LANES * group_places[group_of] + arranged % LANES
    number_of_place = torch.zeros(LANES**2 * len(regions), dtype=torch.int64)
    number_of_place[places] = torch.arange(lists)

    def packed() -> Centroids:
        points = (each.numpy() for each in (regions, groups, group_places, centres, places))
        return pack_centroids(coding, *points)

    for _ in range(_SMOOTHING_ROUNDS):
        near = Ivf(packed()).assign(sample, ASSIGN_GROUPS)
        centres = _means(points, number_of_place[torch.from_numpy(near).long()], centres)
        groups = _means(centres, group_of, groups)
        regions = _means(groups, group_places // LANES, regions)
    return packed()


def fit_coding(sample: NDArray[np.float32]) -> Coding:
    """Codes that span nearly all components of the sample [n, d]."""
    some = sample[:: max(1, len(sample) // _CODING_KEYS)]
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
    rows = max(1, _ELEMENTS // len(centres))
    return torch.cat(
        [torch.addmm(half_squares, part, centres.T, alpha=-1).argmin(1) for part in torch.split(points, rows)]
    )


def _means(points: Tensor, assigned: Tensor, otherwise: Tensor) -> Tensor:
    """The mean of the points assigned to each centre [count, d], and `otherwise` where there are none."""
    counts = torch.bincount(assigned, minlength=len(otherwise))[:, None]
    sums = torch.zeros_like(otherwise).index_add_(0, assigned, points)
    return torch.where(counts > 0, sums / counts.clamp_min(1), otherwise)


def _cluster_in_cells(points: Tensor, lists: int, generator: torch.Generator) -> Tensor:
    """Centres [lists, d]: each cell has as many as its share of the points."""
    cells = max(1, round(math.sqrt(lists)))
    some = points[torch.randperm(len(points), generator=generator)[: _KEYS_PER_CELL * cells]]
    cell_of = nearest(points, cluster(some, cells, _CELL_ROUNDS, generator))
    counts = torch.bincount(cell_of, minlength=cells)
    order = torch.argsort(cell_of, stable=True)
    members = torch.split(order, counts.tolist())
    # Products this small are done before a second thread has woken up.
    with limit_threads(1):
        parts = [
            cluster(points[own], share, _INNER_ROUNDS, generator)
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
    rows = max(1, _ELEMENTS // len(groups))
    found = [
        torch.addmm(half_squares, part, groups.T, alpha=-1).topk(near, largest=False)
        for part in torch.split(points, rows)
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
