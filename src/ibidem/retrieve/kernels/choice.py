"""From minima to neighbours: the best tiles of each query, the true distances in them, and the k nearest keys.

`torch.topk` over rows this long is a chain of some eight kernels. Here one program a query takes the lowest groups one
after the other, then the lowest tiles in them: the w lowest tiles lie in at most w groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from torch import Tensor

# Neighbours that one program can pick: it holds the keys of all their tiles, 64 with the spare ones. Pruning asks for
# 33 of every entry (twice k, and itself), which without kernels would be a scan of all keys for each.
MOST = 56

_GROUPS_AT_ONCE = 8192
_PIECE = 64


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def lowest(values, numbers):  # type: ignore[no-untyped-def]
    """The lowest of some values, and the first number among those that have it."""
    low = tl.min(values, axis=0)
    return low, tl.min(tl.where(values == low, numbers, 2147483647), axis=0)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _choose(  # type: ignore[no-untyped-def]
    minima,
    groups,
    starts,
    chosen,
    tiles,
    group_count,
    chunks: tl.constexpr,
    width: tl.constexpr,
    block: tl.constexpr,
    wide: tl.constexpr,
    span: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    number = tl.arange(0, block)
    slot = tl.arange(0, wide)
    # The worst of those held gives way to what is lower; there is nothing in the slots behind `width` to give way.
    held = tl.where(slot < width, float("inf"), float("-inf"))
    best = tl.full((wide,), -1, tl.int32)
    for chunk in range(chunks):
        group = chunk * block + number
        lows = tl.load(groups + row * group_count + group, mask=group < group_count, other=float("inf"))
        low, place = lowest(lows, number)
        worst = tl.max(held, axis=0)
        while low < worst:
            weakest = tl.min(tl.where(held == worst, slot, wide), axis=0)
            best = tl.where(slot == weakest, chunk * block + place, best)
            held = tl.where(slot == weakest, low, held)
            lows = tl.where(number == place, float("inf"), lows)
            low, place = lowest(lows, number)
            worst = tl.max(held, axis=0)
    there = best >= 0
    first = tl.load(starts + best, mask=there, other=0)
    end = tl.load(starts + best + 1, mask=there, other=0)
    tile = first[:, None] + tl.arange(0, span)[None, :]
    lows = tl.load(minima + row * tiles + tile, mask=tile < end[:, None], other=float("inf"))
    lows = tl.reshape(lows, (wide * span,))
    tile = tl.reshape(tile, (wide * span,))
    number = tl.arange(0, wide * span)
    for turn in range(width):
        low, place = lowest(lows, number)
        found = tl.sum(tl.where(number == place, tile, 0), axis=0)
        tl.store(chosen + row * width + turn, tl.where(low < float("inf"), found, -1))
        lows = tl.where(number == place, float("inf"), lows)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _measure(  # type: ignore[no-untyped-def]
    queries, keys, squares, chosen, distances, width, dimension: tl.constexpr, step: tl.constexpr, size: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    place = row * width + tl.program_id(1)
    key = tl.load(chosen + place).to(tl.int64) * size + tl.arange(0, size)
    there = key >= 0
    component = tl.arange(0, step)
    total = tl.zeros((size,), tl.float32)
    length = 0.0
    for start in tl.static_range(0, dimension, step):
        query = tl.load(queries + row * dimension + start + component)
        part = tl.load(keys + key[:, None] * dimension + start + component[None, :], mask=there[:, None], other=0.0)
        difference = query[None, :] - part.to(tl.float32)
        total += tl.sum(difference * difference, axis=1)
        length += tl.sum(query * query, axis=0)
    # A query that has no distance to anything has no neighbour either.
    reach = tl.where(length < 1.329227995784916e36, float("inf"), float("-inf"))
    there = tl.load(squares + key, mask=there, other=float("inf")) < reach
    tl.store(distances + place * size + tl.arange(0, size), tl.where(there, total, float("inf")))


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _pick(  # type: ignore[no-untyped-def]
    distances,
    chosen,
    order,
    near,
    entries,
    width: tl.constexpr,
    k: tl.constexpr,
    mapped: tl.constexpr,
    wide: tl.constexpr,
    size: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    candidate = tl.arange(0, wide * size)
    shown = candidate < width * size
    distance = tl.load(distances + row * width * size + candidate, mask=shown, other=float("inf"))
    tile = tl.load(chosen + row * width + candidate // size, mask=shown, other=0)
    entry = tl.maximum(tile, 0) * size + candidate % size
    if mapped:
        entry = tl.load(order + entry, mask=shown & (distance < float("inf")), other=0)
    for turn in range(k):
        low, first = lowest(distance, entry)
        tl.store(near + row * k + turn, low)
        tl.store(entries + row * k + turn, tl.where(low < float("inf"), first, -1).to(tl.int64))
        distance = tl.where((distance == low) & (entry == first), float("inf"), distance)


def choose_tiles(minima: Tensor, groups: Tensor, starts: Tensor, width: int, span: int) -> Tensor:
    """The tiles with the lowest minima [q, width] int32, -1 where all others are at infinity.

    minima: [q, tiles]; groups: [q, g], the lowest of each group's tiles; starts: [g + 1] int32, the first tile of each
    group; span: the most tiles of a group. Minima of a group at infinity are not looked at.
    """
    rows, tiles = minima.shape
    count = groups.shape[1]
    block = min(_GROUPS_AT_ONCE, triton.next_power_of_2(count))
    chosen = torch.empty(rows, width, dtype=torch.int32, device=minima.device)
    _choose[(rows,)](
        minima,
        groups,
        starts,
        chosen,
        *(tiles, count),
        chunks=triton.cdiv(count, block),
        width=width,
        block=block,
        wide=triton.next_power_of_2(width),
        span=triton.next_power_of_2(span),
        num_warps=8 if block > 2048 else 4,
    )
    return chosen


def measure_tiles(queries: Tensor, keys: Tensor, squares: Tensor, tiles: Tensor, size: int) -> Tensor:
    """Squared distances [q, w, size] of the keys of some tiles [q, w]; inf where there is no tile, key or usable query.

    queries: [q, d] float32; keys: [n, d] float16.
    """
    rows, width = tiles.shape
    distances = torch.empty(rows, width, size, device=queries.device)
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
        size=size,
        num_warps=4,
    )
    return distances


def pick(distances: Tensor, tiles: Tensor, order: Tensor | None, k: int) -> tuple[Tensor, Tensor]:
    """The k first [q, k] of the keys of some tiles by (distance, entry); entry -1 at infinity.

    distances: [q, w, size] of the keys of tiles [q, w]; order: [n] int32, the entry of each place, or None where key n
    is entry n.
    """
    rows, width, size = distances.shape
    near = torch.empty(rows, k, device=distances.device)
    entries = torch.empty(rows, k, dtype=torch.int64, device=distances.device)
    wide = triton.next_power_of_2(width)
    _pick[(rows,)](
        distances,
        tiles,
        tiles if order is None else order,
        near,
        entries,
        width=width,
        k=k,
        mapped=order is not None,
        wide=wide,
        size=size,
        num_warps=8 if wide > 16 else 4,
    )
    return near, entries
