"""The Meta-k Network from distances and values to weights, one program a row: some thirty kernels in plain torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from ibidem.combine.mixing import Weights

if TYPE_CHECKING:
    from torch import Tensor

    from ibidem.combine.adaptive import MetaK


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
    whole = unit[:, None] < hidden
    sums = tl.sum(tl.load(weight, mask=whole, other=0.0) * near[None, :], axis=1)
    sums += tl.sum(tl.load(weight + k, mask=whole, other=0.0) * distinct[None, :], axis=1)
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
    vote = tl.where(there, tl.exp(scaled - tl.where(best > float("-inf"), best, 0.0)), 0.0)
    member = (choice[:, None] > 0) & (place[None, :] < (1 << tl.maximum(choice - 1, 0))[:, None])
    total = tl.sum(tl.where(member, vote[None, :], 0.0), axis=1)
    share = tl.where(total > 0, chosen / tl.maximum(total, 1e-30), 0.0)
    weights = vote * tl.sum(tl.where(member, share[:, None], 0.0), axis=0)
    tl.store(neighbours + row * k + place, weights)
    rest = tl.where(best > float("-inf"), 1.0 - tl.sum(weights, axis=0), 1.0)
    tl.store(base + row, tl.maximum(rest, 1e-12))


def weigh(distances: Tensor, values: Tensor, network: MetaK, temperature: float, far: float) -> Weights:
    """See `AdaptiveCombiner.weigh`; distances [r, K] float32, values [r, K] int64."""
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
