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


class PlainIvf:
    """Search as `ibidem.native.ivf.Ivf` does it, one query after another."""

    def __init__(self, centroids: Centroids, lists: Lists) -> None:
        self._coding = centroids.coding
        self._group_offsets = centroids.group_offsets
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
        self, query: NDArray[np.float32], probing: Probing, pool: int, live: NDArray[np.uint16] | None
    ) -> NDArray[np.int64]:
        """The places [at most pool] of the keys that are nearest by their codes, in the lists that are looked into."""
        mean, scale = self._coding.mean, np.float32(self._coding.scale)
        code = np.rint(np.clip((query - mean) * scale, -_MOST, _MOST)).astype(np.int32)
        near, places = np.empty(0, np.int64), np.empty(0, np.int64)
        for number, distance in zip(*self._nearest_lists(code, probing), strict=True):
            if len(near) == pool and np.float32(distance) > np.float32(probing.patience) * np.float32(near[-1]):
                break
            first, last = (int(block) for block in self._lists.list_offsets[number : number + 2])
            keys, there = _decode(self._lists.blocks[first:last])
            if live is not None:
                there &= (live[first:last, None] >> np.arange(LANES) & 1).astype(bool).reshape(-1)
            own = np.flatnonzero(there)
            near = np.concatenate([near, _measure(keys[own], code)])
            places = np.concatenate([places, LANES * first + own])
            order = np.lexsort((places, near))[:pool]
            near, places = near[order], places[order]
        return places

    def _nearest_lists(self, code: NDArray[np.int32], probing: Probing) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The numbers of the lists with the nearest centroids, in the nearest groups, and how far these are."""
        groups = np.flatnonzero(self._group_there)
        order = np.argsort(_measure(self._groups[groups], code), kind="stable")
        inside = np.zeros(len(self._there), bool)
        for group in groups[order[: probing.groups]]:
            first, last = self._group_offsets[group : group + 2]
            inside[LANES * first : LANES * last] = True
        numbers = np.flatnonzero(inside & self._there)
        distances = _measure(self._centroids[numbers], code)
        order = np.argsort(distances, kind="stable")[: probing.probes]
        return numbers[order], distances[order]


def _decode(blocks: NDArray[np.int8]) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """Codes [16 n, d] of blocks [n, block_bytes], and where there is a key at all [16 n]."""
    count, width = blocks.shape
    norms = np.ascontiguousarray(blocks[:, :_NORM_BYTES]).view("<i4")
    lanes = blocks[:, _NORM_BYTES:].reshape(count, -1, LANES, _FOUR).transpose(0, 2, 1, 3)
    return lanes.reshape(count * LANES, (width - _NORM_BYTES) // LANES), (norms != NO_KEY).reshape(-1)


def _measure(codes: NDArray[np.int8], code: NDArray[np.int32]) -> NDArray[np.int64]:
    """Squared distances [n] of codes [n, d] to a query's."""
    squares: NDArray[np.int64] = np.square(codes - code).sum(1, dtype=np.int64)
    return squares
