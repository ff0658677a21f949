"""The native index read in numpy, by the same rules: slow, for where the library is not here, and its oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from ibidem.native import COARSE_BITS, FINE_BITS, LANES, NOTHING
from ibidem.retrieve.neighbours import LARGEST_SQUARE

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.native import Centroids, Lists, Probing

_NORM_BYTES = 4 * LANES
_HALF_BYTES = 2 * LANES
_FOUR = 4
_MOST = 127
_FARTHEST = 1 << 29
# Lists that are looked into by distance, how many at first, of how many groups, and how much farther than its lists a
# group may be, as in native/ivf_search.cpp.
_SORTED = 32
_FIRST_ROUND = 4
_FIRST_GROUPS = 32
_GROUP_REACH = np.float32(1.3)
_SPARE = 128
_LEAST_REGIONS = 64
_GROUPS_PER_REGION = 3


class PlainIvf:
    """Search as `ibidem.native.ivf.Ivf` does it, one query after another."""

    def __init__(self, centroids: Centroids, lists: Lists) -> None:
        self._coding = centroids.coding
        self._regions, self._region_there = _decode(centroids.region_blocks)
        self._centroids = centroids
        self._lists = lists

    def search(
        self,
        queries: Tensor,
        k: int,
        probing: Probing,
        live: NDArray[np.uint16] | None = None,
        threads: int | None = None,  # noqa: ARG002 - as the library's search has it
    ) -> tuple[Tensor, Tensor]:
        """Distances [q, k] float32 and entries [q, k] int64 of about the nearest keys; inf and -1 where there are none.

        queries: [q, d]; live: a bit for each place, 16 a block, 0 for an entry that is to be passed over.
        """
        plain = queries.detach().to("cpu", torch.float32).numpy()
        distances = np.full((len(plain), k), np.inf, np.float32)
        entries = np.full((len(plain), k), -1, np.int64)
        for row, query in enumerate(plain):
            if not np.square(query, dtype=np.float64).sum() < LARGEST_SQUARE:
                continue
            places = self._candidates(query, probing, probing.pool_for(k), live)
            slots = np.unique(self._lists.slots[places])
            away = query - self._lists.keys[slots].astype(np.float32)
            squares, ids = np.square(away).sum(1), self._lists.entries[slots]
            order = np.lexsort((ids, squares))[:k]
            distances[row, : len(order)], entries[row, : len(order)] = squares[order], ids[order]
        return torch.from_numpy(distances), torch.from_numpy(entries)

    def _candidates(
        self, query: NDArray[np.float32], probing: Probing, capacity: int, live: NDArray[np.uint16] | None
    ) -> NDArray[np.int64]:
        """The places [at most capacity] of the keys nearest by their codes, in the lists that are looked into."""
        mean, scale = self._coding.mean, np.float32(self._coding.scale)
        code = np.rint(np.clip((query - mean) * scale, -_MOST, _MOST)).astype(np.int32)
        pool = _Pool(capacity)
        patience = np.float32(probing.patience)
        regions = np.flatnonzero(self._region_there)
        region_distances = _measure(self._regions[regions], code)
        near = region_distances <= _bound(region_distances, max(_LEAST_REGIONS, probing.groups // _GROUPS_PER_REGION))
        groups, group_distances = _open(self._centroids.group_blocks, regions[near], region_distances[near], code)
        first_groups = _bound(group_distances, min(probing.groups, _FIRST_GROUPS))
        near = group_distances <= first_groups
        numbers, distances = _open(self._centroids.centroid_blocks, groups[near], group_distances[near], code)
        first_lists = _bound(distances, min(probing.probes, _SORTED))
        nearest = np.flatnonzero(distances <= first_lists)
        nearest = nearest[np.lexsort((numbers[nearest], distances[nearest]))]
        begin, end = 0, _FIRST_ROUND
        while begin < len(nearest) and distances[nearest[begin]] <= pool.limit(patience):
            self._look_into(numbers[nearest[begin:end]], distances[nearest[begin:end]], code, probing, pool, live)
            begin, end = end, 2 * end
        last_groups = _within(group_distances, pool.limit(_GROUP_REACH * patience), probing.groups)
        others = (group_distances > first_groups) & (group_distances <= last_groups)
        blocks = self._centroids.centroid_blocks
        more_numbers, more_distances = _open(blocks, groups[others], group_distances[others], code)
        last = _within(np.concatenate([distances, more_distances]), pool.limit(patience), probing.probes)
        rest, more = (distances > first_lists) & (distances <= last), more_distances <= last
        self._look_into(
            np.concatenate([numbers[rest], more_numbers[more]]),
            np.concatenate([distances[rest], more_distances[more]]),
            code,
            probing,
            pool,
            live,
        )
        return pool.places

    def _look_into(
        self,
        numbers: NDArray[np.int64],
        distances: NDArray[np.int64],
        code: NDArray[np.int32],
        probing: Probing,
        pool: _Pool,
        live: NDArray[np.uint16] | None,
    ) -> None:
        """Put the keys of lists, whose centroids are so far away, into the pool: of the blocks that guides name."""
        lists, limit = self._lists, pool.limit(np.float32(probing.block_patience))
        blocks, bases = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for number, distance in zip(numbers.tolist(), distances.tolist(), strict=True):
            guides = lists.guides[slice(*lists.guide_offsets[number : number + 2])]
            means, there = _measure_blocks(guides, np.full(len(guides), distance), code, FINE_BITS)
            near = np.flatnonzero(there & (means <= limit))
            blocks.append(lists.list_offsets[number] + near)
            bases.append(means[near])
        named = np.concatenate(blocks)
        squares, there = _measure_blocks(lists.blocks[named], np.concatenate(bases), code, FINE_BITS)
        if live is not None:
            there &= (live[named, None] >> np.arange(LANES) & 1).astype(bool).reshape(-1)
        pool.add(named, np.where(there, np.maximum(0, squares), _FARTHEST).reshape(-1, LANES))


class _Pool:
    """The nearest places so far: Pool of native/pool.h."""

    def __init__(self, wanted: int) -> None:
        self._wanted, self._most, self._room = wanted, wanted + wanted // 2 + _SPARE // 2, 2 * wanted + _SPARE
        self._worst = _FARTHEST
        self._distances = np.empty(0, np.int64)
        self.places = np.empty(0, np.int64)

    def limit(self, patience: np.float32) -> int:
        """What is farther holds nothing near enough."""
        return min(_FARTHEST, int(patience * np.float32(self._worst)))

    def add(self, blocks: NDArray[np.int64], distances: NDArray[np.int64]) -> None:
        """Take the places of blocks [n], which are so far [n, 16]; where there is no room for more, all are settled."""
        first = 0
        while first < len(blocks):
            near = distances[first:] < self._worst
            full = np.flatnonzero(len(self.places) + np.cumsum(near.sum(1)) + LANES > self._room)
            near = near[: full[0] + 1 if len(full) else None]
            places = LANES * blocks[first : first + len(near), None] + np.arange(LANES)
            self._distances = np.concatenate([self._distances, distances[first : first + len(near)][near]])
            self.places = np.concatenate([self.places, places[near]])
            first += len(near)
            if len(full):
                self._settle()
        self._settle()

    def _settle(self) -> None:
        """Drop places that are farther than enough others, and leave at most `most` of them."""
        if len(self.places) < self._wanted:
            return
        near = np.flatnonzero(self._distances <= _bound(self._distances, self._wanted))
        if len(near) > self._most:
            near = np.sort(np.argsort(self._distances, kind="stable")[: self._wanted])
        self._distances, self.places = self._distances[near], self.places[near]
        self._worst = int(self._distances.max())


def _within(distances: NDArray[np.int64], limit: int, most: int) -> int:
    """A distance that so many reach at most, and hardly one more: the limit, or less."""
    return _bound(distances, most) if (distances <= limit).sum() > most else limit


def _bound(distances: NDArray[np.int64], wanted: int) -> int:
    """A distance that so many reach, and hardly more; where there are fewer, all: bound of native/shortlist.h."""
    low = high = int(distances.min(initial=_FARTHEST)) - 1
    step, count = max(0, low) // 4 + 256, 0
    while high < _FARTHEST - 1 and (count := int((distances <= high).sum())) < wanted:
        low, high, step = high, min(high + step, _FARTHEST - 1), 2 * step
    while count > wanted + wanted // 8 and high - low > 1 + (high >> 7):
        middle = low + (high - low) // 2
        reached = int((distances <= middle).sum())
        low, high, count = (low, middle, reached) if reached >= wanted else (middle, high, count)
    return high


def _decode(blocks: NDArray[np.int8]) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """Codes [16 n, d] of blocks [n, code_block_bytes], and where there is a region at all [16 n]."""
    count, width = blocks.shape
    norms = np.ascontiguousarray(blocks[:, :_NORM_BYTES]).view("<i4")
    lanes = blocks[:, _NORM_BYTES:].reshape(count, -1, LANES, _FOUR).transpose(0, 2, 1, 3)
    return lanes.reshape(count * LANES, (width - _NORM_BYTES) // LANES), (norms != NOTHING).reshape(-1)


def _measure(codes: NDArray[np.int8], code: NDArray[np.int32]) -> NDArray[np.int64]:
    """Squared distances [n] of codes [n, d] to a query's."""
    squares: NDArray[np.int64] = np.square(codes - code).sum(1, dtype=np.int64)
    return squares


def _open(
    blocks: NDArray[np.uint8], numbers: NDArray[np.int64], bases: NDArray[np.int64], code: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places of all points in blocks of these numbers [n], whose bases [n] are so far, and how far these are."""
    distances, there = _measure_blocks(blocks[numbers], bases, code, COARSE_BITS)
    places = (LANES * numbers[:, None] + np.arange(LANES)).reshape(-1)
    return places[there], np.maximum(0, distances[there])


def _measure_blocks(
    blocks: NDArray[np.uint8], bases: NDArray[np.int64], code: NDArray[np.int32], bits: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Squared distances [16 n] of blocks [n] as in native/blocks.h, whose bases [n] are so far from a query's codes.

    Also where there is a point at all [16 n].
    """
    norms, steps = (
        np.ascontiguousarray(blocks[:, first : first + _HALF_BYTES]).view("<f2").astype(np.float64).reshape(-1)
        for first in (0, _HALF_BYTES)
    )
    span = 32 // bits
    shape = (len(blocks), -(-len(code) // span), LANES, _FOUR)
    bytes_ = blocks[:, 2 * _HALF_BYTES :].reshape(shape).transpose(0, 2, 1, 3)
    numbers = np.stack([bytes_ >> shift & ((1 << bits) - 1) for shift in range(0, 8, bits)], axis=3)
    numbers = numbers.reshape(len(norms), shape[1] * span)[:, : len(code)].astype(np.int64)
    there = np.isfinite(norms)
    # float32, but for products, which the library does not round before they are added.
    near = np.where(there, 8 * (len(code) + 12) * norms, 0) + np.repeat(bases, LANES).astype(np.float32)
    products = ((1 << bits) - 1) * int(code.sum()) - 2 * (numbers @ code)
    distances = (steps * products + near.astype(np.float32)).astype(np.float32)
    return np.rint(distances).astype(np.int64), there
