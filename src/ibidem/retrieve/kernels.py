"""Triton kernels of the scan: one pass over float16 keys for all queries. Imported only where Triton and CUDA are."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Tiles that one program looks at, one after the other.
_TILES_A_PROGRAM = 8
# Components multiplied at once; a key of more is taken in pieces.
_PIECE = 64


def supports(dimension: int) -> bool:
    """Whether keys of so many components can be scanned: matrix units want 16, 32, or whole pieces of 64."""
    return dimension in (16, 32) or dimension % _PIECE == 0


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _minima(  # type: ignore[no-untyped-def]
    queries,
    keys,
    squares,
    minima,
    rows,
    tiles,
    row_blocks,
    dimension: tl.constexpr,
    step: tl.constexpr,
    size: tl.constexpr,
    block: tl.constexpr,
    count: tl.constexpr,
):
    # Programs that read the same keys run side by side, so that all but the first find them in the cache.
    program = tl.program_id(0)
    row = (program % row_blocks) * block + tl.arange(0, block)
    first = (program // row_blocks) * count
    inside = row < rows
    component = tl.arange(0, step)
    member = tl.arange(0, size)
    for number in range(count):
        tile = first + number
        if tile < tiles:
            key = tile.to(tl.int64) * size + member
            products = tl.zeros((block, size), tl.float32)
            for start in tl.static_range(0, dimension, step):
                query = tl.load(
                    queries + row[:, None] * dimension + start + component[None, :], mask=inside[:, None], other=0.0
                )
                part = tl.load(keys + key[:, None] * dimension + start + component[None, :])
                products = tl.dot(query, tl.trans(part), products)
            scores = tl.load(squares + key)[None, :] - 2.0 * products
            tl.store(minima + row.to(tl.int64) * tiles + tile, tl.min(scores, axis=1), mask=inside)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _measure(  # type: ignore[no-untyped-def]
    queries, keys, squares, chosen, distances, width, dimension: tl.constexpr, step: tl.constexpr, size: tl.constexpr
):
    row = tl.program_id(0)
    place = row.to(tl.int64) * width + tl.program_id(1)
    key = tl.load(chosen + place) * size + tl.arange(0, size)
    component = tl.arange(0, step)
    total = tl.zeros((size,), tl.float32)
    for start in range(0, dimension, step):
        query = tl.load(queries + row.to(tl.int64) * dimension + start + component)
        part = tl.load(keys + key[:, None] * dimension + start + component[None, :]).to(tl.float32)
        difference = query[None, :] - part
        total += tl.sum(difference * difference, axis=1)
    total = tl.where(tl.load(squares + key) < float("inf"), total, float("inf"))
    tl.store(distances + place * size + tl.arange(0, size), total)


def tile_minima(queries: Tensor, keys: Tensor, squares: Tensor, tile: int) -> Tensor:
    """See `scan.tile_minima`; queries and keys float16 on CUDA, contiguous."""
    rows, dimension = queries.shape
    tiles = len(keys) // tile
    minima = torch.empty(rows, tiles, device=queries.device)
    block = 16 if rows <= 16 else 32 if rows <= 32 else 64
    row_blocks = triton.cdiv(rows, block)
    _minima[(row_blocks * triton.cdiv(tiles, _TILES_A_PROGRAM),)](
        queries,
        keys,
        squares,
        minima,
        rows,
        tiles,
        row_blocks,
        dimension=dimension,
        step=min(_PIECE, dimension),
        size=tile,
        block=block,
        count=_TILES_A_PROGRAM,
        num_warps=4,
    )
    return minima


def measure_tiles(queries: Tensor, keys: Tensor, squares: Tensor, tiles: Tensor, tile: int) -> Tensor:
    """See `scan.measure_tiles`; queries float32, keys float16 on CUDA, contiguous."""
    rows, width = tiles.shape
    distances = torch.empty(rows, width, tile, device=queries.device)
    dimension = queries.shape[1]
    _measure[(rows, width)](
        queries,
        keys,
        squares,
        tiles,
        distances,
        width,
        dimension=dimension,
        step=min(_PIECE, dimension),
        size=tile,
        num_warps=4,
    )
    return distances
