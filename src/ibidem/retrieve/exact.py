"""Exact search: rough scores of all keys, a proven margin, and true distances of the few that can win.

1. Score all keys roughly, block by block, and keep a shortlist of the k best and some spares. In a block only
   the tiles of 128 keys with the lowest minima are looked into: the c best keys lie in at most c tiles.
2. Compute the true distances of the shortlist from the differences q - x in float64.
3. All other keys score at least as high as the worst of the shortlist; take the rounding bound off that
   score, and if the k-th true distance lies below, no other key can be among the k nearest.
4. Queries that fail this test (many duplicates, or long vectors close together) are scanned once more, and
   now every key whose score, given the bound, could belong to the k nearest is measured.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ibidem.errors import UsageError
from ibidem.retrieve.held import TILE, HeldKeys, check_device
from ibidem.retrieve.neighbours import Neighbours, blank_unusable, check_search, clean_queries
from ibidem.retrieve.scores import error_bound, make_scorer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ibidem.retrieve.keys import Keys

# Scores made at once: 32 MiB on the CPU (measured: less costs time), on CUDA enough to keep it busy, 1 GiB.
_CPU_SCORES = 2**23
_CUDA_SCORES = 2**28
# Components of difference vectors in float64 held at once.
_DIFFERENCES = 2**22
# Far above what float64 loses in a sum of a few thousand squares.
_FLOAT64_SLACK = 1e-11


class ExactIndex:
    """All keys scanned at every search: the true nearest neighbours, ordered by distance and then by entry.

    block_rows: the most keys read and scored at once (given None: by the size of scores and keys);
    resident_bytes: the most bytes of keys to hold on the device (given None: 2 GiB on the CPU, four fifths of
    the free memory on CUDA); more keys than that are read from their source at every search.
    Keys that are not finite are never anybody's neighbours.
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
        self._held = HeldKeys(keys, self._device, resident_bytes=resident_bytes, read_rows=block_rows)
        self.size = keys.size
        self.dimension = keys.dimension

    @property
    def description(self) -> str:
        """One line for cards and logs."""
        kind = str(self._held.key_type).removeprefix("torch.")
        place = f"{kind} on {self._device}" if self._held.resident else f"read in blocks, {self._device}"
        return f"exact, {self.size} keys of {self.dimension} dimensions, {place}"

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """Find the k nearest keys of each query; queries: [q, d], any float type, on any device."""
        check_search(queries, k, self.dimension)
        clean, usable = clean_queries(queries.to(self._device))
        distances, entries = self._nearest(clean, k)
        missing = k - distances.shape[1]
        distances = torch.nn.functional.pad(distances, (0, missing), value=torch.inf).float()
        entries = torch.nn.functional.pad(entries, (0, missing), value=-1)
        found = blank_unusable(distances, entries, usable)
        return Neighbours(found.distances.to(queries.device), found.entries.to(queries.device))

    def without(self, entries: NDArray[np.int64]) -> ExactIndex:
        """This index, in which these entries are not found; it shares the keys."""
        copied = copy.copy(self)
        copied._held = self._held.without(torch.from_numpy(entries))
        return copied

    def _nearest(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Search usable queries [q, d]; gives distances (float64) and entries, each [q, at most k]."""
        wanted = k + k // 2 + 16
        scores, entries = self._shortlist(queries, wanted)
        entries = entries.masked_fill(torch.isinf(scores), -1)
        distances, entries = order_rows(self._measure(queries, entries), entries, k)
        if scores.shape[1] < wanted or len(queries) == 0:
            return distances, entries

        squares = queries.double().square().sum(1)
        bound = error_bound(squares.sqrt(), self._held.longest, self.dimension, self._held.key_type)
        worst = distances[:, -1] * (1 + _FLOAT64_SLACK)
        unseen = scores.amax(1).double() + squares - bound
        doubtful = ((worst >= unseen) & torch.isfinite(unseen)).nonzero()[:, 0]
        if len(doubtful):
            limits = (worst - squares + bound)[doubtful]
            distances[doubtful], entries[doubtful] = self._measure_all_below(queries[doubtful], limits, k)
        return distances, entries

    def _shortlist(self, queries: Tensor, wanted: int) -> tuple[Tensor, Tensor]:
        """Find the wanted lowest rough scores of each query, all where there are fewer.

        Gives scores and entries, [q, at most wanted], in no order; the score is inf where there is no key.
        """
        score = make_scorer(queries, self._held.key_type)
        scores = torch.empty(len(queries), 0, device=self._device)
        entries = torch.empty(len(queries), 0, dtype=torch.int64, device=self._device)
        budget = _CUDA_SCORES if self._device.type == "cuda" else _CPU_SCORES
        for block in self._held.blocks(self._rows(len(queries), budget)):
            new_scores, columns = lowest_by_tiles(score(block.keys, block.squares), wanted)
            scores = torch.cat([scores, new_scores], 1)
            entries = torch.cat([entries, columns + block.start], 1)
            if scores.shape[1] > wanted:
                scores, kept = scores.topk(wanted, largest=False, sorted=False)
                entries = entries.gather(1, kept)
        return scores, entries

    def _measure(self, queries: Tensor, entries: Tensor) -> Tensor:
        """Compute true distances; queries [q, d], entries [q, c], gives [q, c] float64, inf for entry -1."""
        count, width = entries.shape
        distances = torch.empty(count, width, dtype=torch.float64, device=self._device)
        step = max(1, _DIFFERENCES // max(1, width * self.dimension))
        for start in range(0, count if width else 0, step):
            rows = slice(start, start + step)
            keys = self._held.gather(entries[rows].clamp(min=0).flatten()).view(-1, width, self.dimension)
            distances[rows] = (queries[rows, None].double() - keys).square_().sum(2)
        return distances.masked_fill(entries < 0, torch.inf)

    def _measure_all_below(self, queries: Tensor, limits: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Find the k nearest among all keys whose rough score is at most the query's limit.

        queries: [q, d]; limits: [q] float64, such that at least k keys pass; gives [q, k] float64 and int64.
        """
        score = make_scorer(queries, self._held.key_type)
        ceilings = torch.nextafter(limits.float(), torch.full_like(limits, torch.inf, dtype=torch.float32))
        row = torch.empty(0, dtype=torch.int64, device=self._device)
        entry, distance = row, row.double()
        for block in self._held.blocks(self._rows(len(queries), _CPU_SCORES)):
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
        """Say how many keys to score at once: whole tiles, and about budget scores."""
        rows = self._block_rows if self._block_rows is not None else budget // max(1, queries)
        return max(TILE, rows // TILE * TILE)


def lowest_by_tiles(scores: Tensor, wanted: int) -> tuple[Tensor, Tensor]:
    """Find the wanted lowest scores of each row, all where there are fewer; scores: [q, n], n whole tiles.

    Gives the scores and their columns, each [q, min(wanted, n)], in no order.
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
    """Keep the k first of each row by (distance, entry); distances, entries: [q, c], gives [q, min(k, c)]."""
    by_entry = entries.argsort(dim=1)
    by_distance = distances.gather(1, by_entry).argsort(dim=1, stable=True)
    chosen = by_entry.gather(1, by_distance[:, :k])
    return distances.gather(1, chosen), entries.gather(1, chosen)


def measure_pairs(queries: Tensor, row: Tensor, keys: Tensor, column: Tensor) -> Tensor:
    """Compute the true distances of pairs (query row, key column); row, column: [n], gives [n] float64."""
    step = max(1, _DIFFERENCES // queries.shape[1])
    distances = torch.empty(len(row), dtype=torch.float64, device=row.device)
    for start in range(0, len(row), step):
        piece = slice(start, start + step)
        distances[piece] = (queries[row[piece]].double() - keys[column[piece]].double()).square_().sum(1)
    return distances


def keep_nearest(row: Tensor, distance: Tensor, entry: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Keep the k nearest pairs of each row, sorted by (row, distance, entry).

    row, distance, entry: [n]; pairs of one row and one distance must come with rising entries.
    """
    order = distance.argsort(stable=True)
    order = order[row[order].argsort(stable=True)]
    sorted_row = row[order]
    rank = torch.arange(len(order), device=row.device) - torch.searchsorted(sorted_row, sorted_row)
    kept = order[rank < k]
    return row[kept], distance[kept], entry[kept]
