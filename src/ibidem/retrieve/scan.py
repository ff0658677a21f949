"""Exact search made for GPUs: one pass over all keys, the same few kernels whatever the data.

1. Score all keys against the queries, rounded to the keys' own type, and keep the lowest score of each tile of 128.
2. The k nearest keys lie in at most k tiles: those with the lowest minima. Some spare tiles make up for rounding.
3. Measure the keys of these tiles with the queries as they are, in float32, and keep the k nearest.

Unlike `ExactIndex` it proves nothing: where keys differ by less than rounding, it may take the one for the other.
It never waits for the device, so a decoding step that searches can be captured in a CUDA graph.
"""

from __future__ import annotations

import sys
from copy import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ibidem.native import runs_triton
from ibidem.retrieve.codes import NO_CODE, Codes, make_codes
from ibidem.retrieve.exact import ExactIndex
from ibidem.retrieve.held import TILE, HeldKeys, check_device, fits, held_type
from ibidem.retrieve.neighbours import Index, Neighbours, blank_unusable, check_search, clean_queries
from ibidem.retrieve.scores import multiply_halves

if TYPE_CHECKING:
    from ibidem.retrieve.keys import Keys

# On 1.1 million compact keys of a memory, recall@16 with float16 keys and with int8 codes is 0.9998 and 0.988 without
# spare tiles, 1.0 and 0.999 with four, 1.0 and 0.9998 with eight.
SPARE_TILES = 8
# Minima held at once, 1 GiB: more queries than that allows are searched one part after the other.
MINIMA = 2**28
# Scores made at once where there is no Triton.
_SCORES = 2**26
_ENTRY_BITS = 32


def exact_index(keys: Keys, device: str | torch.device) -> Index:
    """Exact search on a device: the scan where a GPU can hold float16 keys, else search with a proof."""
    place = check_device(device)
    return ScanIndex(keys, place) if holds_halves(keys, place) else ExactIndex(keys, place)


def holds_halves(keys: Keys, device: torch.device, times: float = 1.0) -> bool:
    """Whether a GPU can hold keys as float16, so many times."""
    return device.type == "cuda" and held_type(device, keys) == torch.float16 and fits(keys, device, times)


class ScanIndex:
    """All keys, held on a device, scanned at every search; the nearest neighbours up to rounding.

    Of keys at one distance the one with the lower entry comes first, but which of many equal ones are found at all
    is not said. Keys that are not finite are never anybody's neighbours.
    coded: look at int8 codes first, 64 bytes more a key of 64 components; rounding then costs a little recall.
    """

    def __init__(self, keys: Keys, device: str | torch.device, *, coded: bool = False) -> None:
        place = check_device(device)
        _, self._keys, self._squares = HeldKeys(keys, place, resident_bytes=sys.maxsize).whole
        self._codes = make_codes(self._keys, self._squares) if coded else None
        self._device = place
        self._fused = can_fuse(self._keys) and (not coded or keys.dimension >= 32)
        self._starts = torch.empty(0)
        if self._fused:
            from ibidem.retrieve.kernels.minima import GROUP

            tiles = len(self._keys) // TILE
            self._starts = torch.arange(0, tiles + GROUP, GROUP, device=place).clamp_(max=tiles).int()
        self.size = keys.size
        self.dimension = keys.dimension
        self.supports_cuda_graph = place.type == "cuda"

    @property
    def description(self) -> str:
        """One line for cards and logs."""
        kind = str(self._keys.dtype).removeprefix("torch.")
        first = "" if self._codes is None else ", int8 codes first"
        return f"exact scan, {self.size} keys of {self.dimension} dimensions, {kind} on {self._device}{first}"

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """Find the k nearest keys of each query; queries: [q, d], any float type, on any device."""
        check_search(queries, k, self.dimension)
        tiles = len(self._keys) // TILE
        given = queries.detach().to(self._device, torch.float32).contiguous()
        parts = torch.split(given, max(1, MINIMA // max(1, tiles)))
        find = self._find_fused if self._fused and tiles and fits_kernels(k) else self._find
        return join([find(part, k, min(k + SPARE_TILES, tiles)) for part in parts], queries.device)

    def without_codes(self) -> ScanIndex:
        """The same keys, without the rough look at codes first."""
        other = copy(self)
        other._codes = None
        return other

    def _find_fused(self, queries: Tensor, k: int, width: int) -> Neighbours:
        from ibidem.retrieve.kernels import choice, minima

        if self._codes is None:
            lows, groups = minima.halves_minima(queries, self._keys, self._squares, TILE)
        else:
            lows, groups = minima.codes_minima(queries, self._codes, TILE)
        tiles = choice.choose_tiles(lows, groups, self._starts, width, minima.GROUP)
        distances = choice.measure_tiles(queries, self._keys, self._squares, tiles, TILE)
        return Neighbours(*choice.pick(distances, tiles, None, k))

    def _find(self, queries: Tensor, k: int, width: int) -> Neighbours:
        clean, usable = clean_queries(queries)
        if self._codes is None:
            minima = tile_minima(round_queries(clean, self._keys.dtype), self._keys, self._squares)
        else:
            minima = code_minima(clean, self._codes)
        tiles = minima.topk(width, dim=1, largest=False, sorted=False).indices
        distances = measure_tiles(clean, self._keys, self._squares, tiles)
        entries = tiles[:, :, None] * TILE + torch.arange(TILE, device=self._device)
        return blank_unusable(*nearest(distances.flatten(1), entries.flatten(1), k), usable)


def can_fuse(keys: Tensor) -> bool:
    """Whether there are kernels for keys like these."""
    if not runs_triton(keys) or keys.dtype != torch.float16:
        return False
    from ibidem.retrieve.kernels import minima

    return minima.supports(keys.shape[1])


def fits_kernels(k: int) -> bool:
    """Whether kernels can find so many neighbours."""
    from ibidem.retrieve.kernels import choice

    return k <= choice.MOST


def join(parts: list[Neighbours], device: torch.device) -> Neighbours:
    """The answers to the parts of a search, on the device of its queries."""
    whole = parts[0] if len(parts) == 1 else Neighbours(*(torch.cat(columns) for columns in zip(*parts, strict=True)))
    return Neighbours(*(column.to(device) for column in whole))


def round_queries(queries: Tensor, kind: torch.dtype) -> Tensor:
    """Queries in the type of the keys, as near as it has them."""
    most = torch.finfo(kind).max
    return queries.clamp(-most, most).to(kind)


def tile_minima(queries: Tensor, keys: Tensor, squares: Tensor) -> Tensor:
    """The lowest |x|² - 2 q·x in each tile [q, tiles]; queries [q, d], keys [n, d], n whole tiles."""
    rows = max(TILE, _SCORES // max(1, len(queries)) // TILE * TILE)
    minima = torch.empty(len(queries), len(keys) // TILE, device=keys.device)
    for start in range(0, len(keys), rows):
        piece = slice(start, start + rows)
        scores = squares[piece] - 2 * multiply_halves(queries, keys[piece].T)
        minima[:, start // TILE : (start + scores.shape[1]) // TILE] = scores.view(len(queries), -1, TILE).amin(2)
    return minima


def code_minima(queries: Tensor, codes: Codes) -> Tensor:
    """The same of int8 codes, in units of their own; queries as they are."""
    squares = codes.squares.float().masked_fill(codes.squares >= NO_CODE, torch.inf)
    # Whole numbers below 2^24: float32 products of codes are exact.
    return tile_minima(codes.encode(queries).float(), codes.codes.float(), squares)


def measure_tiles(queries: Tensor, keys: Tensor, squares: Tensor, tiles: Tensor) -> Tensor:
    """Squared distances of the keys of some tiles; queries [q, d] float32, tiles [q, w]; gives [q, w, TILE]."""
    distances = torch.empty(*tiles.shape, TILE, device=keys.device)
    tiled, lengths = keys.view(-1, TILE, keys.shape[1]), squares.view(-1, TILE)
    for column in range(tiles.shape[1]):
        chosen = tiles[:, column]
        measured = (queries[:, None] - tiled[chosen].float()).square().sum(2)
        distances[:, column] = measured.masked_fill(torch.isinf(lengths[chosen]), torch.inf)
    return distances


def nearest(distances: Tensor, entries: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k first of each row by (distance, entry), [q, k]; at infinity and entry -1 where there are fewer.

    Both are packed into one integer, since a distance, never negative, orders like its bits.
    """
    packed = (distances.view(torch.int32).long() << _ENTRY_BITS) | entries
    first = packed.topk(min(k, packed.shape[1]), dim=1, largest=False, sorted=True).values
    near = (first >> _ENTRY_BITS).int().view(torch.float32)
    found = (first & (2**_ENTRY_BITS - 1)).masked_fill(torch.isinf(near), -1)
    missing = (0, k - near.shape[1])
    return torch.nn.functional.pad(near, missing, value=torch.inf), torch.nn.functional.pad(found, missing, value=-1)
