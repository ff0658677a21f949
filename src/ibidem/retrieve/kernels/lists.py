"""One pass over the lists that queries ask for: every list is read once, for all the queries that look into it.

1. Score all centroids, and find for each query the score of the last list that it looks into.
2. Queue the queries at each list.
3. A program a list takes its queue, sixteen queries at a time, past the list's tiles. What nobody asks for is not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from ibidem.retrieve.codes import NO_CODE
from ibidem.retrieve.kernels.minima import PIECE, coded, halves, usable_rows

if TYPE_CHECKING:
    from torch import Tensor

    from ibidem.retrieve.codes import Codes

# Lists that one program can choose among.
MOST_LISTS = 32_768

_QUEUES = 8
_BLOCK = 16
_ROWS_A_TURN = 64


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _coarse(  # type: ignore[no-untyped-def]
    queries,
    centroids,
    squares,
    scores,
    rows,
    lists,
    dimension: tl.constexpr,
    step: tl.constexpr,
    block: tl.constexpr,
    wide: tl.constexpr,
):
    row = tl.program_id(1) * block + tl.arange(0, block)
    inside = row < rows
    usable = usable_rows(queries, row, inside, dimension, step)
    number = tl.program_id(0) * wide + tl.arange(0, wide)
    shown = number < lists
    component = tl.arange(0, step)
    place = centroids + number[:, None] * dimension + component[None, :]
    products = tl.zeros((block, wide), tl.float32)
    for start in tl.static_range(0, dimension, step):
        query = halves(queries, row, usable, start, dimension, step)
        products = tl.dot(query, tl.trans(tl.load(place + start, mask=shown[:, None], other=0.0)), products)
    found = tl.load(squares + number, mask=shown, other=0.0)[None, :] - 2.0 * products
    found = tl.where(usable[:, None], found, float("inf"))
    tl.store(scores + row[:, None].to(tl.int64) * lists + number[None, :], found, mask=inside[:, None] & shown[None, :])


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _limit(scores, limits, lists, probes, block: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    number = tl.arange(0, block)
    score = tl.load(scores + row * lists + number, mask=number < lists, other=float("inf"))
    low = tl.min(score, axis=0)
    high = tl.max(tl.where(score < float("inf"), score, float("-inf")), axis=0)
    # A list or two too many, where the last scores are nearly the same, is no harm; the limit is never too low.
    for _ in range(16):
        middle = 0.5 * low + 0.5 * high
        enough = tl.sum((score <= middle).to(tl.int32), axis=0) >= probes
        high = tl.where(enough, middle, high)
        low = tl.where(enough, low, middle)
    tl.store(limits + row, high)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _queue(  # type: ignore[no-untyped-def]
    scores, limits, queue, lengths, rows, lists, block: tl.constexpr, wide: tl.constexpr
):
    row = tl.arange(0, block)
    number = tl.program_id(0) * wide + tl.arange(0, wide)
    inside = (row[:, None] < rows) & (number[None, :] < lists)
    place = scores + row[:, None].to(tl.int64) * lists + number[None, :]
    score = tl.load(place, mask=inside, other=float("inf"))
    limit = tl.load(limits + row, mask=row < rows, other=float("-inf"))
    asked = (score <= limit[:, None]) & (score < float("inf"))
    turn = tl.cumsum(asked.to(tl.int32), axis=0) - 1
    rows_at = row[:, None] + tl.zeros((block, wide), tl.int32)
    tl.store(queue + number[None, :].to(tl.int64) * rows + turn, rows_at, mask=asked)
    tl.store(lengths + number, tl.sum(asked.to(tl.int32), axis=0), mask=number < lists)
    # From here on scores are the lowest of a list's keys: none where nobody looks.
    tl.store(place, tl.full((block, wide), float("inf"), tl.float32), mask=inside)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _scan(  # type: ignore[no-untyped-def]
    queries,
    mean,
    scale,
    codes,
    squares,
    starts,
    queue,
    lengths,
    minima,
    scores,
    rows,
    tiles,
    lists,
    dimension: tl.constexpr,
    step: tl.constexpr,
    size: tl.constexpr,
    block: tl.constexpr,
    no_code: tl.constexpr,
):
    number = tl.program_id(0)
    length = tl.load(lengths + number)
    end = tl.load(starts + number + 1)
    component = tl.arange(0, step)
    member = tl.arange(0, size)
    begin = tl.program_id(1) * block
    while begin < length:
        turn = begin + tl.arange(0, block)
        inside = turn < length
        row = tl.load(queue + number.to(tl.int64) * rows + turn, mask=inside, other=0)
        query = coded(queries, row, inside, 0, mean, scale, dimension, step)
        lowest = tl.full((block,), no_code, tl.int32)
        tile = tl.load(starts + number)
        while tile < end:
            key = tile.to(tl.int64) * size + member
            place = codes + key[:, None] * dimension + component[None, :]
            products = tl.dot(query, tl.trans(tl.load(place)), out_dtype=tl.int32)
            for start in tl.static_range(step, dimension, step):
                piece = coded(queries, row, inside, start, mean, scale, dimension, step)
                products += tl.dot(piece, tl.trans(tl.load(place + start)), out_dtype=tl.int32)
            low = tl.min(tl.load(squares + key)[None, :] - 2 * products, axis=1)
            lowest = tl.minimum(lowest, low)
            found = tl.where(low < no_code // 2, low.to(tl.float32), float("inf"))
            tl.store(minima + row.to(tl.int64) * tiles + tile, found, mask=inside)
            tile += 1
        best = tl.where(lowest < no_code // 2, lowest.to(tl.float32), float("inf"))
        tl.store(scores + row.to(tl.int64) * lists + number, best, mask=inside)
        begin += block * tl.num_programs(1)


def score_lists(queries: Tensor, centroids: Tensor, squares: Tensor) -> Tensor:
    """|c|² - 2 q·c of all centroids [q, lists]; queries [q, d] float32 as they are, centroids [lists, d] float16."""
    rows, dimension = queries.shape
    lists = len(centroids)
    scores = torch.empty(rows, lists, device=queries.device)
    block = 16 if rows <= 16 else 64
    _coarse[(triton.cdiv(lists, 128), triton.cdiv(rows, block))](
        queries,
        centroids,
        squares,
        scores,
        *(rows, lists),
        dimension=dimension,
        step=min(PIECE, dimension),
        block=block,
        wide=128,
        num_warps=4,
    )
    return scores


def limit_probes(scores: Tensor, probes: int) -> Tensor:
    """The score [q] of the last of so many lists that each query looks into, by scores [q, lists]."""
    rows, lists = scores.shape
    limits = torch.empty(rows, device=scores.device)
    block = triton.next_power_of_2(lists)
    _limit[(rows,)](scores, limits, *(lists, probes), block=block, num_warps=16 if block > 8192 else 8)
    return limits


def queue_queries(scores: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers of the queries at each list [lists, q], of which the first [lists] are meant; scores become inf."""
    rows, lists = scores.shape
    queue = torch.empty(lists, rows, dtype=torch.int32, device=scores.device)
    lengths = torch.empty(lists, dtype=torch.int32, device=scores.device)
    _queue[(triton.cdiv(lists, _QUEUES),)](
        scores,
        limits,
        queue,
        lengths,
        *(rows, lists),
        block=triton.next_power_of_2(rows),
        wide=_QUEUES,
        num_warps=8 if rows > 128 else 4,
    )
    return queue, lengths


def scan_lists(
    queries: Tensor, codes: Codes, starts: Tensor, queue: Tensor, lengths: Tensor, scores: Tensor, size: int
) -> Tensor:
    """The lowest score of each tile [q, tiles] that a query looks into; nothing is said of the others.

    scores: [q, lists], all inf; those of lists that a query looks into become the lowest of their tiles.
    """
    rows, dimension = queries.shape
    lists = len(lengths)
    tiles = len(codes.codes) // size
    minima = torch.empty(rows, tiles, device=queries.device)
    _scan[(lists, triton.cdiv(rows, _ROWS_A_TURN))](
        queries,
        codes.mean,
        codes.scale,
        codes.codes,
        codes.squares,
        starts,
        queue,
        lengths,
        minima,
        scores,
        *(rows, tiles, lists),
        dimension=dimension,
        step=min(PIECE, dimension),
        size=size,
        block=_BLOCK,
        no_code=NO_CODE,
        num_warps=4,
    )
    return minima
