"""An inverted file on a GPU: each query probes the lists whose centroids are nearest, with fixed shapes only.

The keys of these lists are scanned as int8 codes, and the best tiles are measured as in `ScanIndex`. A list is read
once for all queries that probe it: many queries save products, and few queries save bytes.

With product codes it is the index of the paper.
"""

from __future__ import annotations

import sys
from copy import copy
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ibidem.retrieve.gpu.quantization import apply_product_codes, assign, cluster, encode_keys
from ibidem.retrieve.gpu.scan import (
    SPARE_TILES,
    code_minima,
    concatenate,
    fits_kernels,
    has_kernels,
    measure_tiles,
    pick_nearest,
    round_queries,
)
from ibidem.retrieve.index import Neighbours, blank_unusable, check_search, clean_queries, no_neighbours
from ibidem.retrieve.keys import TILE, ResidentKeys, check_device

if TYPE_CHECKING:
    from ibidem.retrieve.keys import Keys

# Queries that a program can queue at once.
_MOST_ROWS = 512
_SAMPLE_PER_LIST = 64
_MOST_SAMPLES = 1 << 20
_LEAST_SPAN = 8
# A piece of a list is at most this many times as long as the average list.
_LONGEST_PIECE = 4


class Partition(NamedTuple):
    """Keys divided into lists around centroids, and laid out in whole tiles, list after list.

    A list that is much longer than the others is cut into pieces with one centroid. They are probed together, by
    programs that have about the same amount of work.

    Attributes:
        order: [places] int32, the entry at each place, -1 where there is none; a multiple of TILE.
        starts: [pieces + 1] int32, the first tile of each piece.
        centroids: [pieces, d] float32.
        span: the most tiles of a piece.
    """

    order: Tensor
    starts: Tensor
    centroids: Tensor
    span: int


class ListIndex:
    """Search an inverted file of keys that are resident on a device; results are like those of `ScanIndex`.

    Args:
        keys: the keys, which must fit on the device four times.
        device: where they are searched.
        lists: the number of lists.
        nprobe: lists probed for each query.
        seed: of k-means.
        code_bytes: search decoded product codes of this many bytes; None to search the keys.

    Attributes:
        recall: recall@16, None if it was not measured.
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
        _, resident, squares = ResidentKeys(keys, place, resident_bytes=sys.maxsize).whole
        parts = partition(resident, squares, lists, seed, whole=code_bytes is not None)
        self._order, self._starts, self._span = parts.order, parts.starts, parts.span
        occupied = self._order >= 0
        places = self._order.clamp(min=0).long()
        self._keys = resident[places].masked_fill_(~occupied[:, None], 0.0)
        self._squares = squares[places].masked_fill_(~occupied, torch.inf)
        del resident, squares
        if code_bytes is not None:
            own = self._list_of_tile(len(parts.centroids)).repeat_interleave(TILE).masked_fill_(~occupied, -1)
            self._keys = apply_product_codes(self._keys, parts.centroids, own, code_bytes, seed)
            self._squares = self._keys.float().square().sum(1).masked_fill_(~occupied, torch.inf)
        self._codes = encode_keys(self._keys, self._squares)
        self._centroids = round_queries(parts.centroids, torch.float16)
        self._centroid_squares = self._centroids.float().square().sum(1)
        self._device = place
        self._fused = has_kernels(self._keys) and keys.dimension >= 32 and _few_enough(self.lists)
        self.size = keys.size
        self.dimension = keys.dimension
        self.supports_cuda_graph = place.type == "cuda"
        self.nprobe = min(nprobe, self.lists)
        self.code_bytes = code_bytes
        self.recall: float | None = None

    @property
    def lists(self) -> int:
        """The number of lists, counting each piece of a long one."""
        return len(self._centroids)

    @property
    def description(self) -> str:
        """One line for memory cards and logs."""
        recall = "" if self.recall is None else f", recall@16 {self.recall:.3f}"
        keys = f"{self.size} keys of {self.dimension} dimensions"
        codes = "int8 codes" if self.code_bytes is None else f"decoded product codes of {self.code_bytes} bytes"
        return f"{self.lists} lists of {codes}, nprobe {self.nprobe}, {keys} on {self._device}{recall}"

    def with_nprobe(self, nprobe: int, recall: float | None = None) -> ListIndex:
        """Return an index of the same lists with another nprobe.

        Args:
            nprobe: lists probed for each query; at most all are probed.
            recall: recall@16 with this nprobe; None if it was not measured.
        """
        other = copy(self)
        other.nprobe, other.recall = min(nprobe, self.lists), recall
        return other

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """Find about the k nearest keys of each query [q, d]; see `Index.search`."""
        check_search(queries, k, self.dimension)
        given = queries.detach().to(self._device, torch.float32).contiguous()
        tiles = len(self._keys) // TILE
        if tiles == 0:
            return no_neighbours(queries, k)
        find = self._find_fused if self._fused and fits_kernels(k) else self._find
        parts = torch.split(given, _MOST_ROWS)
        return concatenate([find(part, k, min(k + SPARE_TILES, tiles)) for part in parts], queries.device)

    def _find_fused(self, queries: Tensor, k: int, width: int) -> Neighbours:
        from ibidem.retrieve.gpu import list_kernels, scan_kernels

        scores = list_kernels.score_lists(queries, self._centroids, self._centroid_squares)
        queue, lengths = list_kernels.queue_queries(scores, list_kernels.limit_scores(scores, self.nprobe))
        minima = list_kernels.scan_lists(queries, self._codes, self._starts, queue, lengths, scores, TILE)
        tiles = scan_kernels.choose_tiles(minima, scores, self._starts, width, self._span)
        distances = scan_kernels.measure_tiles(queries, self._keys, self._squares, tiles, TILE)
        return Neighbours(*scan_kernels.pick_nearest(distances, tiles, self._order, k))

    def _find(self, queries: Tensor, k: int, width: int) -> Neighbours:
        clean, usable = clean_queries(queries)
        rounded = round_queries(clean, torch.float16).float()
        scores = torch.addmm(self._centroid_squares, rounded, self._centroids.float().T, alpha=-2)
        probed = scores <= scores.sort(dim=1).values[:, self.nprobe - 1 : self.nprobe]
        minima = code_minima(clean, self._codes)
        minima.masked_fill_(~probed[:, self._list_of_tile(self.lists)], torch.inf)
        low, tiles = minima.topk(width, dim=1, largest=False, sorted=False)
        distances = measure_tiles(clean, self._keys, self._squares, tiles)
        distances = distances.masked_fill(torch.isinf(low)[:, :, None], torch.inf)
        entries = self._order[tiles[:, :, None] * TILE + torch.arange(TILE, device=self._device)]
        return blank_unusable(*pick_nearest(distances.flatten(1), entries.clamp(min=0).long().flatten(1), k), usable)

    def _list_of_tile(self, lists: int) -> Tensor:
        sizes = (self._starts[1:] - self._starts[:-1]).long()
        return torch.repeat_interleave(torch.arange(lists, device=self._starts.device), sizes)


def partition(keys: Tensor, squares: Tensor, lists: int, seed: int, *, whole: bool = False) -> Partition:
    """Divide keys into lists by k-means, and lay them out in whole tiles.

    Args:
        keys: [n, d].
        squares: [n] float32, squared lengths, inf where there is no key.
        lists: the number of lists; fewer if there are fewer keys.
        seed: of k-means.
        whole: cut no list into pieces.

    Returns:
        The layout.
    """
    entries = torch.isfinite(squares).nonzero()[:, 0]
    generator = torch.Generator().manual_seed(seed)
    lists = min(lists, len(entries))
    wanted = min(len(entries), _MOST_SAMPLES, _SAMPLE_PER_LIST * lists)
    drawn = torch.randperm(len(entries), generator=generator)[:wanted].to(keys.device)
    centroids = cluster(keys[entries[drawn]].float(), lists, generator)
    assigned = assign(keys, entries, centroids)
    return _lay_out(entries, assigned, centroids, whole=whole)


def _lay_out(entries: Tensor, assigned: Tensor, centroids: Tensor, *, whole: bool) -> Partition:
    """Put entries [n], each assigned [n] to a list, into whole tiles."""
    device = entries.device
    sizes = torch.bincount(assigned, minlength=len(centroids))
    span = _LEAST_SPAN
    longest = int(sizes.max()) if whole and len(entries) else 0
    while span * TILE < max(longest, _LONGEST_PIECE * len(entries) / max(1, len(centroids))):
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


def _few_enough(lists: int) -> bool:
    from ibidem.retrieve.gpu.list_kernels import MOST_LISTS

    return lists <= MOST_LISTS
