"""A combiner that needs no tuning: neighbours count by how near they are, not only by which of them is nearer.

With a weight that does not depend on distance, as in vanilla kNN-MT, a memory of one pair would speak into every
sentence, since there is always a nearest neighbour. Here the memory's weight is

    weight * sigmoid((reach - d_1) / (reach / 5)) * a ** 3

where d_1 is the squared distance of the nearest neighbour and a the share of the votes, softmax(-d / (0.3 reach)),
that the value with most votes has: neighbours that contradict each other say little. `reach` is a fifth of the
typical squared distance between entries of the space. All figures were found on the shipped model, by what corrected
terms do to other sentences that have them, against what they do to unrelated ones (docs/results/living.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ibidem.combine.mixing import Weights, aggregate, distance_kernel, present
from ibidem.errors import UsageError

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

# In units of the typical squared distance between entries: how far a memory speaks, and one over a tuned combiner.
BANDWIDTH = 0.2
SHORT_BANDWIDTH = 0.1
SLOPE = 0.2
TEMPERATURE = 0.3
AGREEMENT = 3


@dataclass(frozen=True)
class DistanceDecayCombiner:
    """Weighs k neighbours by their distances in units of `reach`; at distance 0 they have almost `weight`."""

    reach: float
    k: int = 8
    weight: float = 0.9

    def __post_init__(self) -> None:
        if self.k < 1 or not 0 <= self.weight < 1 or not self.reach > 0:
            raise UsageError(
                f"k = {self.k}, weight = {self.weight}, reach = {self.reach} cannot be meant: k is at least 1, the "
                "weight lies between 0 and 1, the reach above 0."
            )

    def weigh(self, distances: Tensor, values: Tensor) -> Weights:
        """Weights for squared distances [r, K], ascending, and values [r, K]."""
        votes = distance_kernel(distances, TEMPERATURE * self.reach)
        shares = votes / votes.sum(dim=1, keepdim=True).clamp_min(1e-30)
        agreement = aggregate(shares, values).amax(dim=1)
        nearest = torch.where(present(distances), distances, torch.inf).amin(dim=1)
        trust = self.weight * torch.sigmoid((self.reach - nearest) / (SLOPE * self.reach)) * agreement**AGREEMENT
        return Weights(1 - trust, trust[:, None] * shares)


def typical_distance(keys: NDArray[np.floating[Any]]) -> float:
    """The mean squared distance between two of these keys [n, d]; 0 where there are not two."""
    if len(keys) < 2:
        return 0.0
    return float(2 * keys.astype(np.float64).var(axis=0, ddof=1).sum())
