"""Triton kernels of the inverted file: every list is read once, for all the queries that probe it.

1. Score all centroids, and find for each query the score of the last list that it probes.
2. Queue the queries at each list.
3. One program for each list streams the tiles of the list past its queue, sixteen queries at a time. A list that no
   query probes is not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from ibidem.retrieve.gpu.quantization import NO_CODE
from ibidem.retrieve.gpu.scan_kernels import PIECE, load_float16, load_int8, usable_rows

if TYPE_CHECKING:
    from torch import Tensor

    from ibidem.retrieve.gpu.quantization import Int8Codes

# Lists among which one program can choose.
MOST_LISTS = 32_768

_QUEUES = 8
_BLOCK = 16
_ROWS_PER_PROGRAM = 64


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _score_lists(  # type: ignore[no-untyped-def]
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
        query = load_float16(queries, row, usable, start, dimension, step)
        products = tl.dot(query, tl.trans(tl.load(place + start, mask=shown[:, None], other=0.0)), products)
    found = tl.load(squares + number, mask=shown, other=0.0)[None, :] - 2.0 * products
    found = tl.where(usable[:, None], found, float("inf"))
    tl.store(scores + row[:, None].to(tl.int64) * lists + number[None, :], found, mask=inside[:, None] & shown[None, :])


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _limit_scores(scores, limits, lists, nprobe, block: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    number = tl.arange(0, block)
    score = tl.load(scores + row * lists + number, mask=number < lists, other=float("inf"))
    low = tl.min(score, axis=0)
    high = tl.max(tl.where(score < float("inf"), score, float("-inf")), axis=0)
    # The limit may admit a list or two more where scores are nearly the same, but it is never too low.
    for _ in range(16):
        middle = 0.5 * low + 0.5 * high
        enough = tl.sum((score <= middle).to(tl.int32), axis=0) >= nprobe
        high = tl.where(enough, middle, high)
        low = tl.where(enough, low, middle)
    tl.store(limits + row, high)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _queue_queries(  # type: ignore[no-untyped-def]
    scores, limits, queue, lengths, rows, lists, block: tl.constexpr, wide: tl.constexpr
):
    row = tl.arange(0, block)
    number = tl.program_id(0) * wide + tl.arange(0, wide)
    inside = (row[:, None] < rows) & (number[None, :] < lists)
    place = scores + row[:, None].to(tl.int64) * lists + number[None, :]
    score = tl.load(place, mask=inside, other=float("inf"))
    limit = tl.load(limits + row, mask=row < rows, other=float("-inf"))
    probed = (score <= limit[:, None]) & (score < float("inf"))
    turn = tl.cumsum(probed.to(tl.int32), axis=0) - 1
    rows_at = row[:, None] + tl.zeros((block, wide), tl.int32)
    tl.store(queue + number[None, :].to(tl.int64) * rows + turn, rows_at, mask=probed)
    tl.store(lengths + number, tl.sum(probed.to(tl.int32), axis=0), mask=number < lists)
    # From here on a score is the lowest of the keys of a list, inf where the query does not probe it.
    tl.store(place, tl.full((block, wide), float("inf"), tl.float32), mask=inside)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _scan_lists(  # type: ignore[no-untyped-def]
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
        query = load_int8(queries, row, inside, 0, mean, scale, dimension, step)
        lowest = tl.full((block,), no_code, tl.int32)
        tile = tl.load(starts + number)
        while tile < end:
            key = tile.to(tl.int64) * size + member
            place = codes + key[:, None] * dimension + component[None, :]
            products = tl.dot(query, tl.trans(tl.load(place)), out_dtype=tl.int32)
            for start in tl.static_range(step, dimension, step):
                piece = load_int8(queries, row, inside, start, mean, scale, dimension, step)
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
    """Compute |c|² - 2 q·c of all centroids.

    Args:
        queries: [q, d] float32, including unusable ones.
        centroids: [lists, d] float16.
        squares: [lists] float32, squared lengths.

    Returns:
        [q, lists] float32, inf for unusable queries.
    """
    rows, dimension = queries.shape
    lists = len(centroids)
    scores = torch.empty(rows, lists, device=queries.device)
    block = 16 if rows <= 16 else 64
    _score_lists[(triton.cdiv(lists, 128), triton.cdiv(rows, block))](
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


def limit_scores(scores: Tensor, nprobe: int) -> Tensor:
    """Find the score of the last list that each query probes.

    Args:
        scores: [q, lists] float32, lower is nearer.
        nprobe: lists that each query probes, at most the number of lists.

    Returns:
        [q] float32.
    """
    rows, lists = scores.shape
    limits = torch.empty(rows, device=scores.device)
    block = triton.next_power_of_2(lists)
    _limit_scores[(rows,)](scores, limits, *(lists, nprobe), block=block, num_warps=16 if block > 8192 else 8)
    return limits


def queue_queries(scores: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
    """Queue the queries at the lists that they probe, and set all scores to inf.

    Args:
        scores: [q, lists] float32, overwritten.
        limits: [q] float32, the score of the last list that each query probes.

    Returns:
        The queues, [lists, q] int32, and their lengths, [lists] int32.
    """
    rows, lists = scores.shape
    queue = torch.empty(lists, rows, dtype=torch.int32, device=scores.device)
    lengths = torch.empty(lists, dtype=torch.int32, device=scores.device)
    _queue_queries[(triton.cdiv(lists, _QUEUES),)](
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
    queries: Tensor, codes: Int8Codes, starts: Tensor, queue: Tensor, lengths: Tensor, scores: Tensor, size: int
) -> Tensor:
    """Compute the lowest score of each tile that a query probes.

    Args:
        queries: [q, d] float32.
        codes: the keys, in whole tiles.
        starts: [lists + 1] int32, the first tile of each list.
        queue: [lists, q] int32, the queries at each list.
        lengths: [lists] int32, the lengths of the queues.
        scores: [q, lists] float32, all inf; overwritten by the lowest score of each list that a query probes.
        size: keys in a tile.

    Returns:
        [q, tiles] float32, undefined for tiles that a query does not probe.
    """
    rows, dimension = queries.shape
    lists = len(lengths)
    tiles = len(codes.codes) // size
    minima = torch.empty(rows, tiles, device=queries.device)
    _scan_lists[(lists, triton.cdiv(rows, _ROWS_PER_PROGRAM))](
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
