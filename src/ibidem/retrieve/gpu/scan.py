"""Exact search on a GPU: one scan of all keys, by the same few kernels whatever the data.

1. Score all keys against the queries, rounded to the type of the keys, and keep the lowest score of each tile of 128.
2. The k nearest keys lie in at most k tiles: those with the lowest minima. Some spare tiles make up for rounding.
3. Measure the keys of these tiles against the unrounded queries in float32, and keep the k nearest.

Unlike `ExactIndex`, the scan has no error bound: it may confuse keys whose distances differ by less than rounding. It
never synchronises with the device, so a decoding step that searches can be captured in a CUDA graph.
"""

from __future__ import annotations

import sys
from copy import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ibidem.native import runs_triton
from ibidem.retrieve.exact import multiply_float16
from ibidem.retrieve.gpu.quantization import NO_CODE, Int8Codes, encode_keys
from ibidem.retrieve.index import Neighbours, blank_unusable, check_search, clean_queries
from ibidem.retrieve.keys import TILE, ResidentKeys, check_device

if TYPE_CHECKING:
    from ibidem.retrieve.keys import Keys

# Tiles measured in addition to the k best ones, so that rounding costs almost no recall.
SPARE_TILES = 8
# Minima in memory at once, 1 GiB: more queries are searched in parts.
MINIMA = 2**28
# Scores in memory at once where there is no Triton.
_SCORES = 2**26
_ENTRY_BITS = 32


class ScanIndex:
    """Scan all keys on a device at every search, and return the nearest neighbours up to rounding.

    Keys at the same distance are ordered by entry, but which of many equal keys are found is unspecified. Keys that are
    not finite are never found.

    Args:
        keys: the keys, which must fit on the device.
        device: where they are searched.
        coded: scan int8 codes first. They take half the bytes of float16 keys in addition, and lose a little recall.
    """

    def __init__(self, keys: Keys, device: str | torch.device, *, coded: bool = False) -> None:
        place = check_device(device)
        _, self._keys, self._squares = ResidentKeys(keys, place, resident_bytes=sys.maxsize).whole
        self._codes = encode_keys(self._keys, self._squares) if coded else None
        self._device = place
        self._fused = has_kernels(self._keys) and (not coded or keys.dimension >= 32)
        self._starts = torch.empty(0)
        if self._fused:
            from ibidem.retrieve.gpu.scan_kernels import GROUP

            tiles = len(self._keys) // TILE
            self._starts = torch.arange(0, tiles + GROUP, GROUP, device=place).clamp_(max=tiles).int()
        self.size = keys.size
        self.dimension = keys.dimension
        self.supports_cuda_graph = place.type == "cuda"

    @property
    def description(self) -> str:
        """One line for memory cards and logs."""
        kind = str(self._keys.dtype).removeprefix("torch.")
        first = "" if self._codes is None else ", int8 codes first"
        return f"exact scan, {self.size} keys of {self.dimension} dimensions, {kind} on {self._device}{first}"

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """Find the k nearest keys of each query [q, d]; see `Index.search`."""
        check_search(queries, k, self.dimension)
        tiles = len(self._keys) // TILE
        given = queries.detach().to(self._device, torch.float32).contiguous()
        parts = torch.split(given, max(1, MINIMA // max(1, tiles)))
        find = self._find_fused if self._fused and tiles and fits_kernels(k) else self._find
        return concatenate([find(part, k, min(k + SPARE_TILES, tiles)) for part in parts], queries.device)

    def without_codes(self) -> ScanIndex:
        """Return an index of the same keys that does not scan codes first."""
        other = copy(self)
        other._codes = None
        return other

    def _find_fused(self, queries: Tensor, k: int, width: int) -> Neighbours:
        from ibidem.retrieve.gpu import scan_kernels

        if self._codes is None:
            minima, groups = scan_kernels.float16_minima(queries, self._keys, self._squares, TILE)
        else:
            minima, groups = scan_kernels.int8_minima(queries, self._codes, TILE)
        tiles = scan_kernels.choose_tiles(minima, groups, self._starts, width, scan_kernels.GROUP)
        distances = scan_kernels.measure_tiles(queries, self._keys, self._squares, tiles, TILE)
        return Neighbours(*scan_kernels.pick_nearest(distances, tiles, None, k))

    def _find(self, queries: Tensor, k: int, width: int) -> Neighbours:
        clean, usable = clean_queries(queries)
        if self._codes is None:
            minima = tile_minima(round_queries(clean, self._keys.dtype), self._keys, self._squares)
        else:
            minima = code_minima(clean, self._codes)
        tiles = minima.topk(width, dim=1, largest=False, sorted=False).indices
        distances = measure_tiles(clean, self._keys, self._squares, tiles)
        entries = tiles[:, :, None] * TILE + torch.arange(TILE, device=self._device)
        return blank_unusable(*pick_nearest(distances.flatten(1), entries.flatten(1), k), usable)


def has_kernels(keys: Tensor) -> bool:
    """Return whether Triton kernels can search keys of this type, dimension and device.

    Args:
        keys: [n, d], on the device where they are searched.
    """
    if not runs_triton(keys) or keys.dtype != torch.float16:
        return False
    from ibidem.retrieve.gpu import scan_kernels

    return scan_kernels.supports(keys.shape[1])


def fits_kernels(k: int) -> bool:
    """Return whether the kernels can find this many neighbours.

    Args:
        k: neighbours for each query.
    """
    from ibidem.retrieve.gpu import scan_kernels

    return k <= scan_kernels.MOST_NEIGHBOURS


def concatenate(parts: list[Neighbours], device: torch.device) -> Neighbours:
    """Concatenate the results of consecutive queries on one device.

    Args:
        parts: the results, in the order of the queries; at least one.
        device: where the whole result is moved to.
    """
    whole = parts[0] if len(parts) == 1 else Neighbours(*(torch.cat(columns) for columns in zip(*parts, strict=True)))
    return Neighbours(*(column.to(device) for column in whole))


def round_queries(queries: Tensor, kind: torch.dtype) -> Tensor:
    """Round queries to the type of the keys, clamped to its range.

    Args:
        queries: [q, d].
        kind: the type of the keys, float16 or float32.

    Returns:
        [q, d] of that type.
    """
    most = torch.finfo(kind).max
    return queries.clamp(-most, most).to(kind)


def tile_minima(queries: Tensor, keys: Tensor, squares: Tensor) -> Tensor:
    """Compute the lowest |x|² - 2 q·x of each tile.

    Args:
        queries: [q, d], in the type of the keys.
        keys: [n, d], n a multiple of TILE.
        squares: [n] float32, squared lengths, inf where there is no key.

    Returns:
        [q, n / TILE] float32.
    """
    rows = max(TILE, _SCORES // max(1, len(queries)) // TILE * TILE)
    minima = torch.empty(len(queries), len(keys) // TILE, device=keys.device)
    for start in range(0, len(keys), rows):
        piece = slice(start, start + rows)
        scores = squares[piece] - 2 * multiply_float16(queries, keys[piece].T)
        minima[:, start // TILE : (start + scores.shape[1]) // TILE] = scores.view(len(queries), -1, TILE).amin(2)
    return minima


def code_minima(queries: Tensor, codes: Int8Codes) -> Tensor:
    """Compute the minima of `tile_minima` from int8 codes, in units of the codes.

    Args:
        queries: [q, d], not yet encoded.
        codes: of n keys, n a multiple of TILE.

    Returns:
        [q, n / TILE] float32.
    """
    squares = codes.squares.float().masked_fill(codes.squares >= NO_CODE, torch.inf)
    # Integers below 2^24: float32 products of codes are exact.
    return tile_minima(codes.encode(queries).float(), codes.codes.float(), squares)


def measure_tiles(queries: Tensor, keys: Tensor, squares: Tensor, tiles: Tensor) -> Tensor:
    """Compute the squared distances of the keys of some tiles.

    Args:
        queries: [q, d] float32.
        keys: [n, d], n a multiple of TILE.
        squares: [n] float32, squared lengths, inf where there is no key.
        tiles: [q, w] int64, the tiles of each query.

    Returns:
        [q, w, TILE] float32, inf where there is no key.
    """
    distances = torch.empty(*tiles.shape, TILE, device=keys.device)
    tiled, lengths = keys.view(-1, TILE, keys.shape[1]), squares.view(-1, TILE)
    for column in range(tiles.shape[1]):
        chosen = tiles[:, column]
        measured = (queries[:, None] - tiled[chosen].float()).square().sum(2)
        distances[:, column] = measured.masked_fill(torch.isinf(lengths[chosen]), torch.inf)
    return distances


def pick_nearest(distances: Tensor, entries: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Pick the first k of each row by (distance, entry).

    Both are packed into one integer, since a float that is not negative is ordered like its bits.

    Args:
        distances: [q, c] float32, at least 0.
        entries: [q, c] int64, below 2^32.
        k: how many to pick.

    Returns:
        Distances and entries, each [q, k], inf and -1 where there are fewer.
    """
    packed = (distances.view(torch.int32).long() << _ENTRY_BITS) | entries
    first = packed.topk(min(k, packed.shape[1]), dim=1, largest=False, sorted=True).values
    near = (first >> _ENTRY_BITS).int().view(torch.float32)
    found = (first & (2**_ENTRY_BITS - 1)).masked_fill(torch.isinf(near), -1)
    missing = (0, k - near.shape[1])
    return torch.nn.functional.pad(near, missing, value=torch.inf), torch.nn.functional.pad(found, missing, value=-1)
