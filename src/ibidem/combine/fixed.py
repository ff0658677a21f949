"""Vanilla kNN-MT: one weight, one temperature, one k for every step (Khandelwal et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ibidem.combine.mixing import Weights, distance_kernel
from ibidem.errors import UsageError


@dataclass(frozen=True)
class FixedCombiner:
    """p = (1 - weight) p_NMT + weight softmax(-d / temperature) over the k nearest neighbours."""

    k: int
    weight: float
    temperature: float

    def __post_init__(self) -> None:
        if self.k < 1 or not 0 <= self.weight <= 1 or not self.temperature > 0:
            raise UsageError(
                f"k = {self.k}, weight = {self.weight}, temperature = {self.temperature} cannot be meant: "
                "k is at least 1, the weight lies between 0 and 1, the temperature above 0."
            )

    def weigh(self, distances: Tensor, values: Tensor) -> Weights:  # noqa: ARG002 - part of the protocol
        votes = distance_kernel(distances[:, : self.k], self.temperature)
        votes = torch.nn.functional.pad(votes, (0, distances.shape[1] - votes.shape[1]))
        total = votes.sum(dim=1, keepdim=True)
        neighbours = torch.where(total > 0, self.weight * votes / total, 0.0)
        # A trace of the base model stays, so that a forced word that no neighbour knows is not impossible.
        base = torch.where(total.squeeze(1) > 0, max(1 - self.weight, 1e-12), 1.0)
        return Weights(base, neighbours)
