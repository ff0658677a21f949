"""Grid search of the fixed combiner's k, weight and temperature, on the scale of the distances at hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ibidem.combine import FixedCombiner, distance_kernel, neighbour_counts

if TYPE_CHECKING:
    from ibidem.learn.examples import Examples

# Temperatures as shares of the typical squared distance: from "only the nearest" to "nearly all alike".
TEMPERATURES = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
WEIGHTS = tuple(step / 20 for step in range(1, 20))


@dataclass(frozen=True)
class GridPoint:
    """A combiner and its mean negative log-likelihood on the dev set."""

    combiner: FixedCombiner
    loss: float


def tune_fixed(examples: Examples, *, k: int | None = None) -> list[GridPoint]:
    """All points of the grid, best first; with `k`, only those of that k, else of 1, 2, 4, … neighbours."""
    scale = examples.typical_distance()
    widest = examples.distances.shape[1]
    sizes = [k] if k is not None else neighbour_counts(1 << (widest.bit_length() - 1))
    points: list[GridPoint] = []
    for size in sizes:
        for share in TEMPERATURES:
            temperature = share * scale
            votes = vote_for_gold(examples.nearest(size), temperature)
            for weight, loss in zip(WEIGHTS, losses_over_weights(examples, votes).tolist(), strict=True):
                points.append(GridPoint(FixedCombiner(size, weight, temperature), loss))
    return sorted(points, key=lambda point: point.loss)


def vote_for_gold(examples: Examples, temperature: float) -> Tensor:
    """The neighbours' probability [n] of the true token; NaN where there is no neighbour at all."""
    votes = distance_kernel(examples.distances, temperature)
    agreed = (votes * (examples.values == examples.gold[:, None])).sum(dim=1)
    total = votes.sum(dim=1)
    return torch.where(total > 0, agreed / total, torch.nan)


def losses_over_weights(examples: Examples, votes: Tensor) -> Tensor:
    """Mean negative log-likelihood [len(WEIGHTS)] of the mixture for each weight."""
    return torch.stack([mixture_loss(examples, votes, weight) for weight in WEIGHTS])


def fixed_loss(examples: Examples, combiner: FixedCombiner) -> float:
    """Mean negative log-likelihood of the true tokens with this combiner."""
    votes = vote_for_gold(examples.nearest(combiner.k), combiner.temperature)
    return float(mixture_loss(examples, votes, combiner.weight))


def mixture_loss(examples: Examples, votes: Tensor, weight: float) -> Tensor:
    """Mean negative log-likelihood of base model and votes [n] mixed; votes are NaN where there is no neighbour."""
    base, found = examples.base_gold.double().exp(), votes.double()
    mixed = torch.where(found.isnan(), base, (1 - weight) * base + weight * found)
    return -mixed.clamp_min(1e-30).log().mean()
