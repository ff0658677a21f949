"""Keys divided among lists around centroids, and laid out in whole tiles, list after list.

A list that is long beside the others is cut into pieces with one centroid: they are looked into together, by programs
that have about the same to do.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ibidem.retrieve.held import TILE

_ROUNDS = 8
_SAMPLE_PER_LIST = 64
_MOST_SAMPLES = 1 << 20
_KEYS_PER_LIST = 512
_MOST_LISTS = 16_384
_LEAST_SPAN = 8
# A piece is at most this many times as long as lists are on average.
_LONG = 4
# Elements of distances held at once.
_ELEMENTS = 1 << 26
# Sums of whole numbers are the same in any order: components are rounded to steps of 2^-20.
_FIXED = 1 << 20


class Partition(NamedTuple):
    """Where keys lie.

    order: [places] int32, the entry at each place, -1 where there is none, in whole tiles; starts: [pieces + 1] int32,
    the first tile of each piece; centroids: [pieces, d] float32; span: the most tiles of a piece.
    """

    order: Tensor
    starts: Tensor
    centroids: Tensor
    span: int


def default_lists(size: int) -> int:
    """About one list for 512 keys, a power of two."""
    return min(_MOST_LISTS, 1 << max(0, round(size / _KEYS_PER_LIST).bit_length() - 1))


def divide(keys: Tensor, squares: Tensor, lists: int, seed: int, *, whole: bool = False) -> Partition:
    """Divide keys [n, d], with their squared lengths [n] (inf: no key), among so many lists; whole: cut none."""
    entries = torch.isfinite(squares).nonzero()[:, 0]
    generator = torch.Generator().manual_seed(seed)
    lists = min(lists, len(entries))
    wanted = min(len(entries), _MOST_SAMPLES, _SAMPLE_PER_LIST * lists)
    drawn = torch.randperm(len(entries), generator=generator)[:wanted].to(keys.device)
    centroids = cluster(keys[entries[drawn]].float(), lists, generator)
    assigned = assign(keys, entries, centroids)
    return _lay_out(entries, assigned, centroids, whole=whole)


def cluster(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """k-means: centres [count, d] of points [n, d], n >= count, in random order; the same for the same generator."""
    centres = points[:count].clone()
    every = torch.arange(len(points), device=points.device)
    for _ in range(_ROUNDS if len(points) > count else 0):
        others = torch.randint(len(points), (count,), generator=generator).to(points.device)
        centres = mean_of_each(points, assign(points, every, centres), points[others])
    return centres


def mean_of_each(points: Tensor, assigned: Tensor, otherwise: Tensor) -> Tensor:
    """The mean of the points [n, d] assigned [n] to each centre, and otherwise [m, d] where there are none.

    The same on every run: points are summed as whole numbers, whose sums do not depend on the order.
    """
    counts = torch.bincount(assigned, minlength=len(otherwise))[:, None]
    sums = torch.zeros(otherwise.shape, dtype=torch.long, device=points.device)
    sums.index_add_(0, assigned, (points.double() * _FIXED).round().long())
    return torch.where(counts > 0, (sums / counts.clamp_min(1) / _FIXED).float(), otherwise)


def assign(keys: Tensor, entries: Tensor, centres: Tensor) -> Tensor:
    """The nearest centre [n] of the keys of some entries [n]."""
    if len(entries) == 0:
        return entries
    half_squares = centres.square().sum(1) / 2
    parts = torch.split(entries, max(1, _ELEMENTS // len(centres)))
    return torch.cat([torch.addmm(half_squares, keys[own].float(), centres.T, alpha=-1).argmin(1) for own in parts])


def _lay_out(entries: Tensor, assigned: Tensor, centroids: Tensor, *, whole: bool) -> Partition:
    """Put entries [n], each in the list that it is assigned to [n], into whole tiles."""
    device = entries.device
    sizes = torch.bincount(assigned, minlength=len(centroids))
    span = _LEAST_SPAN
    longest = int(sizes.max()) if whole and len(entries) else 0
    while span * TILE < max(longest, _LONG * len(entries) / max(1, len(centroids))):
        span *= 2
    most = span * TILE
    pieces = -(-sizes // most)
    piece_list = torch.repeat_interleave(torch.arange(len(sizes), device=device), pieces)
    first_piece = pieces.cumsum(0) - pieces
    number = torch.arange(len(piece_list), device=device) - first_piece[piece_list]
    tiles = -(-(sizes[piece_list] - number * most).clamp(max=most) // TILE)
    starts = torch.zeros(len(piece_list) + 1, dtype=torch.long, device=device)
    starts[1:] = tiles.cumsum(0)
    by_list = assigned.argsort(stable=True)
    own = assigned[by_list]
    rank = torch.arange(len(own), device=device) - (sizes.cumsum(0) - sizes)[own]
    places = starts[first_piece[own] + rank // most] * TILE + rank % most
    order = torch.full((int(starts[-1]) * TILE,), -1, dtype=torch.int32, device=device)
    order[places] = entries[by_list].int()
    return Partition(order, starts.int(), centroids[piece_list], span)
