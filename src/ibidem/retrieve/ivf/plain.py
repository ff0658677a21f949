"""The native index read in numpy, by the same rules: slow, for where the library is not here, and its oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from ibidem.native.ivf import LANES, NO_KEY
from ibidem.retrieve.neighbours import LARGEST_SQUARE

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.native.ivf import Centroids, Lists, Probing

_NORM_BYTES = 4 * LANES
_FOUR = 4
_MOST = 127
_FARTHEST = 1 << 29
# Lists that are looked into by distance, how many at first, of how many groups, and how much farther than its lists a
# group may be, as in native/ivf_search.cpp.
_SORTED = 32
_FIRST_ROUND = 4
_FIRST_GROUPS = 32
_GROUP_REACH = np.float32(1.3)


class PlainIvf:
    """Search as `ibidem.native.ivf.Ivf` does it, one query after another."""

    def __init__(self, centroids: Centroids, lists: Lists) -> None:
        self._coding = centroids.coding
        self._groups, self._group_there = _decode(centroids.group_blocks)
        self._centroids, self._there = _decode(centroids.centroid_blocks)
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
            places = self._candidates(query, probing, max(probing.pool, k), live)
            away = query - self._lists.keys[places].astype(np.float32)
            squares, ids = np.square(away).sum(1), self._lists.entries[places]
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
        groups = np.flatnonzero(self._group_there)
        group_distances = _measure(self._groups[groups], code)
        first_groups = _bound(group_distances, min(probing.groups, _FIRST_GROUPS))
        numbers, distances = self._open(groups[group_distances <= first_groups], code)
        first_lists = _bound(distances, min(probing.probes, _SORTED))
        nearest = np.flatnonzero(distances <= first_lists)
        nearest = nearest[np.lexsort((numbers[nearest], distances[nearest]))]
        begin, end = 0, _FIRST_ROUND
        while begin < len(nearest) and distances[nearest[begin]] <= pool.limit(patience):
            self._look_into(numbers[nearest[begin:end]], distances[nearest[begin:end]], code, probing, pool, live)
            begin, end = end, 2 * end
        last_groups = _within(group_distances, pool.limit(_GROUP_REACH * patience), probing.groups)
        others = (group_distances > first_groups) & (group_distances <= last_groups)
        more_numbers, more_distances = self._open(groups[others], code)
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

    def _open(self, groups: NDArray[np.int64], code: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The lists of all centroids in these groups, and how far these are."""
        numbers = (LANES * groups[:, None] + np.arange(LANES)).reshape(-1)
        numbers = numbers[self._there[numbers]]
        return numbers, _measure(self._centroids[numbers], code)

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
        for number, distance in zip(numbers.tolist(), distances.tolist(), strict=True):
            guides = slice(*lists.guide_offsets[number : number + 2])
            means, there = self._measure_residuals(lists.guides[guides], code, number, distance)
            blocks = lists.list_offsets[number] + np.flatnonzero(there & (means <= limit))
            squares, there = self._measure_residuals(lists.blocks[blocks], code, number, distance)
            if live is not None:
                there &= (live[blocks, None] >> np.arange(LANES) & 1).astype(bool).reshape(-1)
            places = (LANES * blocks[:, None] + np.arange(LANES)).reshape(-1)
            pool.add(squares[there], places[there])

    def _measure_residuals(
        self, blocks: NDArray[np.uint8], code: NDArray[np.int32], number: int, distance: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Squared distances [n] of the codes of blocks of a list to a query's, and where there is one at all [n]."""
        step = self._lists.steps[number]
        norms = np.ascontiguousarray(blocks[:, :_NORM_BYTES]).view("<f4").reshape(-1)
        eights = -(-len(code) // 8)
        pairs = blocks[:, _NORM_BYTES:].reshape(len(blocks), eights, LANES, _FOUR).transpose(0, 2, 1, 3)
        numbers = np.stack([pairs & 15, pairs >> 4], axis=3).reshape(len(norms), 8 * eights)[:, : len(code)]
        # float32 but for the product, which the library does not round before it is added.
        constant = norms + (np.float32(distance) + np.float32(15) * step * np.float32(code.sum()))
        products = -2.0 * np.float64(step) * (numbers.astype(np.int64) @ code)
        distances = np.rint((products + constant).astype(np.float32)).astype(np.int64)
        return np.maximum(0, distances), norms != NO_KEY


class _Pool:
    """The nearest places so far, sorted."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._distances = np.empty(0, np.int64)
        self.places = np.empty(0, np.int64)

    def limit(self, patience: np.float32) -> int:
        """What is farther holds nothing near enough."""
        if len(self.places) < self._capacity:
            return _FARTHEST
        return min(_FARTHEST, int(patience * np.float32(self._distances[-1])))

    def add(self, distances: NDArray[np.int64], places: NDArray[np.int64]) -> None:
        near, where = np.concatenate([self._distances, distances]), np.concatenate([self.places, places])
        order = np.lexsort((where, near))[: self._capacity]
        self._distances, self.places = near[order], where[order]


def _within(distances: NDArray[np.int64], limit: int, most: int) -> int:
    """A distance that so many reach at most, and hardly one more: the limit, or less."""
    return _bound(distances, most) if (distances <= limit).sum() > most else limit


def _bound(distances: NDArray[np.int64], wanted: int) -> int:
    """A distance that so many reach, and hardly one below; where there are fewer, all: bound of native/shortlist.h."""
    low = high = int(distances.min(initial=_FARTHEST)) - 1
    step = max(0, low) // 4 + 256
    while high < _FARTHEST - 1 and (distances <= high).sum() < wanted:
        low, high, step = high, min(high + step, _FARTHEST - 1), 2 * step
    while high - low > 1 + (high >> 7):
        middle = low + (high - low) // 2
        low, high = (low, middle) if (distances <= middle).sum() >= wanted else (middle, high)
    return high


def _decode(blocks: NDArray[np.int8]) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """Codes [16 n, d] of blocks [n, block_bytes], and where there is a centroid at all [16 n]."""
    count, width = blocks.shape
    norms = np.ascontiguousarray(blocks[:, :_NORM_BYTES]).view("<i4")
    lanes = blocks[:, _NORM_BYTES:].reshape(count, -1, LANES, _FOUR).transpose(0, 2, 1, 3)
    return lanes.reshape(count * LANES, (width - _NORM_BYTES) // LANES), (norms != NO_KEY).reshape(-1)


def _measure(codes: NDArray[np.int8], code: NDArray[np.int32]) -> NDArray[np.int64]:
    """Squared distances [n] of codes [n, d] to a query's."""
    squares: NDArray[np.int64] = np.square(codes - code).sum(1, dtype=np.int64)
    return squares
