"""Triton kernels of the scan: minima of all tiles, the best tiles of each query, and the nearest keys in them.

A program of the first pass holds a block of queries and streams tiles of keys past it. Few queries are bound by the
bytes of the keys; many are bound by matrix units and by the minimum of every score. int8 codes halve the bytes and
double the rate of products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl

from ibidem.retrieve.gpu.quantization import NO_CODE

if TYPE_CHECKING:
    from torch import Tensor

    from ibidem.retrieve.gpu.quantization import Int8Codes

# Tiles that one program scans: 32 bytes of minima for each query, which a device writes at once.
GROUP = 8
# Components multiplied at once; longer keys are taken in pieces.
PIECE = 64
# Neighbours that one program can pick: it holds the keys of all their tiles, 64 with the spare ones. Pruning needs 33
# for every entry (twice k, and the entry itself), which without kernels would be a scan of all keys for each.
MOST_NEIGHBOURS = 56

_GROUPS_AT_ONCE = 8192


class Launch(NamedTuple):
    """The launch parameters of a kernel.

    Attributes:
        block: queries in a block.
        warps: warps of a program.
        stages: tiles in flight at once.
    """

    block: int
    warps: int
    stages: int


def supports(dimension: int) -> bool:
    """Return whether keys of this dimension can be scanned: matrix units need 16, 32 or a multiple of 64.

    Args:
        dimension: the number of components of a key.
    """
    return dimension in (16, 32) or dimension % PIECE == 0


def launches(rows: int, dimension: int) -> list[Launch]:
    """Return launch parameters for this many queries, the default first; benchmarks/gpu_search.py compares them.

    The queries and the tiles in flight must fit into shared memory, 99 KiB on most devices and 227 KiB on large ones.

    Args:
        rows: the number of queries.
        dimension: the number of components of a key.
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
    """Find the usable queries: finite ones whose squared length is below 2^120.

    Args:
        queries: pointer to [q, d] float32.
        row: [block], the query of each row.
        inside: [block] bool, whether the row is a query.
        dimension: d.
        step: components loaded at once; divides d.

    Returns:
        [block] bool.
    """
    component = tl.arange(0, step)
    place = queries + row[:, None].to(tl.int64) * dimension + component[None, :]
    part = tl.load(place, mask=inside[:, None], other=0.0)
    total = tl.sum(part * part, axis=1)
    for start in tl.static_range(step, dimension, step):
        part = tl.load(place + start, mask=inside[:, None], other=0.0)
        total += tl.sum(part * part, axis=1)
    return inside & (total < 1.329227995784916e36)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def load_float16(queries, row, usable, start, dimension: tl.constexpr, step: tl.constexpr):  # type: ignore[no-untyped-def]
    """Load a piece [block, step] of queries, rounded to float16; zeros where a query is not usable.

    Args:
        queries: pointer to [q, d] float32.
        row: [block], the query of each row.
        usable: [block] bool, see `usable_rows`.
        start: the first component of the piece.
        dimension: d.
        step: components of the piece.
    """
    component = start + tl.arange(0, step)
    part = tl.load(
        queries + row[:, None].to(tl.int64) * dimension + component[None, :], mask=usable[:, None], other=0.0
    )
    return tl.minimum(tl.maximum(part, -65504.0), 65504.0).to(tl.float16)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def load_int8(queries, row, usable, start, mean, scale, dimension: tl.constexpr, step: tl.constexpr):  # type: ignore[no-untyped-def]
    """Load a piece [block, step] of queries as int8 codes.

    Args:
        queries: pointer to [q, d] float32.
        row: [block], the query of each row.
        usable: [block] bool; the row of another query has the codes of zeros.
        start: the first component of the piece.
        mean: pointer to [d] float32, see `Int8Codes`.
        scale: pointer to [1] float32, see `Int8Codes`.
        dimension: d.
        step: components of the piece.
    """
    component = start + tl.arange(0, step)
    part = tl.load(
        queries + row[:, None].to(tl.int64) * dimension + component[None, :], mask=usable[:, None], other=0.0
    )
    part = tl.floor((part - tl.load(mean + component)[None, :]) * tl.load(scale) + 0.5)
    return tl.minimum(tl.maximum(part, -127.0), 127.0).to(tl.int8)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _float16_minima(  # type: ignore[no-untyped-def]
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
    # Programs that read the same keys are neighbours, so that all but the first read them from the cache.
    program = tl.program_id(0)
    row = (program % row_blocks) * block + tl.arange(0, block)
    group = program // row_blocks
    inside = row < rows
    usable = usable_rows(queries, row, inside, dimension, step)
    component = tl.arange(0, step)
    member = tl.arange(0, size)
    column = tl.arange(0, count)
    low = tl.full((block, count), float("inf"), tl.float32)
    query = load_float16(queries, row, usable, 0, dimension, step)
    for number in tl.range(0, count, num_stages=stages):
        # Past the end the last tile is scanned again, so that the loop does not depend on the number of keys.
        key = tl.minimum(group * count + number, tiles - 1).to(tl.int64) * size + member
        place = keys + key[:, None] * dimension + component[None, :]
        products = tl.dot(query, tl.trans(tl.load(place)))
        for start in tl.static_range(step, dimension, step):
            products = tl.dot(
                load_float16(queries, row, usable, start, dimension, step), tl.trans(tl.load(place + start)), products
            )
        scores = tl.load(squares + key)[None, :] - 2.0 * products
        low = tl.where(column[None, :] == number, tl.min(scores, axis=1)[:, None], low)
    tile = group * count + column
    shown = inside[:, None] & (tile < tiles)[None, :]
    tl.store(minima + row[:, None].to(tl.int64) * tiles + tile[None, :], low, mask=shown)
    tl.store(groups + row.to(tl.int64) * group_count + group, tl.min(low, axis=1), mask=inside)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _int8_minima(  # type: ignore[no-untyped-def]
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
    # As above, in integers: converting every score to float would cost more than all the rest.
    program = tl.program_id(0)
    row = (program % row_blocks) * block + tl.arange(0, block)
    group = program // row_blocks
    inside = row < rows
    usable = usable_rows(queries, row, inside, dimension, step)
    component = tl.arange(0, step)
    member = tl.arange(0, size)
    column = tl.arange(0, count)
    low = tl.full((block, count), no_code, tl.int32)
    query = load_int8(queries, row, usable, 0, mean, scale, dimension, step)
    for number in tl.range(0, count, num_stages=stages):
        key = tl.minimum(group * count + number, tiles - 1).to(tl.int64) * size + member
        place = codes + key[:, None] * dimension + component[None, :]
        products = tl.dot(query, tl.trans(tl.load(place)), out_dtype=tl.int32)
        for start in tl.static_range(step, dimension, step):
            piece = load_int8(queries, row, usable, start, mean, scale, dimension, step)
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


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def lowest(values, numbers):  # type: ignore[no-untyped-def]
    """Find the lowest of some values, and the first number among those that have it.

    Args:
        values: [n].
        numbers: [n] int32, a number for each value.
    """
    low = tl.min(values, axis=0)
    return low, tl.min(tl.where(values == low, numbers, 2147483647), axis=0)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _choose_tiles(  # type: ignore[no-untyped-def]
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
    # A lower group replaces the worst one held; the slots after `width` are never replaced.
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
def _measure_tiles(  # type: ignore[no-untyped-def]
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
    # An unusable query has no neighbours.
    reach = tl.where(length < 1.329227995784916e36, float("inf"), float("-inf"))
    there = tl.load(squares + key, mask=there, other=float("inf")) < reach
    tl.store(distances + place * size + tl.arange(0, size), tl.where(there, total, float("inf")))


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _pick_nearest(  # type: ignore[no-untyped-def]
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


def float16_minima(
    queries: Tensor, keys: Tensor, squares: Tensor, size: int, launch: Launch | None = None
) -> tuple[Tensor, Tensor]:
    """Compute the lowest |x|² - 2 q·x of each tile and of each group of eight tiles.

    Args:
        queries: [q, d] float32, including unusable ones.
        keys: [n, d] float16, n a multiple of size.
        squares: [n] float32, squared lengths, inf where there is no key.
        size: keys in a tile.
        launch: launch parameters; None for the default.

    Returns:
        [q, tiles] and [q, groups], float32.
    """
    minima, groups, grid, shape = _prepare(queries, len(keys) // size, launch)
    _float16_minima[grid](
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


def int8_minima(queries: Tensor, codes: Int8Codes, size: int, launch: Launch | None = None) -> tuple[Tensor, Tensor]:
    """Compute the minima of `float16_minima` from int8 codes, in units of the codes.

    Args:
        queries: [q, d] float32, not yet encoded.
        codes: of n keys, n a multiple of size.
        size: keys in a tile.
        launch: launch parameters; None for the default.

    Returns:
        The minima of all tiles [q, n / size] and of all groups of tiles [q, groups], float32.
    """
    minima, groups, grid, shape = _prepare(queries, len(codes.codes) // size, launch)
    _int8_minima[grid](
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


def choose_tiles(minima: Tensor, groups: Tensor, starts: Tensor, width: int, span: int) -> Tensor:
    """Choose the tiles with the lowest minima.

    `torch.topk` over rows this long is a chain of about eight kernels. Here one program for each query takes the lowest
    groups one after the other, then the lowest tiles in them: the w lowest tiles lie in at most w groups.

    Args:
        minima: [q, tiles] float32; those of a group whose minimum is infinite are not read.
        groups: [q, g] float32, the lowest minimum of each group of tiles.
        starts: [g + 1] int32, the first tile of each group.
        width: tiles to choose for each query.
        span: the most tiles of a group.

    Returns:
        [q, width] int32, -1 where all other tiles are infinite.
    """
    rows, tiles = minima.shape
    count = groups.shape[1]
    block = min(_GROUPS_AT_ONCE, triton.next_power_of_2(count))
    chosen = torch.empty(rows, width, dtype=torch.int32, device=minima.device)
    _choose_tiles[(rows,)](
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
    """Compute the squared distances of the keys of some tiles.

    Args:
        queries: [q, d] float32.
        keys: [n, d] float16.
        squares: [n] float32, inf where there is no key.
        tiles: [q, w] int32, -1 for none.
        size: keys in a tile.

    Returns:
        [q, w, size] float32, inf where there is no tile, no key or no usable query.
    """
    rows, width = tiles.shape
    distances = torch.empty(rows, width, size, device=queries.device)
    dimension = queries.shape[1]
    _measure_tiles[(rows, width)](
        queries,
        keys,
        squares,
        tiles,
        distances,
        width,
        dimension=dimension,
        step=min(PIECE, dimension),
        size=size,
        num_warps=4,
    )
    return distances


def pick_nearest(distances: Tensor, tiles: Tensor, order: Tensor | None, k: int) -> tuple[Tensor, Tensor]:
    """Pick the first k keys of some tiles by (distance, entry).

    Args:
        distances: [q, w, size] float32, of the keys of the tiles.
        tiles: [q, w] int32.
        order: [n] int32, the entry of each place; None where key n is entry n.
        k: how many to pick.

    Returns:
        Distances and entries, each [q, k], inf and -1 where there are fewer.
    """
    rows, width, size = distances.shape
    near = torch.empty(rows, k, device=distances.device)
    entries = torch.empty(rows, k, dtype=torch.int64, device=distances.device)
    wide = triton.next_power_of_2(width)
    _pick_nearest[(rows,)](
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


def _prepare(queries: Tensor, tiles: int, launch: Launch | None) -> tuple[Tensor, Tensor, tuple[int], Launch]:
    rows = len(queries)
    shape = launches(rows, queries.shape[1])[0] if launch is None else launch
    group_count = triton.cdiv(tiles, GROUP)
    minima = torch.empty(rows, tiles, device=queries.device)
    groups = torch.empty(rows, group_count, device=queries.device)
    return minima, groups, (triton.cdiv(rows, shape.block) * group_count,), shape
