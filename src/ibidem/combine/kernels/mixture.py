"""The best tokens of the mixture in two kernels: one pass over the logits, then one program a row.

The first takes from every piece of the vocabulary its best logits and its share of the normalisation; the second puts
the pieces and the votes together. Nothing of the vocabulary's size is written, and half-precision logits do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from torch import Tensor

    from ibidem.combine.mixing import Weights

# Tokens that one program looks at.
PIECE = 2048
# Candidates and neighbours beyond which torch's own selection is better.
MOST = 32


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
    voters: tl.constexpr,
    many_pieces: tl.constexpr,
    many_tops: tl.constexpr,
    many_voters: tl.constexpr,
    slots: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    piece = tl.arange(0, many_pieces)
    high = tl.load(highs + row * pieces + piece, mask=piece < pieces, other=float("-inf"))
    highest = tl.max(high, axis=0)
    shares = tl.load(sums + row * pieces + piece, mask=piece < pieces, other=0.0) * tl.exp(high - highest)
    shift = tl.log(tl.load(base + row)) - highest - tl.log(tl.sum(shares, axis=0))

    one = tl.arange(0, many_tops)
    shown = one < pieces * count
    top = tl.load(tops + row * pieces * count + one, mask=shown, other=float("-inf"))
    token = tl.load(tokens + row * pieces * count + one, mask=shown, other=0)
    slot = tl.arange(0, slots)
    score = tl.full((slots,), float("-inf"), tl.float32)
    name = tl.zeros((slots,), tl.int32)
    if voters > 0:
        voter = tl.arange(0, many_voters)
        # What no token equals stands behind the last voter.
        value = tl.load(values + row * voters + voter, mask=voter < voters, other=-1).to(tl.int32)
        weight = tl.load(neighbours + row * voters + voter, mask=voter < voters, other=0.0)
        voting = (slot >= count) & (slot < count + voters)
        name = tl.load(values + row * voters + slot - count, mask=voting, other=0).to(tl.int32)
        same = name[:, None] == value[None, :]
        again = same & (voter[None, :] < slot[:, None] - count)
        voted = tl.log(tl.sum(tl.where(same, weight[None, :], 0.0), axis=1))
        own = tl.load(logits + row * vocabulary + name, mask=voting, other=float("-inf")).to(tl.float32) + shift
        larger = tl.maximum(own, voted)
        apart = tl.where(larger > float("-inf"), tl.minimum(own, voted) - larger, 0.0)
        score = tl.where(
            voting & (tl.sum(again.to(tl.int32), axis=1) == 0), larger + tl.log(1.0 + tl.exp(apart)), float("-inf")
        )
        for number in tl.static_range(banned_count):
            score = tl.where(name == tl.load(banned + number), float("-inf"), score)
    for turn in range(count):
        highest = tl.max(top, axis=0)
        place = tl.min(tl.where(top == highest, one, many_tops), axis=0)
        chosen = tl.sum(tl.where(one == place, token, 0), axis=0)
        plain = highest + shift
        if voters > 0:
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
    """Log-probabilities and tokens [r, count], best first; see `best_candidates`; logits [r, V] of any float type."""
    rows, vocabulary = logits.shape
    device = logits.device
    logits = logits.contiguous()
    pieces = triton.cdiv(vocabulary, PIECE)
    voters = values.shape[1]
    tops = torch.empty(rows, pieces, count, device=device)
    tokens = torch.empty(rows, pieces, count, dtype=torch.int32, device=device)
    highs, sums = torch.empty(2, rows, pieces, device=device)
    left_out = tokens if banned is None else banned
    banned_count = 0 if banned is None else len(banned)
    _collect[(rows, pieces)](
        logits,
        left_out,
        tops,
        tokens,
        highs,
        sums,
        pieces,
        vocabulary=vocabulary,
        banned_count=banned_count,
        count=count,
        size=PIECE,
        num_warps=4,
    )
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
        voters=voters,
        many_pieces=triton.next_power_of_2(pieces),
        many_tops=triton.next_power_of_2(pieces * count),
        many_voters=triton.next_power_of_2(max(1, voters)),
        slots=triton.next_power_of_2(count + voters),
        num_warps=2,
    )
    return best, found
