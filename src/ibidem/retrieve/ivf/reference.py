"""The search of the native index in numpy: the oracle of the native library, and its slow replacement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from ibidem.native import COARSE_BITS, EMPTY_NORM, FINE_BITS, LANES
from ibidem.retrieve.index import LARGEST_SQUARE

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.native import Centroids, Lists, SearchLimits, StoredKeys

_NORM_BYTES = 4 * LANES
_HALF_BYTES = 2 * LANES
_FOUR = 4
_MOST = 127
_FARTHEST = 1 << 29
# As in native/index/search.cpp: lists searched in the order of their distance, lists of the first round, blocks scanned
# before there is a candidate, groups opened before the first lists, and the prune ratio of groups relative to that of
# lists.
_SORTED = 32
_FIRST_ROUND = 4
_FIRST_BLOCKS = 12
_FIRST_GROUPS = 32
_GROUP_RATIO = np.float32(1.3)
_SPARE = 128
_LEAST_REGIONS = 64
_GROUPS_PER_REGION = 3


class ReferenceIvf:
    """Search like `ibidem.native.Ivf`, one query after another.

    Args:
        centroids: the arrays of the centroids.
        lists: the arrays of the lists.
        keys: the keys of the entries in the lists.
    """

    def __init__(self, centroids: Centroids, lists: Lists, keys: StoredKeys) -> None:
        self._coding = centroids.coding
        self._regions, self._region_exists = decode_regions(centroids.region_blocks)
        self._centroids = centroids
        self._lists = lists
        self._keys = keys

    def search(
        self,
        queries: Tensor,
        k: int,
        probing: SearchLimits,
        live: NDArray[np.uint16] | None = None,
        threads: int | None = None,  # noqa: ARG002 - a parameter of the native search
    ) -> tuple[Tensor, Tensor]:
        """Find about the k nearest keys of each query.

        Args:
            queries: [q, d].
            k: neighbours for each query.
            probing: the search parameters.
            live: [blocks] uint16, one bit for each place, 0 for an entry that must not be found; None for all.
            threads: ignored.

        Returns:
            Distances [q, k] float32 and entries [q, k] int64, inf and -1 where there are fewer neighbours.
        """
        plain = queries.detach().to("cpu", torch.float32).numpy()
        distances = np.full((len(plain), k), np.inf, np.float32)
        entries = np.full((len(plain), k), -1, np.int64)
        for row, query in enumerate(plain):
            if not np.square(query, dtype=np.float64).sum() < LARGEST_SQUARE:
                continue
            places = self._candidates(query, probing, probing.rerank_for(k), live)
            ids = np.unique(self._lists.entries[places])
            squares = np.square(query - self._keys.gather(ids)).sum(1)
            order = np.lexsort((ids, squares))[:k]
            distances[row, : len(order)], entries[row, : len(order)] = squares[order], ids[order]
        return torch.from_numpy(distances), torch.from_numpy(entries)

    def _candidates(
        self, query: NDArray[np.float32], probing: SearchLimits, capacity: int, live: NDArray[np.uint16] | None
    ) -> NDArray[np.int64]:
        """Return the places [at most capacity] of the keys nearest by their codes, in the lists that are searched."""
        mean, scale = self._coding.mean, np.float32(self._coding.scale)
        code = np.rint(np.clip((query - mean) * scale, -_MOST, _MOST)).astype(np.int32)
        candidates = _Candidates(capacity)
        prune_ratio = np.float32(probing.prune_ratio)
        regions = np.flatnonzero(self._region_exists)
        region_distances = _measure(self._regions[regions], code)
        near = region_distances <= _bound(region_distances, max(_LEAST_REGIONS, probing.groups // _GROUPS_PER_REGION))
        groups, group_distances = _open(self._centroids.group_blocks, regions[near], region_distances[near], code)
        first_groups = _bound(group_distances, min(probing.groups, _FIRST_GROUPS))
        near = group_distances <= first_groups
        numbers, distances = _open(self._centroids.centroid_blocks, groups[near], group_distances[near], code)
        first_lists = _bound(distances, min(probing.nprobe, _SORTED))
        nearest = np.flatnonzero(distances <= first_lists)
        nearest = nearest[np.lexsort((numbers[nearest], distances[nearest]))]
        begin, end = 0, _FIRST_ROUND
        while begin < len(nearest) and distances[nearest[begin]] <= candidates.limit(prune_ratio):
            self._search_lists(
                numbers[nearest[begin:end]], distances[nearest[begin:end]], code, probing, candidates, live
            )
            begin, end = end, 2 * end
        last_groups = _within(group_distances, candidates.limit(_GROUP_RATIO * prune_ratio), probing.groups)
        others = (group_distances > first_groups) & (group_distances <= last_groups)
        blocks = self._centroids.centroid_blocks
        more_numbers, more_distances = _open(blocks, groups[others], group_distances[others], code)
        last = _within(np.concatenate([distances, more_distances]), candidates.limit(prune_ratio), probing.nprobe)
        rest, more = (distances > first_lists) & (distances <= last), more_distances <= last
        self._search_lists(
            np.concatenate([numbers[rest], more_numbers[more]]),
            np.concatenate([distances[rest], more_distances[more]]),
            code,
            probing,
            candidates,
            live,
        )
        return candidates.places

    def _search_lists(
        self,
        numbers: NDArray[np.int64],
        distances: NDArray[np.int64],
        code: NDArray[np.int32],
        probing: SearchLimits,
        candidates: _Candidates,
        live: NDArray[np.uint16] | None,
    ) -> None:
        """Add the keys of lists to the candidates, from the blocks whose mean is near enough.

        numbers, distances: [n], the lists and the distances of their centroids.
        """
        lists = self._lists
        blocks, bases = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for number, distance in zip(numbers.tolist(), distances.tolist(), strict=True):
            block_means = lists.block_means[slice(*lists.means_offsets[number : number + 2])]
            means, exists = _measure_blocks(block_means, np.full(len(block_means), distance), code, FINE_BITS)
            blocks.append(lists.list_offsets[number] + np.flatnonzero(exists))
            bases.append(means[exists])
        all_blocks, all_bases = np.concatenate(blocks), np.concatenate(bases)
        done = np.zeros(len(all_blocks), bool)
        if candidates.empty:
            done = all_bases <= _bound(np.maximum(0, all_bases), _FIRST_BLOCKS)
            self._search_blocks(all_blocks[done], all_bases[done], code, candidates, live)
        near = ~done & (all_bases <= candidates.limit(np.float32(probing.block_prune_ratio)))
        self._search_blocks(all_blocks[near], all_bases[near], code, candidates, live)

    def _search_blocks(
        self,
        blocks: NDArray[np.int64],
        bases: NDArray[np.int64],
        code: NDArray[np.int32],
        candidates: _Candidates,
        live: NDArray[np.uint16] | None,
    ) -> None:
        """Add the keys of blocks [n] to the candidates; bases: [n], the distances of their means."""
        squares, exists = _measure_blocks(self._lists.blocks[blocks], bases, code, FINE_BITS)
        if live is not None:
            exists &= (live[blocks, None] >> np.arange(LANES) & 1).astype(bool).reshape(-1)
        candidates.add(blocks, np.where(exists, np.maximum(0, squares), _FARTHEST).reshape(-1, LANES))


class _Candidates:
    """The nearest places found so far: CandidatePool of native/index/candidate_pool.h."""

    def __init__(self, wanted: int) -> None:
        self._wanted, self._most, self._room = wanted, wanted + wanted // 2 + _SPARE // 2, 2 * wanted + _SPARE
        self._worst = _FARTHEST
        self._distances = np.empty(0, np.int64)
        self.places = np.empty(0, np.int64)

    @property
    def empty(self) -> bool:
        """Whether there are too few candidates to exclude anything."""
        return self._worst == _FARTHEST

    def limit(self, ratio: np.float32) -> int:
        """Return the distance beyond which a group, list or block is skipped."""
        return min(_FARTHEST, int(ratio * np.float32(self._worst)))

    def add(self, blocks: NDArray[np.int64], distances: NDArray[np.int64]) -> None:
        """Add the places of blocks [n] by their distances [n, 16]; drop distant places when there is no more room."""
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
                self._shrink()
        self._shrink()

    def _shrink(self) -> None:
        """Drop the farthest places, and keep at least `wanted` and at most `most` of them."""
        if len(self.places) < self._wanted:
            return
        near = np.flatnonzero(self._distances <= _bound(self._distances, self._wanted))
        if len(near) > self._most:
            near = np.sort(np.argsort(self._distances, kind="stable")[: self._wanted])
        self._distances, self.places = self._distances[near], self.places[near]
        self._worst = int(self._distances.max())


def _within(distances: NDArray[np.int64], limit: int, most: int) -> int:
    """Lower a limit so that only about `most` distances are within it."""
    return _bound(distances, most) if (distances <= limit).sum() > most else limit


def _bound(distances: NDArray[np.int64], wanted: int) -> int:
    """Find a distance within which about `wanted` distances lie, or all: bound of native/shortlist.h."""
    low = high = int(distances.min(initial=_FARTHEST)) - 1
    step, count = max(0, low) // 4 + 256, 0
    while high < _FARTHEST - 1 and (count := int((distances <= high).sum())) < wanted:
        low, high, step = high, min(high + step, _FARTHEST - 1), 2 * step
    while count > wanted + wanted // 8 and high - low > 1 + (high >> 7):
        middle = low + (high - low) // 2
        reached = int((distances <= middle).sum())
        low, high, count = (low, middle, reached) if reached >= wanted else (middle, high, count)
    return high


def decode_regions(blocks: NDArray[np.int8]) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """Decode blocks [n, code_block_bytes] of regions.

    Args:
        blocks: [n, code_block_bytes].

    Returns:
        The codes [16 n, d] int8, and whether each region exists [16 n].
    """
    count, width = blocks.shape
    norms = np.ascontiguousarray(blocks[:, :_NORM_BYTES]).view("<i4")
    lanes = blocks[:, _NORM_BYTES:].reshape(count, -1, LANES, _FOUR).transpose(0, 2, 1, 3)
    return lanes.reshape(count * LANES, (width - _NORM_BYTES) // LANES), (norms != EMPTY_NORM).reshape(-1)


def _measure(codes: NDArray[np.int8], code: NDArray[np.int32]) -> NDArray[np.int64]:
    """Compute the squared distances [n] of codes [n, d] to the code [d] of a query."""
    squares: NDArray[np.int64] = np.square(codes - code).sum(1, dtype=np.int64)
    return squares


def _open(
    blocks: NDArray[np.uint8], numbers: NDArray[np.int64], bases: NDArray[np.int64], code: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the places and distances of all points in some blocks.

    numbers: [n] of the blocks; bases: [n], the distances of the points to which the blocks are relative.
    """
    distances, exists = _measure_blocks(blocks[numbers], bases, code, COARSE_BITS)
    places = (LANES * numbers[:, None] + np.arange(LANES)).reshape(-1)
    return places[exists], np.maximum(0, distances[exists])


def _measure_blocks(
    blocks: NDArray[np.uint8], bases: NDArray[np.int64], code: NDArray[np.int32], bits: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Compute the squared distances [16 n] of the points of blocks [n] as in native/index/blocks.h.

    bases: [n], the distances of the points to which the blocks are relative. Also returns whether each point exists.
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
    exists = np.isfinite(norms)
    # float32, except for products: the library does not round them before it adds them.
    near = np.where(exists, 8 * (len(code) + 12) * norms, 0) + np.repeat(bases, LANES).astype(np.float32)
    products = ((1 << bits) - 1) * int(code.sum()) - 2 * (numbers @ code)
    distances = (steps * products + near.astype(np.float32)).astype(np.float32)
    return np.rint(distances).astype(np.int64), exists
