"""The mixture of the base model's distribution with weighted neighbours, sparse and in log space.

p(y) = w_0 p_NMT(y) + sum of w_j over the neighbours j with value y. Only the neighbours' values change by more
than the factor w_0, so no vocabulary-sized distribution of the neighbours is ever built.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Weights(NamedTuple):
    """base: [r], the weight of the base model; neighbours: [r, K], that of each neighbour. They sum to 1 in a row."""

    base: Tensor
    neighbours: Tensor


class Combiner(Protocol):
    """Decides how much each neighbour and the base model count."""

    @property
    def k(self) -> int:
        """How many neighbours it wants."""
        ...

    def weigh(self, distances: Tensor, values: Tensor) -> Weights:
        """Weights for squared distances [r, K], ascending, and values [r, K]; an absent neighbour is at infinity."""
        ...


def same_values(values: Tensor) -> Tensor:
    """Which neighbours of a row share their value [r, K, K]."""
    return values[:, :, None] == values[:, None, :]


def first_occurrences(values: Tensor) -> Tensor:
    """Which neighbours are the nearest of their value [r, K]."""
    width = values.shape[1]
    earlier = torch.ones(width, width, dtype=torch.bool, device=values.device).tril(-1)
    return ~(same_values(values) & earlier).any(dim=2)


def aggregate(weights: Tensor, values: Tensor) -> Tensor:
    """For each neighbour the summed weight [r, K] of all neighbours in its row that share its value."""
    return (same_values(values).to(weights.dtype) @ weights[:, :, None]).squeeze(2)


def mix(log_probs: Tensor, weights: Weights, values: Tensor) -> Tensor:
    """Log-probabilities [r, V] of the mixture, for log-probabilities [r, V] of the base model and values [r, K].

    An absent neighbour has weight 0, and any value in range.
    """
    mixed = log_probs + weights.base.log()[:, None]
    if values.shape[1] == 0:
        return mixed
    voted = torch.logaddexp(mixed.gather(1, values), aggregate(weights.neighbours, values).log())
    return mixed.scatter_(1, values, voted)


def present(distances: Tensor) -> Tensor:
    """Which neighbours are there [r, K]: a distance that is infinite or not a number is never trusted."""
    return torch.isfinite(distances)


def distance_kernel(distances: Tensor, temperature: float) -> Tensor:
    """exp(-d / T) [r, K] up to one factor a row, 0 for an absent neighbour."""
    there = present(distances)
    scaled = torch.where(there, -distances / temperature, -torch.inf)
    nearest = scaled.amax(dim=1, keepdim=True).nan_to_num(neginf=0.0) if scaled.shape[1] else scaled
    return torch.where(there, (scaled - nearest).exp(), 0.0)
