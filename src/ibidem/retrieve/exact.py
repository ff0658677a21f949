"""Exact search: approximate scores of all keys, an error bound, and true distances of the few possible neighbours.

1. Score all keys approximately, block by block, and keep a shortlist of the k best and some spares. In a block only
   the tiles of 128 keys with the lowest minima are examined: the c best keys lie in at most c tiles.
2. Compute the true distances of the shortlist from the differences q - x in float64.
3. All other keys score at least as high as the worst of the shortlist. Subtract the error bound from that score: if
   the k-th true distance lies below the result, no other key can be among the k nearest.
4. Scan once more for the queries that fail this test (many duplicates, or long vectors close together), and measure
   every key whose score, given the bound, could belong to the k nearest.

The score |x|² - 2 q·x differs from the squared distance |q - x|² only by |q|², so it orders the keys of one query
alike. It costs one matrix product, but loses digits where the vectors are long and the distances short.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ibidem.errors import UsageError
from ibidem.retrieve.index import Neighbours, blank_unusable, check_search, clean_queries
from ibidem.retrieve.keys import TILE, ResidentKeys, check_device

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ibidem.retrieve.keys import Keys

# (keys [n, d], squared lengths [n] float32) -> scores [q, n] float32
Scorer = Callable[[Tensor, Tensor], Tensor]

# Scores computed at once: 32 MiB on the CPU; 1 GiB on CUDA, to occupy the device.
_CPU_SCORES = 2**23
_CUDA_SCORES = 2**28
# Components of difference vectors in float64 in memory at once.
_DIFFERENCES = 2**22
# Far above what float64 loses in a sum of a few thousand squares.
_FLOAT64_SLACK = 1e-11
# Rounding to nearest in float32, as CPU products do.
_FLOAT32_UNIT = 2.0**-24
# Tensor cores truncate instead of rounding, and the split query itself is accurate to 22 bits.
_FLOAT16_UNIT = 2.0**-22
# Each step may also lose what lies below the normal float32 numbers.
_UNDERFLOW = 2.0**-120
_FLOAT64_ELEMENTS = 2**22


class ExactIndex:
    """Scan all keys at every search and return the true nearest neighbours, by distance and then by entry.

    Keys that are not finite are never found.

    Args:
        keys: the keys to search.
        device: where the keys are scanned.
        block_rows: the most keys read and scored at once; None for a default by the size of scores and keys.
        resident_bytes: the most bytes of resident keys; None for 2 GiB on the CPU and four fifths of the free memory
            on CUDA. More keys than that are read from their source at every search.

    Raises:
        UsageError: The device or block_rows is invalid.

    Examples:
        >>> import numpy as np, torch
        >>> from ibidem.retrieve import ArrayKeys, ExactIndex
        >>> index = ExactIndex(ArrayKeys(np.array([[0, 0], [3, 4]], np.float16)))
        >>> index.search(torch.zeros(1, 2), k=2).distances.tolist()
        [[0.0, 25.0]]
    """

    supports_cuda_graph = False

    def __init__(
        self,
        keys: Keys,
        device: str | torch.device = "cpu",
        *,
        block_rows: int | None = None,
        resident_bytes: int | None = None,
    ) -> None:
        if block_rows is not None and block_rows < 1:
            raise UsageError(f"Exact search got block_rows = {block_rows}. Give 1 or more, or None.")
        self._device = check_device(device)
        self._block_rows = block_rows
        self._keys = ResidentKeys(keys, self._device, resident_bytes=resident_bytes, read_rows=block_rows)
        self.size = keys.size
        self.dimension = keys.dimension

    @property
    def description(self) -> str:
        """One line for memory cards and logs."""
        kind = str(self._keys.key_type).removeprefix("torch.")
        place = f"{kind} on {self._device}" if self._keys.resident else f"read in blocks, {self._device}"
        return f"exact, {self.size} keys of {self.dimension} dimensions, {place}"

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """Find the k nearest keys of each query [q, d]; see `Index.search`."""
        distances, entries = self.search_precisely(queries, k)
        return Neighbours(distances.float(), entries)

    def search_precisely(self, queries: Tensor, k: int) -> Neighbours:
        """Find the k nearest keys of each query [q, d], with distances in float64; see `Index.search`."""
        check_search(queries, k, self.dimension)
        clean, usable = clean_queries(queries.to(self._device))
        distances, entries = self._nearest(clean, k)
        missing = k - distances.shape[1]
        distances = torch.nn.functional.pad(distances, (0, missing), value=torch.inf)
        entries = torch.nn.functional.pad(entries, (0, missing), value=-1)
        found = blank_unusable(distances, entries, usable)
        return Neighbours(found.distances.to(queries.device), found.entries.to(queries.device))

    def without(self, entries: NDArray[np.int64]) -> ExactIndex:
        """Return an index that shares the keys and does not find these entries."""
        copied = copy.copy(self)
        copied._keys = self._keys.without(torch.from_numpy(entries))
        return copied

    def _nearest(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Search usable queries [q, d]; returns distances (float64) and entries, each [q, at most k]."""
        wanted = k + k // 2 + 16
        scores, entries = self._shortlist(queries, wanted)
        entries = entries.masked_fill(torch.isinf(scores), -1)
        distances, entries = order_rows(self._measure(queries, entries), entries, k)
        if scores.shape[1] < wanted or len(queries) == 0:
            return distances, entries

        squares = queries.double().square().sum(1)
        bound = error_bound(squares.sqrt(), self._keys.longest, self.dimension, self._keys.key_type)
        worst = distances[:, -1] * (1 + _FLOAT64_SLACK)
        unseen = scores.amax(1).double() + squares - bound
        doubtful = ((worst >= unseen) & torch.isfinite(unseen)).nonzero()[:, 0]
        if len(doubtful):
            limits = (worst - squares + bound)[doubtful]
            distances[doubtful], entries[doubtful] = self._measure_all_below(queries[doubtful], limits, k)
        return distances, entries

    def _shortlist(self, queries: Tensor, wanted: int) -> tuple[Tensor, Tensor]:
        """Find the keys with the lowest approximate scores of each query.

        Returns scores and entries, [q, at most wanted], in no order; the score is inf where there is no key.
        """
        score = make_scorer(queries, self._keys.key_type)
        scores = torch.empty(len(queries), 0, device=self._device)
        entries = torch.empty(len(queries), 0, dtype=torch.int64, device=self._device)
        budget = _CUDA_SCORES if self._device.type == "cuda" else _CPU_SCORES
        for block in self._keys.blocks(self._rows(len(queries), budget)):
            new_scores, columns = lowest_by_tiles(score(block.keys, block.squares), wanted)
            scores = torch.cat([scores, new_scores], 1)
            entries = torch.cat([entries, columns + block.start], 1)
            if scores.shape[1] > wanted:
                scores, kept = scores.topk(wanted, largest=False, sorted=False)
                entries = entries.gather(1, kept)
        return scores, entries

    def _measure(self, queries: Tensor, entries: Tensor) -> Tensor:
        """Compute true distances [q, c] float64 of entries [q, c], inf for entry -1."""
        count, width = entries.shape
        distances = torch.empty(count, width, dtype=torch.float64, device=self._device)
        step = max(1, _DIFFERENCES // max(1, width * self.dimension))
        for start in range(0, count if width else 0, step):
            rows = slice(start, start + step)
            keys = self._keys.gather(entries[rows].clamp(min=0).flatten()).view(-1, width, self.dimension)
            distances[rows] = (queries[rows, None].double() - keys).square_().sum(2)
        return distances.masked_fill(entries < 0, torch.inf)

    def _measure_all_below(self, queries: Tensor, limits: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Find the k nearest among all keys whose approximate score is at most the limit of the query.

        queries: [q, d]; limits: [q] float64, such that at least k keys pass; returns [q, k] float64 and int64.
        """
        score = make_scorer(queries, self._keys.key_type)
        ceilings = torch.nextafter(limits.float(), torch.full_like(limits, torch.inf, dtype=torch.float32))
        row = torch.empty(0, dtype=torch.int64, device=self._device)
        entry, distance = row, row.double()
        for block in self._keys.blocks(self._rows(len(queries), _CPU_SCORES)):
            new_row, column = (score(block.keys, block.squares) <= ceilings[:, None]).nonzero(as_tuple=True)
            if len(new_row) == 0:
                continue
            new_distance = measure_pairs(queries, new_row, block.keys, column)
            row, distance, entry = keep_nearest(
                torch.cat([row, new_row]),
                torch.cat([distance, new_distance]),
                torch.cat([entry, column + block.start]),
                k,
            )
        return distance.view(-1, k), entry.view(-1, k)

    def _rows(self, queries: int, budget: int) -> int:
        """Return how many keys to score at once: whole tiles, and about `budget` scores."""
        rows = self._block_rows if self._block_rows is not None else budget // max(1, queries)
        return max(TILE, rows // TILE * TILE)


def lowest_by_tiles(scores: Tensor, wanted: int) -> tuple[Tensor, Tensor]:
    """Find the lowest scores of each row.

    Args:
        scores: [q, n], n a multiple of TILE.
        wanted: how many scores to find.

    Returns:
        The scores and their columns, each [q, min(wanted, n)], in no order.
    """
    tiled = scores.view(len(scores), scores.shape[1] // TILE, TILE)
    if wanted >= tiled.shape[1]:
        lowest = scores.topk(min(wanted, scores.shape[1]), largest=False, sorted=False)
        return lowest.values, lowest.indices
    tiles = tiled.amin(2).topk(wanted, largest=False, sorted=False).indices
    inside = tiled.gather(1, tiles[:, :, None].expand(-1, -1, TILE)).flatten(1)
    lowest = inside.topk(wanted, largest=False, sorted=False)
    columns = tiles.gather(1, lowest.indices // TILE) * TILE + lowest.indices % TILE
    return lowest.values, columns


def order_rows(distances: Tensor, entries: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Keep the first k of each row, ordered by distance and then by entry.

    Args:
        distances: [q, c].
        entries: [q, c] int64.
        k: columns to keep.

    Returns:
        Distances and entries, each [q, min(k, c)].
    """
    by_entry = entries.argsort(dim=1)
    by_distance = distances.gather(1, by_entry).argsort(dim=1, stable=True)
    chosen = by_entry.gather(1, by_distance[:, :k])
    return distances.gather(1, chosen), entries.gather(1, chosen)


def measure_pairs(queries: Tensor, row: Tensor, keys: Tensor, column: Tensor) -> Tensor:
    """Compute the distances of pairs of a query and a key in float64.

    Args:
        queries: [q, d].
        row: [n] int64, the query of each pair.
        keys: [m, d].
        column: [n] int64, the key of each pair.

    Returns:
        [n] float64, squared distances.
    """
    step = max(1, _DIFFERENCES // queries.shape[1])
    distances = torch.empty(len(row), dtype=torch.float64, device=row.device)
    for start in range(0, len(row), step):
        piece = slice(start, start + step)
        distances[piece] = (queries[row[piece]].double() - keys[column[piece]].double()).square_().sum(1)
    return distances


def keep_nearest(row: Tensor, distance: Tensor, entry: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Keep the k nearest pairs of each row, sorted by (row, distance, entry).

    Args:
        row: [n] int64.
        distance: [n] float64.
        entry: [n] int64, ascending among the pairs of one row and one distance.
        k: pairs to keep in each row.

    Returns:
        The rows, distances and entries of the pairs that are kept.
    """
    order = distance.argsort(stable=True)
    order = order[row[order].argsort(stable=True)]
    sorted_row = row[order]
    rank = torch.arange(len(order), device=row.device) - torch.searchsorted(sorted_row, sorted_row)
    kept = order[rank < k]
    return row[kept], distance[kept], entry[kept]


def make_scorer(queries: Tensor, key_type: torch.dtype) -> Scorer:
    """Make the function that scores keys of one type against queries, without TF32 or bfloat16.

    Args:
        queries: [q, d] float32.
        key_type: float16 or float32.

    Returns:
        A function of keys [n, d] and their squared lengths [n] that returns |x|² - 2 q·x, [q, n] float32.
    """
    if key_type == torch.float16:
        return _float16_scorer(queries)
    if queries.is_cuda or torch.get_float32_matmul_precision() != "highest":
        return _float64_scorer(queries)
    return lambda keys, squares: torch.addmm(squares, queries, keys.T, alpha=-2)


def error_bound(lengths: Tensor, longest: float, dimension: int, key_type: torch.dtype) -> Tensor:
    """Bound |approximate score - true score| for each query.

    A sum of n products has an error of at most n units of the sum of their magnitudes, and that sum is at most
    |q| |x| (Cauchy-Schwarz).

    Args:
        lengths: [q] float64, |q|.
        longest: the largest |x|.
        dimension: the number of components.
        key_type: float16 or float32.

    Returns:
        [q] float64.
    """
    unit = _FLOAT16_UNIT if key_type == torch.float16 else _FLOAT32_UNIT
    sizes = 2 * lengths * longest + longest**2
    return unit * (dimension + 8) * sizes + dimension * _UNDERFLOW


def split_float16(queries: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Write queries as (high + low) x scale, with high and low in float16 and scale a power of two for each row.

    Args:
        queries: [q, d] float32.

    Returns:
        high and low, [q, d] float16, and scale, [q, 1] float32. The sum is accurate to 22 bits of each component, or
        to 2^-39 of the largest component of the row.
    """
    exponent = torch.frexp(queries.abs().amax(1, keepdim=True)).exponent
    shift = (15 - exponent).clamp(-126, 126)
    scaled = queries * _power_of_two(shift)
    high = scaled.to(torch.float16)
    low = (scaled - high.to(torch.float32)).to(torch.float16)
    return high, low, _power_of_two(-shift)


def multiply_float16(left: Tensor, right: Tensor) -> Tensor:
    """Multiply float16 matrices into float32, which only CUDA can do without a wider copy.

    Args:
        left: [m, d] float16.
        right: [d, n] float16.

    Returns:
        [m, n] float32.
    """
    if left.is_cuda and left.dtype == torch.float16:
        return torch.mm(left, right, out_dtype=torch.float32)
    return left.to(torch.float32) @ right.to(torch.float32)


def _power_of_two(exponent: Tensor) -> Tensor:
    """Compute 2^exponent in float32 from its bits, since exp2 need not be exact; exponent: int, -126 to 126."""
    return ((exponent.to(torch.int32) + 127) << 23).view(torch.float32)


def _float16_scorer(queries: Tensor) -> Scorer:
    """Score float16 keys with two float16 products for each query, summed in float32."""
    count = len(queries)
    high, low, scale = split_float16(queries)
    stacked = torch.cat([high, low])
    factor = -2 * scale

    def score(keys: Tensor, squares: Tensor) -> Tensor:
        products = multiply_float16(stacked, keys.T)
        total = products[:count].add_(products[count:])
        return torch.addcmul(squares, total, factor, out=total)

    return score


def _float64_scorer(queries: Tensor) -> Scorer:
    """Score in float64, piece by piece, since the process allows float32 products a lower precision."""
    wide = queries.double()

    def score(keys: Tensor, squares: Tensor) -> Tensor:
        result = torch.empty(len(wide), len(keys), device=wide.device)
        step = max(1, _FLOAT64_ELEMENTS // (keys.shape[1] + len(wide)))
        for start in range(0, len(keys), step):
            piece = slice(start, start + step)
            result[:, piece] = torch.addmm(squares[piece].double(), wide, keys[piece].double().T, alpha=-2)
        return result

    return score
