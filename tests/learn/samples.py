"""Random examples with dense distributions, the oracles of the sparse computations."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ibidem.learn import Examples


class Dense(NamedTuple):
    """Examples, and the whole distribution [n, V] of the base model that they were taken from."""

    examples: Examples
    base: Tensor


def random_examples(
    seed: int, rows: int = 40, k: int = 8, vocabulary: int = 13, dtype: torch.dtype = torch.float64
) -> Dense:
    """Make examples of few words, so that values repeat; some rows lack some or all neighbours."""
    draw = torch.Generator().manual_seed(seed)
    base = (2 * torch.randn(rows, vocabulary, generator=draw, dtype=torch.float64)).log_softmax(dim=1)
    distances = torch.rand(rows, k, generator=draw, dtype=torch.float64).mul(30).sort(dim=1).values
    there = torch.randint(0, 2 * k, (rows, 1), generator=draw)
    there[:2] = torch.tensor([[0], [1]])
    distances = distances.masked_fill(torch.arange(k) >= there, torch.inf)
    values = torch.randint(0, vocabulary, (rows, k), generator=draw)
    gold = torch.randint(0, vocabulary, (rows,), generator=draw)
    examples = Examples(
        distances.to(dtype),
        values,
        base.gather(1, values).to(dtype),
        gold,
        base.gather(1, gold[:, None]).squeeze(1).to(dtype),
        base.sum(dim=1).to(dtype),
        torch.arange(rows) // 4,
        vocabulary,
    )
    return Dense(examples, base)


def neighbour_distribution(distances: Tensor, values: Tensor, k: int, temperature: float, size: int) -> Tensor:
    """Compute p_kNN of one row over the whole vocabulary by its definition; all zero without a neighbour."""
    found = torch.zeros(size, dtype=torch.float64)
    near = [(float(d), int(v)) for d, v in zip(distances[:k], values[:k], strict=True) if d < torch.inf]
    weights = torch.tensor([-d / temperature for d, _ in near], dtype=torch.float64).softmax(dim=0)
    for weight, (_, value) in zip(weights, near, strict=True):
        found[value] += weight
    return found
