"""Triton kernels: the weights of the Meta-k Network, and the best tokens of the mixture.

Imported only where Triton is installed. The same functions in torch are `AdaptiveCombiner.weigh_in_torch` and
`candidates_in_torch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from ibidem.combine.mixture import Weights

if TYPE_CHECKING:
    from torch import Tensor

    from ibidem.combine.combiners import MetaK

# Tokens of the vocabulary that one program reads.
PIECE = 2048
# With more candidates or neighbours than this, torch's own selection is faster.
MOST = 32


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _weigh(  # type: ignore[no-untyped-def]
    distances,
    values,
    scale,
    inner,
    inner_bias,
    outer,
    outer_bias,
    base,
    neighbours,
    temperature,
    far,
    hidden,
    choices,
    k: tl.constexpr,
    units: tl.constexpr,
    wide: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, k)
    distance = tl.load(distances + row * k + place)
    value = tl.load(values + row * k + place)
    there = tl.abs(distance) < float("inf")
    # Features: distances in units of the scale, and how many values are distinct so far.
    near = tl.where(there, tl.minimum(distance / tl.load(scale), far), far)
    again = (value[:, None] == value[None, :]) & (place[None, :] < place[:, None])
    distinct = tl.cumsum(tl.where(tl.sum(again.to(tl.int32), axis=1) > 0, 0, 1), axis=0).to(tl.float32)
    # Two layers, tanh between them.
    unit = tl.arange(0, units)
    weight = inner + unit[:, None] * (2 * k) + place[None, :]
    in_range = unit[:, None] < hidden
    sums = tl.sum(tl.load(weight, mask=in_range, other=0.0) * near[None, :], axis=1)
    sums += tl.sum(tl.load(weight + k, mask=in_range, other=0.0) * distinct[None, :], axis=1)
    sums += tl.load(inner_bias + unit, mask=unit < hidden, other=0.0)
    active = 1.0 - 2.0 / (tl.exp(2.0 * sums) + 1.0)
    choice = tl.arange(0, wide)
    weight = tl.load(
        outer + choice[:, None] * hidden + unit[None, :],
        mask=(choice[:, None] < choices) & (unit[None, :] < hidden),
        other=0.0,
    )
    logits = tl.sum(weight * active[None, :], axis=1)
    logits += tl.load(outer_bias + choice, mask=choice < choices, other=float("-inf"))
    chosen = tl.exp(logits - tl.max(logits, axis=0))
    chosen = chosen / tl.sum(chosen, axis=0)
    # exp(-d / T), up to one factor a row; choice c > 0 is of the 2^(c - 1) nearest.
    scaled = tl.where(there, -distance / temperature, float("-inf"))
    best = tl.max(scaled, axis=0)
    kernel = tl.where(there, tl.exp(scaled - tl.where(best > float("-inf"), best, 0.0)), 0.0)
    member = (choice[:, None] > 0) & (place[None, :] < (1 << tl.maximum(choice - 1, 0))[:, None])
    total = tl.sum(tl.where(member, kernel[None, :], 0.0), axis=1)
    factor = tl.where(total > 0, chosen / tl.maximum(total, 1e-30), 0.0)
    weights = kernel * tl.sum(tl.where(member, factor[:, None], 0.0), axis=0)
    tl.store(neighbours + row * k + place, weights)
    rest = tl.where(best > float("-inf"), 1.0 - tl.sum(weights, axis=0), 1.0)
    tl.store(base + row, tl.maximum(rest, 1e-12))


def weigh_meta_k(distances: Tensor, values: Tensor, network: MetaK, temperature: float, far: float) -> Weights:
    """Compute the weights of the Meta-k Network, one program a row; see `AdaptiveCombiner.weigh`.

    Args:
        distances: Squared distances [r, K], float32.
        values: Token ids [r, K], int64.
        network: The network, on the device of the distances.
        temperature: The temperature of the distance kernel.
        far: The scaled distance that stands for an absent neighbour.

    Returns:
        Weights [r] and [r, K].
    """
    rows, k = distances.shape
    base = torch.empty(rows, device=distances.device)
    neighbours = torch.empty(rows, k, device=distances.device)
    choices, hidden = network.outer.weight.shape
    _weigh[(rows,)](
        distances.contiguous(),
        values.contiguous(),
        network.scale,
        network.inner.weight,
        network.inner.bias,
        network.outer.weight,
        network.outer.bias,
        base,
        neighbours,
        *(float(temperature), float(far), hidden, choices),
        k=k,
        units=triton.next_power_of_2(hidden),
        wide=triton.next_power_of_2(choices),
        num_warps=1,
    )
    return Weights(base, neighbours)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _collect(  # type: ignore[no-untyped-def]
    logits,
    banned,
    tops,
    tokens,
    highs,
    sums,
    pieces,
    vocabulary: tl.constexpr,
    banned_count: tl.constexpr,
    count: tl.constexpr,
    size: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    place = row * pieces + tl.program_id(1)
    token = tl.program_id(1) * size + tl.arange(0, size)
    logit = tl.load(logits + row * vocabulary + token, mask=token < vocabulary, other=float("-inf")).to(tl.float32)
    high = tl.max(logit, axis=0)
    tl.store(highs + place, high)
    tl.store(sums + place, tl.sum(tl.exp(logit - tl.where(high > float("-inf"), high, 0.0)), axis=0))
    for number in tl.static_range(banned_count):
        logit = tl.where(token == tl.load(banned + number), float("-inf"), logit)
    for turn in range(count):
        top = tl.max(logit, axis=0)
        first = tl.min(tl.where(logit == top, token, 2147483647), axis=0)
        tl.store(tops + place * count + turn, top)
        tl.store(tokens + place * count + turn, tl.minimum(first, vocabulary - 1))
        logit = tl.where(token == first, float("-inf"), logit)


def collect_tops(logits: Tensor, banned: Tensor | None, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Find the best logits of each piece of the vocabulary, and what normalises all of them.

    Args:
        logits: [r, V], of any float type, contiguous.
        banned: Ids of tokens to leave out of the best, [b].
        count: How many of each piece.

    Returns:
        The best logits and their tokens [r, p, count], the highest logit of each piece [r, p], and the sum of the
        exponentials of all logits of the piece minus this one [r, p].
    """
    rows, vocabulary = logits.shape
    pieces = triton.cdiv(vocabulary, PIECE)
    tops = torch.empty(rows, pieces, count, device=logits.device)
    tokens = torch.empty(rows, pieces, count, dtype=torch.int32, device=logits.device)
    highs, sums = torch.empty(2, rows, pieces, device=logits.device)
    _collect[(rows, pieces)](
        logits,
        tokens if banned is None else banned,
        tops,
        tokens,
        highs,
        sums,
        pieces,
        vocabulary=vocabulary,
        banned_count=0 if banned is None else len(banned),
        count=count,
        size=PIECE,
        num_warps=4,
    )
    return tops, tokens, highs, sums


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _blend(  # type: ignore[no-untyped-def]
    logits,
    banned,
    tops,
    tokens,
    highs,
    sums,
    base,
    neighbours,
    values,
    best,
    found,
    pieces,
    vocabulary: tl.constexpr,
    banned_count: tl.constexpr,
    count: tl.constexpr,
    neighbour_count: tl.constexpr,
    padded_pieces: tl.constexpr,
    padded_tops: tl.constexpr,
    padded_neighbours: tl.constexpr,
    slots: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    piece = tl.arange(0, padded_pieces)
    high = tl.load(highs + row * pieces + piece, mask=piece < pieces, other=float("-inf"))
    highest = tl.max(high, axis=0)
    parts = tl.load(sums + row * pieces + piece, mask=piece < pieces, other=0.0) * tl.exp(high - highest)
    shift = tl.log(tl.load(base + row)) - highest - tl.log(tl.sum(parts, axis=0))

    one = tl.arange(0, padded_tops)
    shown = one < pieces * count
    top = tl.load(tops + row * pieces * count + one, mask=shown, other=float("-inf"))
    token = tl.load(tokens + row * pieces * count + one, mask=shown, other=0)
    slot = tl.arange(0, slots)
    score = tl.full((slots,), float("-inf"), tl.float32)
    name = tl.zeros((slots,), tl.int32)
    if neighbour_count > 0:
        column = tl.arange(0, padded_neighbours)
        # Padding columns get -1, which equals no token.
        value = tl.load(values + row * neighbour_count + column, mask=column < neighbour_count, other=-1).to(tl.int32)
        weight = tl.load(neighbours + row * neighbour_count + column, mask=column < neighbour_count, other=0.0)
        retrieved = (slot >= count) & (slot < count + neighbour_count)
        name = tl.load(values + row * neighbour_count + slot - count, mask=retrieved, other=0).to(tl.int32)
        same = name[:, None] == value[None, :]
        again = same & (column[None, :] < slot[:, None] - count)
        weighted = tl.log(tl.sum(tl.where(same, weight[None, :], 0.0), axis=1))
        own = tl.load(logits + row * vocabulary + name, mask=retrieved, other=float("-inf")).to(tl.float32) + shift
        larger = tl.maximum(own, weighted)
        apart = tl.where(larger > float("-inf"), tl.minimum(own, weighted) - larger, 0.0)
        score = tl.where(
            retrieved & (tl.sum(again.to(tl.int32), axis=1) == 0), larger + tl.log(1.0 + tl.exp(apart)), float("-inf")
        )
        for number in tl.static_range(banned_count):
            score = tl.where(name == tl.load(banned + number), float("-inf"), score)
    for turn in range(count):
        highest = tl.max(top, axis=0)
        place = tl.min(tl.where(top == highest, one, padded_tops), axis=0)
        chosen = tl.sum(tl.where(one == place, token, 0), axis=0)
        plain = highest + shift
        if neighbour_count > 0:
            plain = tl.where(tl.sum(tl.where(value == chosen, 1, 0), axis=0) > 0, float("-inf"), plain)
        score = tl.where(slot == turn, plain, score)
        name = tl.where(slot == turn, chosen, name)
        top = tl.where(one == place, float("-inf"), top)
    for turn in range(count):
        highest = tl.max(score, axis=0)
        place = tl.min(tl.where(score == highest, slot, slots), axis=0)
        tl.store(best + row * count + turn, highest)
        tl.store(found + row * count + turn, tl.sum(tl.where(slot == place, name, 0), axis=0).to(tl.int64))
        score = tl.where(slot == place, float("-inf"), score)


def best_of_mixture(
    logits: Tensor, weights: Weights, values: Tensor, count: int, banned: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Find the best tokens of the mixture in two kernels; see `best_candidates`.

    The first kernel reads the logits once and stores the best logits and the normalisation of each piece of the
    vocabulary; the second merges the pieces and the neighbours, one program a row. Nothing of the vocabulary's size is
    written.

    Args:
        logits: [r, V], of any float type.
        weights: The weights of base model [r] and neighbours [r, K].
        values: Token ids of the neighbours, [r, K].
        count: How many tokens to return, at most V.
        banned: Ids of tokens to leave out, [b].

    Returns:
        Log-probabilities and tokens [r, count], best first.
    """
    rows, vocabulary = logits.shape
    device = logits.device
    logits = logits.contiguous()
    neighbour_count = values.shape[1]
    tops, tokens, highs, sums = collect_tops(logits, banned, count)
    pieces = highs.shape[1]
    left_out = tokens if banned is None else banned
    banned_count = 0 if banned is None else len(banned)
    best = torch.empty(rows, count, device=device)
    found = torch.empty(rows, count, dtype=torch.int64, device=device)
    _blend[(rows,)](
        logits,
        left_out,
        tops,
        tokens,
        highs,
        sums,
        weights.base.contiguous(),
        weights.neighbours.contiguous(),
        values.contiguous(),
        best,
        found,
        pieces,
        vocabulary=vocabulary,
        banned_count=banned_count,
        count=count,
        neighbour_count=neighbour_count,
        padded_pieces=triton.next_power_of_2(pieces),
        padded_tops=triton.next_power_of_2(pieces * count),
        padded_neighbours=triton.next_power_of_2(max(1, neighbour_count)),
        slots=triton.next_power_of_2(count + neighbour_count),
        num_warps=2,
    )
    return best, found
