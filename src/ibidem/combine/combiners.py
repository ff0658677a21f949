"""Combiners: the weights of the base model and of the retrieved neighbours at each decoding step.

`FixedCombiner` is vanilla kNN-MT (Khandelwal et al. 2021), `AdaptiveCombiner` is adaptive kNN-MT (Zheng et al. 2021;
the paper's section 2), and `DistanceDecayCombiner` needs no tuning. `to_native` returns the native form on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ibidem.combine.mixture import Weights, aggregate, distance_kernel, first_occurrences, present
from ibidem.errors import UsageError
from ibidem.native import CombinerKernel, native, runs_triton

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray


# Distances enter the Meta-k Network in units of a typical one; a missing or very far neighbour counts as this many.
_FAR = 10.0

# Bandwidths in units of the typical squared distance between entries: for a memory without a tuned combiner, and for
# entries that were added after a combiner was tuned.
BANDWIDTH = 0.2
SHORT_BANDWIDTH = 0.1
# The constants of `DistanceDecayCombiner`; its native form takes the same.
SLOPE = 0.2
TEMPERATURE = 0.3
AGREEMENT = 3


class Combiner(Protocol):
    """Computes the weights of the base model and of the neighbours."""

    @property
    def k(self) -> int:
        """The number of neighbours to retrieve."""
        ...

    def weigh(self, distances: Tensor, values: Tensor) -> Weights:
        """Compute the weights of r rows.

        Args:
            distances: Squared distances of the neighbours, ascending, [r, K]; infinite for an absent neighbour.
            values: Token ids of the neighbours, [r, K].

        Returns:
            Weights [r] and [r, K]; a row without neighbours has weight 1 for the base model.
        """
        ...


@dataclass(frozen=True)
class FixedCombiner:
    """Weights neighbours with one k, weight and temperature at every step (vanilla kNN-MT).

    p = (1 - weight) p_NMT + weight softmax(-d / temperature) over the k nearest neighbours.

    Args:
        k: The number of neighbours, at least 1.
        weight: The weight of the neighbours (the paper's lambda), 0 to 1.
        temperature: The temperature of the softmax over squared distances, above 0.

    Raises:
        UsageError: If a setting is out of range.

    Examples:
        >>> import torch
        >>> combiner = FixedCombiner(k=2, weight=0.5, temperature=10.0)
        >>> combiner.weigh(torch.tensor([[1.0, 1.0]]), torch.tensor([[7, 9]])).neighbours
        tensor([[0.2500, 0.2500]])
    """

    k: int
    weight: float
    temperature: float

    def __post_init__(self) -> None:
        if self.k < 1 or not 0 <= self.weight <= 1 or not self.temperature > 0:
            raise UsageError(
                f"Invalid combiner: k = {self.k}, weight = {self.weight}, temperature = {self.temperature}. Give k of "
                "at least 1, a weight between 0 and 1, and a temperature above 0."
            )

    def weigh(self, distances: Tensor, values: Tensor) -> Weights:  # noqa: ARG002 - part of the protocol
        kernel = distance_kernel(distances[:, : self.k], self.temperature)
        kernel = torch.nn.functional.pad(kernel, (0, distances.shape[1] - kernel.shape[1]))
        total = kernel.sum(dim=1, keepdim=True)
        neighbours = torch.where(total > 0, self.weight * kernel / total, 0.0)
        # A positive weight of the base model keeps a forced token possible that no neighbour has.
        base = torch.where(total.squeeze(1) > 0, max(1 - self.weight, 1e-12), 1.0)
        return Weights(base, neighbours)


def neighbour_counts(k: int) -> list[int]:
    """Return 1, 2, 4, … k, the numbers of neighbours that the Meta-k Network chooses among, besides 0.

    Args:
        k: The largest number of neighbours, a power of two.

    Raises:
        UsageError: If k is not a power of two.

    Examples:
        >>> neighbour_counts(8)
        [1, 2, 4, 8]
    """
    if k < 1 or k & (k - 1):
        raise UsageError(f"The adaptive combiner needs k = 1, 2, 4, 8, …, not {k}.")
    return [1 << i for i in range(k.bit_length())]


def count_distinct(values: Tensor) -> Tensor:
    """Count the distinct values among the j nearest neighbours, for each j.

    Args:
        values: Token ids of the neighbours, nearest first, [r, K].

    Returns:
        The counts [r, K].
    """
    return first_occurrences(values).cumsum(dim=1)


class MetaK(nn.Module):
    """The Meta-k Network f_beta, from 2K features to log p_beta over {0, 1, 2, 4, …, K}.

    Two linear layers with tanh between them. The features are [d_1 … d_K; c_1 … c_K], where c_j is the number of
    distinct values among the j nearest neighbours; 0 neighbours stands for the base model.

    Args:
        k: The largest number of neighbours, a power of two.
        scale: A typical squared distance of the key space. Distances are divided by it, so that one learning rate
            suits every space.
        hidden: The width of the hidden layer.
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
        """Compute the features of the network's input.

        Args:
            distances: Squared distances of the neighbours, ascending, [r, K]; infinite for an absent neighbour.
            values: Token ids of the neighbours, [r, K].

        Returns:
            The scaled distances, then the counts of distinct values, [r, 2K].
        """
        near = (distances / self.scale).nan_to_num(nan=_FAR, posinf=_FAR, neginf=_FAR).clamp(max=_FAR)
        return torch.cat([near, count_distinct(values).to(near.dtype)], dim=1)

    def choose(self, features: Tensor) -> Tensor:
        """Compute log p_beta from features.

        Args:
            features: The output of `features`, [r, 2K].

        Returns:
            Log-probabilities of 0, 1, 2, 4, … K neighbours, [r, 2 + log2 K].
        """
        logits: Tensor = self.outer(torch.tanh(self.inner(features)))
        return logits.log_softmax(dim=1)

    def forward(self, distances: Tensor, values: Tensor) -> Tensor:
        """Compute log p_beta from distances and values.

        Args:
            distances: Squared distances of the neighbours, ascending, [r, K]; infinite for an absent neighbour.
            values: Token ids of the neighbours, [r, K].

        Returns:
            Log-probabilities of 0, 1, 2, 4, … K neighbours, [r, 2 + log2 K].
        """
        return self.choose(self.features(distances, values))


def spread_choices(log_choice: Tensor, kernel: Tensor) -> Weights:
    """Compute the weights of the neighbours from the probabilities of the choices of k.

    Every choice k spreads its probability over the k nearest neighbours in proportion to their kernel values e_j:
    w_j = e_j sum over k >= j of p(k) / (e_1 + … + e_k).

    Args:
        log_choice: log p_beta, [r, 2 + log2 K].
        kernel: Kernel values, [r, K].

    Returns:
        Weights [r] and [r, K]; without neighbours, the base model has weight 1.

    Raises:
        UsageError: If K is not a power of two.
    """
    width = kernel.shape[1]
    sizes = neighbour_counts(width)
    chosen = log_choice.exp()
    sums = kernel.cumsum(dim=1)
    totals = torch.stack([sums[:, size - 1] for size in sizes], dim=1)
    factors = torch.where(totals > 0, chosen[:, 1:] / totals.clamp_min(1e-30), 0.0)
    # Nothing here may wait for another device: a whole decoding step is captured as one CUDA graph.
    members = torch.arange(width, device=kernel.device) < (1 << torch.arange(len(sizes), device=kernel.device))[:, None]
    neighbours = kernel * (factors @ members.to(kernel.dtype))
    return Weights(1 - neighbours.sum(dim=1), neighbours)


@dataclass(frozen=True)
class AdaptiveCombiner:
    """Weights neighbours with a trained Meta-k Network (adaptive kNN-MT).

    p = sum over k of p_beta(k) p_kNN(k), where p_beta is the network's distribution over 0, 1, 2, 4, … K neighbours.

    Args:
        network: The trained network.
        temperature: The temperature with which it was trained.

    Examples:
        >>> import torch
        >>> combiner = AdaptiveCombiner(MetaK(k=4, scale=100.0), temperature=10.0)
        >>> weights = combiner.weigh_in_torch(torch.tensor([[1.0, 2.0, 5.0, 9.0]]), torch.tensor([[7, 7, 9, 7]]))
        >>> weights.base.shape, weights.neighbours.shape
        (torch.Size([1]), torch.Size([1, 4]))
    """

    network: MetaK
    temperature: float

    @property
    def k(self) -> int:
        return self.network.k

    def weigh(self, distances: Tensor, values: Tensor) -> Weights:
        if runs_triton(distances) and not torch.is_grad_enabled():
            from ibidem.combine import kernels

            return kernels.weigh_meta_k(distances, values, self.network, self.temperature, _FAR)
        return self.weigh_in_torch(distances, values)

    def weigh_in_torch(self, distances: Tensor, values: Tensor) -> Weights:
        """Compute the weights in torch, on any device; `weigh` uses a Triton kernel on a GPU.

        Args:
            distances: Squared distances of the neighbours, ascending, [r, K]; infinite for an absent neighbour.
            values: Token ids of the neighbours, [r, K].

        Returns:
            Weights [r] and [r, K].
        """
        weights = spread_choices(self.network(distances, values), distance_kernel(distances, self.temperature))
        alone = ~present(distances).any(dim=1)
        return Weights(torch.where(alone, 1.0, weights.base).clamp_min(1e-12), weights.neighbours)


@dataclass(frozen=True)
class DistanceDecayCombiner:
    """Weights neighbours by their distance and agreement; it needs no tuning.

    There is always a nearest neighbour. With a weight that does not depend on its distance, as in vanilla kNN-MT, a
    memory of one pair would change every sentence. Here the neighbours together have the weight

        weight * sigmoid((bandwidth - d_1) / (bandwidth / 5)) * a ** 3

    where d_1 is the squared distance of the nearest neighbour, and a is the largest sum of
    softmax(-d / (0.3 bandwidth)) over neighbours of one value: neighbours of different values weaken each other.

    Args:
        bandwidth: The squared distance at which the weight is halved, above 0; by default `BANDWIDTH` times the
            typical squared distance between two entries.
        k: The number of neighbours, at least 1.
        weight: The weight of agreeing neighbours at distance 0, at least 0 and below 1.

    Raises:
        UsageError: If a setting is out of range.

    Examples:
        >>> import torch
        >>> combiner = DistanceDecayCombiner(bandwidth=10.0, k=2)
        >>> near, far = combiner.weigh(torch.tensor([[0.0, 1.0], [20.0, 21.0]]), torch.tensor([[7, 7], [7, 7]])).base
        >>> float(near) < 0.2, float(far) > 0.9
        (True, True)
    """

    bandwidth: float
    k: int = 8
    weight: float = 0.9

    def __post_init__(self) -> None:
        if self.k < 1 or not 0 <= self.weight < 1 or not self.bandwidth > 0:
            raise UsageError(
                f"Invalid combiner: k = {self.k}, weight = {self.weight}, bandwidth = {self.bandwidth}. Give k of at "
                "least 1, a weight of at least 0 and below 1, and a bandwidth above 0."
            )

    def weigh(self, distances: Tensor, values: Tensor) -> Weights:
        kernel = distance_kernel(distances, TEMPERATURE * self.bandwidth)
        parts = kernel / kernel.sum(dim=1, keepdim=True).clamp_min(1e-30)
        agreement = aggregate(parts, values).amax(dim=1)
        nearest = torch.where(present(distances), distances, torch.inf).amin(dim=1)
        decay = torch.sigmoid((self.bandwidth - nearest) / (SLOPE * self.bandwidth))
        total = self.weight * decay * agreement**AGREEMENT
        return Weights(1 - total, total[:, None] * parts)


def typical_distance(keys: NDArray[np.floating[Any]]) -> float:
    """Compute the mean squared distance between two different keys.

    Args:
        keys: The keys, or a sample of them, [n, d].

    Returns:
        The mean; 0 for fewer than two keys.

    Examples:
        >>> import numpy as np
        >>> typical_distance(np.array([[0.0, 0.0], [3.0, 4.0]]))
        25.0
    """
    if len(keys) < 2:
        return 0.0
    return float(2 * keys.astype(np.float64).var(axis=0, ddof=1).sum())


class NativeCombiner:
    """A combiner whose weights are computed in native code; they are those of the combiner in torch.

    Args:
        kernel: The native form of a combiner.

    Attributes:
        kernel: The native form.
        k: The number of neighbours to retrieve.
    """

    def __init__(self, kernel: CombinerKernel) -> None:
        self.kernel = kernel
        self.k = kernel.k

    def weigh(self, distances: Tensor, values: Tensor) -> Weights:
        """Compute the weights for squared distances [r, K], ascending, and values [r, K]."""
        return Weights(*self.kernel.weigh(distances, values))


def to_native(combiner: Combiner) -> Combiner:
    """Return the native form of a combiner on the CPU.

    Args:
        combiner: The combiner; its tensors must be on the CPU.

    Returns:
        The native form; the combiner itself without the native library, or if it is of another class than those here.
    """
    kernel = None if native() is None else _make_kernel(combiner)
    return combiner if kernel is None else NativeCombiner(kernel)


def _make_kernel(combiner: Combiner) -> CombinerKernel | None:
    # A subclass may weigh otherwise.
    if type(combiner) is FixedCombiner:
        return CombinerKernel.fixed(combiner.k, combiner.weight, combiner.temperature)
    if type(combiner) is DistanceDecayCombiner:
        return CombinerKernel.distance_decay(
            combiner.k,
            bandwidth=combiner.bandwidth,
            slope=SLOPE * combiner.bandwidth,
            temperature=TEMPERATURE * combiner.bandwidth,
            weight=combiner.weight,
            agreement=AGREEMENT,
        )
    if type(combiner) is AdaptiveCombiner and combiner.network.scale.is_cpu:
        network = combiner.network
        inner, outer = ((layer.weight, layer.bias) for layer in (network.inner, network.outer))
        return CombinerKernel.meta_k(inner, outer, scale=float(network.scale), temperature=combiner.temperature)
    return None
