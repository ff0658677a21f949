"""One pass over all keys for all queries: the lowest score of every tile, and of every group of eight tiles.

Programs hold a block of queries and stream tiles past it. With d = 64 and float16 keys the bytes of the keys (132 each)
bound up to some 100 queries; matrix units, and the minimum of every score, bound more. int8 codes halve the bytes and
double the rate of products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl

from ibidem.retrieve.codes import NO_CODE

if TYPE_CHECKING:
    from torch import Tensor

    from ibidem.retrieve.codes import Codes

# Tiles that one program looks at: 32 bytes of minima for each query, what a device writes at once.
GROUP = 8
# Components multiplied at once; a key of more is taken in pieces.
PIECE = 64


class Launch(NamedTuple):
    """How a kernel is laid out: queries in a block, warps, and tiles on their way at once."""

    block: int
    warps: int
    stages: int


def supports(dimension: int) -> bool:
    """Whether keys of so many components can be scanned: matrix units want 16, 32, or whole pieces of 64."""
    return dimension in (16, 32) or dimension % PIECE == 0


def launches(rows: int, dimension: int) -> list[Launch]:
    """Layouts that suit so many queries, the one that is used first; a benchmark compares them.

    Queries and the tiles on their way must fit what programs share, 99 KiB on most devices and 227 on large ones.
    """
    block = 16 if rows <= 16 else 32 if rows <= 32 else 64
    if dimension > PIECE:
        return [Launch(block if dimension <= 8 * PIECE else min(block, 32), 4, 2 if dimension == 2 * PIECE else 1)]
    if rows <= 16:
        return [Launch(16, 4, 4), Launch(16, 2, 4), Launch(16, 4, 5)]
    if rows <= 64:
        return [Launch(block, 4, 4), Launch(block, 4, 3), Launch(96 - block, 4, 4)]
    return [Launch(64, 4, 4), Launch(128, 4, 3), Launch(128, 8, 3), Launch(128, 8, 4)]


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def usable_rows(queries, row, inside, dimension: tl.constexpr, step: tl.constexpr):  # type: ignore[no-untyped-def]
    """Which queries have a distance to anything: finite ones whose squared length is below 2^120."""
    component = tl.arange(0, step)
    place = queries + row[:, None].to(tl.int64) * dimension + component[None, :]
    part = tl.load(place, mask=inside[:, None], other=0.0)
    total = tl.sum(part * part, axis=1)
    for start in tl.static_range(step, dimension, step):
        part = tl.load(place + start, mask=inside[:, None], other=0.0)
        total += tl.sum(part * part, axis=1)
    return inside & (total < 1.329227995784916e36)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def halves(queries, row, usable, start, dimension: tl.constexpr, step: tl.constexpr):  # type: ignore[no-untyped-def]
    """A piece [block, step] of queries, rounded to float16; zeros where one is not usable."""
    component = start + tl.arange(0, step)
    part = tl.load(
        queries + row[:, None].to(tl.int64) * dimension + component[None, :], mask=usable[:, None], other=0.0
    )
    return tl.minimum(tl.maximum(part, -65504.0), 65504.0).to(tl.float16)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def coded(queries, row, usable, start, mean, scale, dimension: tl.constexpr, step: tl.constexpr):  # type: ignore[no-untyped-def]
    """A piece [block, step] of queries as int8 codes."""
    component = start + tl.arange(0, step)
    part = tl.load(
        queries + row[:, None].to(tl.int64) * dimension + component[None, :], mask=usable[:, None], other=0.0
    )
    part = tl.floor((part - tl.load(mean + component)[None, :]) * tl.load(scale) + 0.5)
    return tl.minimum(tl.maximum(part, -127.0), 127.0).to(tl.int8)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _halves_minima(  # type: ignore[no-untyped-def]
    queries,
    keys,
    squares,
    minima,
    groups,
    rows,
    tiles,
    group_count,
    row_blocks,
    dimension: tl.constexpr,
    step: tl.constexpr,
    size: tl.constexpr,
    block: tl.constexpr,
    count: tl.constexpr,
    stages: tl.constexpr,
):
    # Programs that read the same keys run side by side, so that all but the first find them in the cache.
    program = tl.program_id(0)
    row = (program % row_blocks) * block + tl.arange(0, block)
    group = program // row_blocks
    inside = row < rows
    usable = usable_rows(queries, row, inside, dimension, step)
    component = tl.arange(0, step)
    member = tl.arange(0, size)
    column = tl.arange(0, count)
    low = tl.full((block, count), float("inf"), tl.float32)
    query = halves(queries, row, usable, 0, dimension, step)
    for number in tl.range(0, count, num_stages=stages):
        # Behind the last tile it is looked at again: nothing in the loop depends on where the keys end.
        key = tl.minimum(group * count + number, tiles - 1).to(tl.int64) * size + member
        place = keys + key[:, None] * dimension + component[None, :]
        products = tl.dot(query, tl.trans(tl.load(place)))
        for start in tl.static_range(step, dimension, step):
            products = tl.dot(
                halves(queries, row, usable, start, dimension, step), tl.trans(tl.load(place + start)), products
            )
        scores = tl.load(squares + key)[None, :] - 2.0 * products
        low = tl.where(column[None, :] == number, tl.min(scores, axis=1)[:, None], low)
    tile = group * count + column
    shown = inside[:, None] & (tile < tiles)[None, :]
    tl.store(minima + row[:, None].to(tl.int64) * tiles + tile[None, :], low, mask=shown)
    tl.store(groups + row.to(tl.int64) * group_count + group, tl.min(low, axis=1), mask=inside)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _codes_minima(  # type: ignore[no-untyped-def]
    queries,
    mean,
    scale,
    codes,
    squares,
    minima,
    groups,
    rows,
    tiles,
    group_count,
    row_blocks,
    dimension: tl.constexpr,
    step: tl.constexpr,
    size: tl.constexpr,
    block: tl.constexpr,
    count: tl.constexpr,
    stages: tl.constexpr,
    no_code: tl.constexpr,
):
    # As above, in whole numbers: turning every score into a float would cost more than all the rest.
    program = tl.program_id(0)
    row = (program % row_blocks) * block + tl.arange(0, block)
    group = program // row_blocks
    inside = row < rows
    usable = usable_rows(queries, row, inside, dimension, step)
    component = tl.arange(0, step)
    member = tl.arange(0, size)
    column = tl.arange(0, count)
    low = tl.full((block, count), no_code, tl.int32)
    query = coded(queries, row, usable, 0, mean, scale, dimension, step)
    for number in tl.range(0, count, num_stages=stages):
        key = tl.minimum(group * count + number, tiles - 1).to(tl.int64) * size + member
        place = codes + key[:, None] * dimension + component[None, :]
        products = tl.dot(query, tl.trans(tl.load(place)), out_dtype=tl.int32)
        for start in tl.static_range(step, dimension, step):
            piece = coded(queries, row, usable, start, mean, scale, dimension, step)
            products += tl.dot(piece, tl.trans(tl.load(place + start)), out_dtype=tl.int32)
        scores = tl.load(squares + key)[None, :] - 2 * products
        low = tl.where(column[None, :] == number, tl.min(scores, axis=1)[:, None], low)
    lowest = tl.min(low, axis=1)
    tile = group * count + column
    shown = inside[:, None] & (tile < tiles)[None, :]
    found = tl.where(low < no_code // 2, low.to(tl.float32), float("inf"))
    tl.store(minima + row[:, None].to(tl.int64) * tiles + tile[None, :], found, mask=shown)
    best = tl.where(lowest < no_code // 2, lowest.to(tl.float32), float("inf"))
    tl.store(groups + row.to(tl.int64) * group_count + group, best, mask=inside)


def halves_minima(
    queries: Tensor, keys: Tensor, squares: Tensor, size: int, launch: Launch | None = None
) -> tuple[Tensor, Tensor]:
    """The lowest |x|² - 2 q·x in each tile [q, tiles], and in each group of eight tiles [q, groups].

    queries: [q, d] float32 as they are, not usable ones too; keys: [n, d] float16, n whole tiles; squares: [n].
    """
    minima, groups, grid, shape = _prepare(queries, len(keys) // size, launch)
    _halves_minima[grid](
        queries,
        keys,
        squares,
        minima,
        groups,
        *(len(queries), minima.shape[1], groups.shape[1], triton.cdiv(len(queries), shape.block)),
        dimension=queries.shape[1],
        step=min(PIECE, queries.shape[1]),
        size=size,
        block=shape.block,
        count=GROUP,
        stages=shape.stages,
        num_warps=shape.warps,
    )
    return minima, groups


def codes_minima(queries: Tensor, codes: Codes, size: int, launch: Launch | None = None) -> tuple[Tensor, Tensor]:
    """The same of int8 codes, in units of their own."""
    minima, groups, grid, shape = _prepare(queries, len(codes.codes) // size, launch)
    _codes_minima[grid](
        queries,
        codes.mean,
        codes.scale,
        codes.codes,
        codes.squares,
        minima,
        groups,
        *(len(queries), minima.shape[1], groups.shape[1], triton.cdiv(len(queries), shape.block)),
        dimension=queries.shape[1],
        step=min(PIECE, queries.shape[1]),
        size=size,
        block=shape.block,
        count=GROUP,
        stages=shape.stages,
        no_code=NO_CODE,
        num_warps=shape.warps,
    )
    return minima, groups


def _prepare(queries: Tensor, tiles: int, launch: Launch | None) -> tuple[Tensor, Tensor, tuple[int], Launch]:
    rows = len(queries)
    shape = launches(rows, queries.shape[1])[0] if launch is None else launch
    group_count = triton.cdiv(tiles, GROUP)
    minima = torch.empty(rows, tiles, device=queries.device)
    groups = torch.empty(rows, group_count, device=queries.device)
    return minima, groups, (triton.cdiv(rows, shape.block) * group_count,), shape
