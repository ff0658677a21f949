"""Exact search made for GPUs: one pass over all keys, the same few kernels whatever the data.

1. Score all keys against the queries, rounded to the keys' own type, and keep the lowest score of each tile of 128.
2. The k nearest keys lie in at most k tiles: those with the lowest minima. Some spare tiles make up for rounding.
3. Measure the keys of these tiles with the queries as they are, in float32, and keep the k nearest.

Unlike `ExactIndex` it proves nothing: where keys differ by less than rounding, it may take the one for the other.
It never waits for the device, so a decoding step that searches can be captured in a CUDA graph.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ibidem.retrieve.exact import ExactIndex
from ibidem.retrieve.held import TILE, HeldKeys, check_device, fits, held_type
from ibidem.retrieve.neighbours import Index, Neighbours, blank_unusable, check_search, clean_queries
from ibidem.retrieve.scores import multiply_halves

if TYPE_CHECKING:
    from ibidem.retrieve.keys import Keys

_SPARE_TILES = 8
# Minima held at once, 1 GiB: more queries than that allows are searched one part after the other.
_MINIMA = 2**28
# Scores made at once where there is no Triton.
_SCORES = 2**26
_ENTRY_BITS = 32


def exact_index(keys: Keys, device: str | torch.device) -> Index:
    """Exact search on a device: the scan where a GPU can hold float16 keys, else search with a proof."""
    place = check_device(device)
    if place.type == "cuda" and held_type(place, keys) == torch.float16 and fits(keys, place):
        return ScanIndex(keys, place)
    return ExactIndex(keys, place)


class ScanIndex:
    """All keys, held on a device, scanned at every search; the nearest neighbours up to rounding.

    Of keys at one distance the one with the lower entry comes first, but which of many equal ones are found at all
    is not said. Keys that are not finite are never anybody's neighbours.
    """

    def __init__(self, keys: Keys, device: str | torch.device) -> None:
        place = check_device(device)
        _, self._keys, self._squares = HeldKeys(keys, place, resident_bytes=sys.maxsize).whole
        self._device = place
        self._fused = place.type == "cuda" and has_triton() and self._keys.dtype == torch.float16
        if self._fused:
            from ibidem.retrieve import kernels

            self._fused = kernels.supports(keys.dimension)
        self.size = keys.size
        self.dimension = keys.dimension
        self.captures = place.type == "cuda"

    @property
    def description(self) -> str:
        """One line for cards and logs."""
        kind = str(self._keys.dtype).removeprefix("torch.")
        return f"exact scan, {self.size} keys of {self.dimension} dimensions, {kind} on {self._device}"

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """Find the k nearest keys of each query; queries: [q, d], any float type, on any device."""
        check_search(queries, k, self.dimension)
        clean, usable = clean_queries(queries.to(self._device))
        parts = torch.split(clean.contiguous(), max(1, _MINIMA // max(1, len(self._keys) // TILE)))
        found = [self._nearest(part, k) for part in parts]
        distances, entries = (torch.cat(columns) for columns in zip(*found, strict=True))
        missing = k - distances.shape[1]
        distances = torch.nn.functional.pad(distances, (0, missing), value=torch.inf)
        entries = torch.nn.functional.pad(entries, (0, missing), value=-1)
        answer = blank_unusable(distances, entries, usable)
        return Neighbours(answer.distances.to(queries.device), answer.entries.to(queries.device))

    def _nearest(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Search usable queries [q, d]; gives distances and entries, each [q, at most k]."""
        most = torch.finfo(self._keys.dtype).max
        rounded = queries.clamp(-most, most).to(self._keys.dtype)
        width = min(k + _SPARE_TILES, len(self._keys) // TILE)
        if self._fused:
            from ibidem.retrieve import kernels

            minima = kernels.tile_minima(rounded, self._keys, self._squares, TILE)
            tiles = minima.topk(width, dim=1, largest=False, sorted=False).indices
            distances = kernels.measure_tiles(queries, self._keys, self._squares, tiles, TILE)
        else:
            minima = tile_minima(rounded, self._keys, self._squares)
            tiles = minima.topk(width, dim=1, largest=False, sorted=False).indices
            distances = measure_tiles(queries, self._keys, self._squares, tiles)
        entries = tiles[:, :, None] * TILE + torch.arange(TILE, device=self._device)
        return nearest(distances.flatten(1), entries.flatten(1), k)


@cache
def has_triton() -> bool:
    """Whether Triton is installed; it comes with PyTorch's CUDA builds for Linux."""
    return find_spec("triton") is not None


def tile_minima(queries: Tensor, keys: Tensor, squares: Tensor) -> Tensor:
    """The lowest |x|² - 2 q·x in each tile [q, tiles]; queries [q, d], keys [n, d], n whole tiles."""
    rows = max(TILE, _SCORES // max(1, len(queries)) // TILE * TILE)
    minima = torch.empty(len(queries), len(keys) // TILE, device=keys.device)
    for start in range(0, len(keys), rows):
        piece = slice(start, start + rows)
        scores = squares[piece] - 2 * multiply_halves(queries, keys[piece].T)
        minima[:, start // TILE : (start + scores.shape[1]) // TILE] = scores.view(len(queries), -1, TILE).amin(2)
    return minima


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
    """The k first of each row by (distance, entry), [q, at most k]; entry -1 at infinity.

    Both are packed into one integer, since a distance, never negative, orders like its bits.
    """
    packed = (distances.view(torch.int32).long() << _ENTRY_BITS) | entries
    first = packed.topk(min(k, packed.shape[1]), dim=1, largest=False, sorted=True).values
    near = (first >> _ENTRY_BITS).int().view(torch.float32)
    return near, (first & (2**_ENTRY_BITS - 1)).masked_fill(torch.isinf(near), -1)
