"""An inverted file made for GPUs: each query looks into the lists whose centroids are nearest, by fixed shapes alone.

The keys of these lists are looked at as int8 codes, and the best tiles measured as `ScanIndex` measures them. A list is
read once for all queries that look into it, so what many queries save is products, and what few save is bytes.

With keys that stand for product codes it is the paper's index.
"""

from __future__ import annotations

import sys
from copy import copy
from typing import TYPE_CHECKING

import torch

from ibidem.retrieve.codes import make_codes
from ibidem.retrieve.held import TILE, HeldKeys, check_device
from ibidem.retrieve.neighbours import Neighbours, blank_unusable, check_search, clean_queries
from ibidem.retrieve.partition import divide
from ibidem.retrieve.product import code_and_decode
from ibidem.retrieve.scan import (
    SPARE_TILES,
    can_fuse,
    code_minima,
    fits_kernels,
    join,
    measure_tiles,
    nearest,
    round_queries,
)

if TYPE_CHECKING:
    from torch import Tensor

    from ibidem.retrieve.keys import Keys

# Queries that a program can queue at once.
_MOST_ROWS = 512


class ListIndex:
    """Keys in lists, held on a device; see `ScanIndex` for what holds of it too.

    code_bytes: search what product codes of that many bytes say of the keys, not the keys.
    recall: of the k nearest, measured when the index was made.
    """

    def __init__(
        self,
        keys: Keys,
        device: str | torch.device,
        *,
        lists: int,
        nprobe: int,
        seed: int,
        code_bytes: int | None = None,
    ) -> None:
        place = check_device(device)
        _, held, squares = HeldKeys(keys, place, resident_bytes=sys.maxsize).whole
        partition = divide(held, squares, lists, seed, whole=code_bytes is not None)
        self._order, self._starts, self._span = partition.order, partition.starts, partition.span
        there = self._order >= 0
        places = self._order.clamp(min=0).long()
        self._keys = held[places].masked_fill_(~there[:, None], 0.0)
        self._squares = squares[places].masked_fill_(~there, torch.inf)
        del held, squares
        if code_bytes is not None:
            own = self._list_of_tile(len(partition.centroids)).repeat_interleave(TILE).masked_fill_(~there, -1)
            self._keys = code_and_decode(self._keys, partition.centroids, own, code_bytes, seed)
            self._squares = self._keys.float().square().sum(1).masked_fill_(~there, torch.inf)
        self._codes = make_codes(self._keys, self._squares)
        self._centroids = round_queries(partition.centroids, torch.float16)
        self._centroid_squares = self._centroids.float().square().sum(1)
        self._device = place
        self._fused = can_fuse(self._keys) and keys.dimension >= 32 and _few_enough(self.lists)
        self.size = keys.size
        self.dimension = keys.dimension
        self.supports_cuda_graph = place.type == "cuda"
        self.nprobe = min(nprobe, self.lists)
        self.code_bytes = code_bytes
        self.recall: float | None = None

    @property
    def lists(self) -> int:
        """How many lists there are, pieces of long ones counted each."""
        return len(self._centroids)

    @property
    def description(self) -> str:
        """One line for cards and logs."""
        found = "" if self.recall is None else f", recall@16 {self.recall:.3f}"
        keys = f"{self.size} keys of {self.dimension} dimensions"
        codes = "int8 codes" if self.code_bytes is None else f"what {self.code_bytes} bytes of product codes say"
        return f"{self.lists} lists of {codes}, nprobe {self.nprobe}, {keys} on {self._device}{found}"

    def probing(self, nprobe: int, recall: float | None = None) -> ListIndex:
        """The same lists, of which a query looks into so many."""
        other = copy(self)
        other.nprobe, other.recall = min(nprobe, self.lists), recall
        return other

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """Find the k nearest keys of each query; queries: [q, d], any float type, on any device."""
        check_search(queries, k, self.dimension)
        given = queries.detach().to(self._device, torch.float32).contiguous()
        tiles = len(self._keys) // TILE
        if tiles == 0:
            nothing = queries.new_full((len(queries), k), torch.inf, dtype=torch.float32)
            return Neighbours(nothing, torch.full_like(nothing, -1, dtype=torch.int64))
        find = self._find_fused if self._fused and fits_kernels(k) else self._find
        parts = torch.split(given, _MOST_ROWS)
        return join([find(part, k, min(k + SPARE_TILES, tiles)) for part in parts], queries.device)

    def _find_fused(self, queries: Tensor, k: int, width: int) -> Neighbours:
        from ibidem.retrieve.kernels import choice, lists

        scores = lists.score_lists(queries, self._centroids, self._centroid_squares)
        queue, lengths = lists.queue_queries(scores, lists.limit_probes(scores, self.nprobe))
        minima = lists.scan_lists(queries, self._codes, self._starts, queue, lengths, scores, TILE)
        tiles = choice.choose_tiles(minima, scores, self._starts, width, self._span)
        distances = choice.measure_tiles(queries, self._keys, self._squares, tiles, TILE)
        return Neighbours(*choice.pick(distances, tiles, self._order, k))

    def _find(self, queries: Tensor, k: int, width: int) -> Neighbours:
        clean, usable = clean_queries(queries)
        rounded = round_queries(clean, torch.float16).float()
        scores = torch.addmm(self._centroid_squares, rounded, self._centroids.float().T, alpha=-2)
        asked = scores <= scores.sort(dim=1).values[:, self.nprobe - 1 : self.nprobe]
        minima = code_minima(clean, self._codes)
        minima.masked_fill_(~asked[:, self._list_of_tile(self.lists)], torch.inf)
        low, tiles = minima.topk(width, dim=1, largest=False, sorted=False)
        distances = measure_tiles(clean, self._keys, self._squares, tiles)
        distances = distances.masked_fill(torch.isinf(low)[:, :, None], torch.inf)
        entries = self._order[tiles[:, :, None] * TILE + torch.arange(TILE, device=self._device)]
        return blank_unusable(*nearest(distances.flatten(1), entries.clamp(min=0).long().flatten(1), k), usable)

    def _list_of_tile(self, lists: int) -> Tensor:
        sizes = (self._starts[1:] - self._starts[:-1]).long()
        return torch.repeat_interleave(torch.arange(lists, device=self._starts.device), sizes)


def _few_enough(lists: int) -> bool:
    from ibidem.retrieve.kernels.lists import MOST_LISTS

    return lists <= MOST_LISTS
