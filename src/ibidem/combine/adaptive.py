"""Adaptive kNN-MT: the Meta-k Network weighs k = 0, 1, 2, 4, … K at every step (Zheng et al. 2021; the paper's 2).

p = sum over k of p_beta(k) p_kNN(k), where p_beta = softmax(f_beta([d_1 … d_K; c_1 … c_K])), c_j is the number
of distinct values among the j nearest, and k = 0 stands for the base model.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ibidem.combine.mixing import Weights, distance_kernel, first_occurrences, present
from ibidem.errors import UsageError
from ibidem.native import runs_triton

# Distances enter the network divided by a typical one; a missing or absurdly far neighbour counts as this many.
_FAR = 10.0


def neighbour_counts(k: int) -> list[int]:
    """1, 2, 4, … k: the numbers of neighbours that the network chooses among, beside 0."""
    if k < 1 or k & (k - 1):
        raise UsageError(f"The adaptive combiner needs k = 1, 2, 4, 8, …, not {k}.")
    return [1 << i for i in range(k.bit_length())]


def count_distinct(values: Tensor) -> Tensor:
    """The number of distinct values among the j nearest, for each j, [r, K]."""
    return first_occurrences(values).cumsum(dim=1)


class MetaK(nn.Module):
    """f_beta: two layers with tanh between them; from 2K features to log p_beta over {0, 1, 2, 4, …, K}.

    `scale` is a typical squared distance of the space at hand: dividing by it lets one learning rate fit all spaces.
    """

    scale: Tensor

    def __init__(self, k: int, scale: float, hidden: int = 32) -> None:
        super().__init__()
        self.k = k
        self.register_buffer("scale", torch.tensor(float(scale)))
        self.inner = nn.Linear(2 * k, hidden)
        self.outer = nn.Linear(hidden, 1 + len(neighbour_counts(k)))
        nn.init.xavier_normal_(self.inner.weight[:, :k], gain=0.01)
        nn.init.xavier_normal_(self.inner.weight[:, k:], gain=0.1)

    def features(self, distances: Tensor, values: Tensor) -> Tensor:
        """[d_1 … d_K; c_1 … c_K], distances in units of the scale, [r, 2K]."""
        near = (distances / self.scale).nan_to_num(nan=_FAR, posinf=_FAR, neginf=_FAR).clamp(max=_FAR)
        return torch.cat([near, count_distinct(values).to(near.dtype)], dim=1)

    def choose(self, features: Tensor) -> Tensor:
        """log p_beta [r, 2 + log2 K]."""
        logits: Tensor = self.outer(torch.tanh(self.inner(features)))
        return logits.log_softmax(dim=1)

    def forward(self, distances: Tensor, values: Tensor) -> Tensor:
        """log p_beta [r, 2 + log2 K] for distances and values [r, K]."""
        return self.choose(self.features(distances, values))


def spread_choices(log_choice: Tensor, votes: Tensor) -> Weights:
    """Weights from log p_beta [r, 1 + len(choices)] and kernel values [r, K].

    Neighbour j votes in every choice k >= j with its share of the k nearest:
    w_j = e_j sum over k >= j of p(k) / (e_1 + … + e_k).
    """
    width = votes.shape[1]
    sizes = neighbour_counts(width)
    chosen = log_choice.exp()
    sums = votes.cumsum(dim=1)
    totals = torch.stack([sums[:, size - 1] for size in sizes], dim=1)
    share = torch.where(totals > 0, chosen[:, 1:] / totals.clamp_min(1e-30), 0.0)
    # Nothing here may wait for another device: a whole decoding step is captured as one graph.
    members = torch.arange(width, device=votes.device) < (1 << torch.arange(len(sizes), device=votes.device))[:, None]
    neighbours = votes * (share @ members.to(votes.dtype))
    return Weights(1 - neighbours.sum(dim=1), neighbours)


@dataclass(frozen=True)
class AdaptiveCombiner:
    """A trained Meta-k Network and the temperature it was trained with."""

    network: MetaK
    temperature: float

    @property
    def k(self) -> int:
        return self.network.k

    def weigh(self, distances: Tensor, values: Tensor) -> Weights:
        """Weights for [r, K]; a row without any neighbour is all the base model's."""
        if runs_triton(distances) and not torch.is_grad_enabled():
            from ibidem.combine.kernels import weighing

            return weighing.weigh(distances, values, self.network, self.temperature, _FAR)
        return self.weigh_plainly(distances, values)

    def weigh_plainly(self, distances: Tensor, values: Tensor) -> Weights:
        """The same on any device, without Triton."""
        weights = spread_choices(self.network(distances, values), distance_kernel(distances, self.temperature))
        alone = ~present(distances).any(dim=1)
        return Weights(torch.where(alone, 1.0, weights.base).clamp_min(1e-12), weights.neighbours)
