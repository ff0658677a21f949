"""Triton kernels of the contextual combiner: what is known about the neighbours, and their weights.

Imported only where Triton is installed. The same functions in torch are `StepContext.of_in_torch` and
`ContextualCombiner.weigh_in_torch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from ibidem.combine.kernels import collect_tops
from ibidem.combine.mixture import Weights

if TYPE_CHECKING:
    from torch import Tensor

    from ibidem.combine.contextual import ContextualNetwork

# With more neighbours than this, the tables of a row do not fit in registers.
MOST = 32


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _know(  # type: ignore[no-untyped-def]
    logits,
    tops,
    highs,
    sums,
    values,
    entries,
    log_probs,
    sentences,
    theirs,
    mine,
    sources,
    now,
    stored,
    apart,
    best,
    pieces,
    vocabulary,
    neighbour_count,
    size,
    length,
    padded_pieces: tl.constexpr,
    padded_tops: tl.constexpr,
    k: tl.constexpr,
    padded_size: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    piece = tl.arange(0, padded_pieces)
    high = tl.load(highs + row * pieces + piece, mask=piece < pieces, other=float("-inf"))
    highest = tl.max(high, axis=0)
    parts = tl.load(sums + row * pieces + piece, mask=piece < pieces, other=0.0) * tl.exp(high - highest)
    shift = highest + tl.log(tl.sum(parts, axis=0))
    one = tl.arange(0, padded_tops)
    top = tl.load(tops + row * pieces * 2 + one, mask=one < pieces * 2, other=float("-inf"))
    first = tl.max(top, axis=0)
    place = tl.min(tl.where(top == first, one, padded_tops), axis=0)
    tl.store(best + row * 2, first - shift)
    tl.store(best + row * 2 + 1, tl.max(tl.where(one == place, float("-inf"), top), axis=0) - shift)

    column = tl.arange(0, k)
    real = column < neighbour_count
    at = row * neighbour_count + column
    value = tl.load(values + at, mask=real, other=0)
    entry = tl.maximum(tl.load(entries + at, mask=real, other=0), 0)
    logit = tl.load(logits + row * vocabulary + value, mask=real, other=0.0).to(tl.float32)
    tl.store(now + at, logit - shift, mask=real)
    tl.store(stored + at, tl.load(log_probs + entry, mask=real, other=0.0).to(tl.float32), mask=real)
    sentence = tl.load(sentences + entry, mask=real, other=0).to(tl.int64)
    part = tl.arange(0, padded_size)
    inside = part < size
    vector = tl.load(mine + tl.load(sources + row) * size + part, mask=inside, other=0.0)
    other = tl.load(theirs + sentence[:, None] * size + part[None, :], mask=real[:, None] & inside[None, :], other=0)
    cosine = tl.sum(other.to(tl.float32) * vector[None, :], axis=1) / length
    tl.store(apart + at, 1.0 - cosine, mask=real)


def know_neighbours(
    logits: Tensor,
    banned: Tensor | None,
    values: Tensor,
    entries: Tensor,
    log_probs: Tensor,
    sentences: Tensor,
    theirs: Tensor,
    mine: Tensor,
    sources: Tensor,
    length: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Collect what is known about neighbours in two kernels; see `StepContext.of`.

    The first kernel reads the logits once; the second merges its pieces and gathers, one program a row.

    Args:
        logits: The logits of the base model [r, V], of any float type.
        banned: Tokens that the model must not choose, [b]; None for none.
        values: The tokens of the neighbours, [r, K].
        entries: Their entries, -1 for an absent one, [r, K].
        log_probs: The log-probability stored with each entry, [n].
        sentences: The sentence of each entry, [n].
        theirs: The vector of each stored source, int8 [s, m].
        mine: The vector of each source of the batch, float32 [b, m].
        sources: The source of each row, [r].
        length: The length of the stored vectors.

    Returns:
        The fields of `NeighbourContext`.
    """
    rows, k = values.shape
    device = logits.device
    logits = logits.contiguous()
    tops, _, highs, sums = collect_tops(logits, banned, 2)
    pieces = highs.shape[1]
    now, stored, apart = torch.empty(3, rows, k, device=device)
    best = torch.empty(rows, 2, device=device)
    _know[(rows,)](
        *(logits, tops, highs, sums, values.contiguous(), entries.contiguous(), log_probs, sentences),
        *(theirs, mine.contiguous(), sources.contiguous(), now, stored, apart, best),
        *(pieces, logits.shape[1], k, theirs.shape[1], float(length)),
        padded_pieces=triton.next_power_of_2(pieces),
        padded_tops=triton.next_power_of_2(pieces * 2),
        k=triton.next_power_of_2(k),
        padded_size=triton.next_power_of_2(theirs.shape[1]),
        num_warps=1,
    )
    return now, stored, apart, best


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _tanh(x):  # type: ignore[no-untyped-def]
    return 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _weigh(  # type: ignore[no-untyped-def]
    distances,
    values,
    now_log_probs,
    stored_log_probs,
    source_distances,
    top_log_probs,
    scale,
    row_weight,
    row_bias,
    base_weight,
    base_bias,
    temperature_weight,
    temperature_bias,
    neighbour_weight,
    neighbour_bias,
    context_weight,
    score_weight,
    score_bias,
    base,
    neighbours,
    neighbour_count,
    hidden,
    neighbour_hidden,
    far,
    least,
    unit,
    untrained,
    k: tl.constexpr,
    wide: tl.constexpr,
    narrow: tl.constexpr,
    features: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, k)
    real = column < neighbour_count
    at = row * neighbour_count + column
    distance = tl.load(distances + at, mask=real, other=float("inf"))
    value = tl.load(values + at, mask=real, other=-1)
    there = tl.abs(distance) < float("inf")
    near = tl.where(there, tl.minimum(distance / tl.load(scale), far), far)
    now = tl.load(now_log_probs + at, mask=there, other=least)
    now = tl.minimum(tl.maximum(now, least), 0.0)
    stored = tl.load(stored_log_probs + at, mask=there, other=least)
    stored = tl.minimum(tl.maximum(stored, least), 0.0)
    apart = tl.load(source_distances + at, mask=there, other=1.0)
    top = tl.minimum(tl.maximum(tl.load(top_log_probs + row * 2), least), 0.0)
    second = tl.minimum(tl.maximum(tl.load(top_log_probs + row * 2 + 1), least), 0.0)
    nearest = tl.sum(tl.where(column == 0, near, 0.0), axis=0)
    least_apart = tl.min(tl.where(real, apart, float("inf")), axis=0)
    same = (value[:, None] == value[None, :]) & real[None, :]
    agreeing = tl.sum(same.to(tl.float32), axis=1) / neighbour_count
    earlier = tl.sum((same & (column[None, :] < column[:, None])).to(tl.int32), axis=1)
    beyond = near - nearest

    # The features of the neighbours, in the order of `ContextualNetwork.features`.
    wides, narrows = tl.arange(0, wide), tl.arange(0, narrow)
    inputs = neighbour_count * features + 4
    sums = tl.load(row_bias + wides, mask=wides < hidden, other=0.0)
    inner = tl.load(neighbour_bias + narrows, mask=narrows < neighbour_hidden, other=0.0)[None, :]
    inner = tl.broadcast_to(inner, (k, narrow))
    for number in tl.static_range(features):
        if number == 0:
            feature = near
        elif number == 1:
            feature = beyond
        elif number == 2:
            feature = now / unit
        elif number == 3:
            feature = stored / unit
        elif number == 4:
            feature = tl.exp(now)
        elif number == 5:
            feature = tl.exp(stored)
        elif number == 6:
            feature = (now - top) / unit
        elif number == 7:
            feature = apart
        elif number == 8:
            feature = apart - least_apart
        elif number == 9:
            feature = agreeing
        elif number == 10:
            feature = column.to(tl.float32) / neighbour_count
        else:
            feature = tl.where(earlier == 0, 1.0, 0.0)
        weight = tl.load(
            row_weight + wides[:, None] * inputs + column[None, :] * features + number,
            mask=(wides[:, None] < hidden) & real[None, :],
            other=0.0,
        )
        sums += tl.sum(weight * feature[None, :], axis=1)
        weight = tl.load(neighbour_weight + narrows * features + number, mask=narrows < neighbour_hidden, other=0.0)
        inner += feature[:, None] * weight[None, :]
    last = row_weight + wides * inputs + neighbour_count * features
    sums += tl.load(last, mask=wides < hidden, other=0.0) * tl.exp(top)
    sums += tl.load(last + 1, mask=wides < hidden, other=0.0) * tl.exp(second)
    sums += tl.load(last + 2, mask=wides < hidden, other=0.0) * (top / unit)
    sums += tl.load(last + 3, mask=wides < hidden, other=0.0) * (second / unit)
    active = tl.where(wides < hidden, _tanh(sums), 0.0)

    weight = tl.load(
        context_weight + narrows[:, None] * hidden + wides[None, :],
        mask=(narrows[:, None] < neighbour_hidden) & (wides[None, :] < hidden),
        other=0.0,
    )
    inner = _tanh(inner + tl.sum(weight * active[None, :], axis=1)[None, :])
    weight = tl.load(score_weight + narrows, mask=narrows < neighbour_hidden, other=0.0)
    score = tl.sum(inner * weight[None, :], axis=1) + tl.load(score_bias)
    weight = tl.load(temperature_weight + wides, mask=wides < hidden, other=0.0)
    temperature = tl.exp(tl.sum(weight * active, axis=0) + tl.load(temperature_bias))
    weight = tl.load(base_weight + wides, mask=wides < hidden, other=0.0)
    own = tl.sum(weight * active, axis=0) + tl.load(base_bias)
    score = tl.where(there, score - beyond / untrained * temperature, float("-inf"))

    highest = tl.maximum(own, tl.max(score, axis=0))
    parts = tl.exp(score - highest)
    mine = tl.exp(own - highest)
    total = mine + tl.sum(parts, axis=0)
    tl.store(neighbours + at, parts / total, mask=real)
    tl.store(base + row, tl.maximum(mine / total, 1e-12))


def weigh_contextual(
    distances: Tensor,
    values: Tensor,
    context: tuple[Tensor, Tensor, Tensor, Tensor],
    network: ContextualNetwork,
    far: float,
    least: float,
    unit: float,
    temperature: float,
) -> Weights:
    """Compute the weights of the contextual combiner, one program a row; see `ContextualCombiner.weigh`.

    Args:
        distances: Squared distances [r, K], float32.
        values: Token ids [r, K].
        context: The fields of `NeighbourContext`.
        network: The network, on the device of the distances.
        far: The scaled distance that stands for an absent neighbour.
        least: The smallest log-probability.
        unit: What log-probabilities are divided by.
        temperature: The temperature of untrained weights.

    Returns:
        Weights [r] and [r, K].
    """
    rows, k = distances.shape
    base = torch.empty(rows, device=distances.device)
    neighbours = torch.empty(rows, k, device=distances.device)
    hidden, narrow = network.row.out_features, network.neighbour.out_features
    _weigh[(rows,)](
        *(distances.contiguous(), values.contiguous(), *(part.contiguous() for part in context), network.scale),
        *(network.row.weight, network.row.bias, network.base.weight, network.base.bias),
        *(network.temperature.weight, network.temperature.bias, network.neighbour.weight, network.neighbour.bias),
        *(network.context.weight, network.score.weight, network.score.bias, base, neighbours),
        *(k, hidden, narrow, float(far), float(least), float(unit), float(temperature)),
        k=triton.next_power_of_2(k),
        wide=triton.next_power_of_2(hidden),
        narrow=triton.next_power_of_2(narrow),
        features=network.neighbour.in_features,
        num_warps=2,
    )
    return Weights(base, neighbours)
