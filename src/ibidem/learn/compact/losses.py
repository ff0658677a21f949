"""Losses that train the Compact Network: the paper's three objectives (section 3.1) and the authors' readings of two.

Notation: v* is a pivot, v+ a positive of the pivot's cluster, v- a negative from another family; f_alpha is the
network that is trained, and f_theta a layer on top of it that is discarded after training. Every loss maps a batch of
B compact triplets to the mean loss, a scalar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.linalg import vector_norm
from torch.nn.functional import cross_entropy, logsigmoid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.learn.compact.compaction import CompactSettings

# Two keys may be equal, and 1 / 0 would make the loss of the whole batch infinite: smaller distances count as this.
LEAST_DISTANCE = 1e-3
# Constants of the authors' code: the largest squared distance that counts, the weight of its inverse, and a summand.
_MARGIN = 10.0
_OFFSET = 1e-3


class CompactTriplets(NamedTuple):
    """Hold a batch of triplets in the compact space.

    Attributes:
        pivot: f_alpha(v*), [B, c].
        positive: f_alpha(v+), [B, c].
        negative: f_alpha(v-), [B, c].
        tokens: [B] int64, the value of pivot and positive, which share a cluster.
        negative_tokens: [B] int64, the value of the negative.
    """

    pivot: Tensor
    positive: Tensor
    negative: Tensor
    tokens: Tensor
    negative_tokens: Tensor


class BinaryNceLoss(nn.Module):
    """Classify the pairs {pivot, positive} and {pivot, negative}: the paper's Triplet NCE (section 3.1).

        -log sigma(f_theta([f_alpha(v+); f_alpha(v*)])) - log(1 - sigma(f_theta([f_alpha(v-); f_alpha(v*)])))

    f_theta is a linear layer 2c -> 1, so its logit is a sum u(v±) + w(v*). If positives and negatives have the same
    distribution, no such sum separates the pairs: the loss is convex in (u, w) and its gradient at 0 is 0, so 2 log 2
    is its minimum for every f_alpha. `InBatchNceLoss`, the reading of the authors' code, is therefore the default.

    Args:
        dimension: c, the dimension of the compact space.

    Examples:
        >>> states = torch.zeros(4, 2)
        >>> tokens = torch.zeros(4, dtype=torch.int64)
        >>> loss = BinaryNceLoss(2)
        >>> _ = nn.init.zeros_(loss.head.bias)
        >>> round(loss(CompactTriplets(states, states, states, tokens, tokens)).item(), 4)
        1.3863
    """

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.head = nn.Linear(2 * dimension, 1)

    def forward(self, batch: CompactTriplets) -> Tensor:
        """Return the mean loss of the batch.

        Args:
            batch: The triplets in the compact space.
        """
        same = self.head(torch.cat([batch.positive, batch.pivot], dim=1))
        other = self.head(torch.cat([batch.negative, batch.pivot], dim=1))
        # log(1 - sigma(x)) = log sigma(-x); logsigmoid neither underflows nor overflows.
        loss: Tensor = -(logsigmoid(same) + logsigmoid(-other)).mean()
        return loss


class InBatchNceLoss(nn.Module):
    """Classify the pivot of each positive among all pairs of the batch: Triplet NCE as in the authors' code.

    With a_i = f_alpha(v+_i), n_i = f_alpha(v-_i) and p_j = f_alpha(v*_j), row i has the 2B logits
    [a_i . p_1 … a_i . p_B, n_i . p_1 … n_i . p_B] and the class i:

        (1 - s) (-log softmax_i) + s / 2B sum_j (-log softmax_j)

    The logits are plain dot products without temperature or f_theta, and pivots of the same family are not masked.
    The paper (section 3.1) writes `BinaryNceLoss` instead.

    Args:
        smoothing: s, the label smoothing; 0.002 in the authors' code.

    Examples:
        >>> pivot = torch.tensor([[9.0, 0.0], [0.0, 9.0]])
        >>> tokens = torch.tensor([0, 1])
        >>> loss = InBatchNceLoss(smoothing=0.0)
        >>> round(loss(CompactTriplets(pivot, pivot, -pivot, tokens, tokens)).item(), 4)
        0.0
    """

    def __init__(self, smoothing: float) -> None:
        super().__init__()
        self.smoothing = smoothing

    def forward(self, batch: CompactTriplets) -> Tensor:
        """Return the mean loss of the batch.

        With total = logsumexp of the logits, -log softmax_j = total - logit_j. So the [B, 2B] logits are needed for
        their total only, and the two halves are never concatenated, which a cross-entropy would require.

        Args:
            batch: The triplets in the compact space.
        """
        pivot, positive, negative = batch.pivot, batch.positive, batch.negative
        total = torch.logaddexp((positive @ pivot.T).logsumexp(dim=1), (negative @ pivot.T).logsumexp(dim=1))
        own = (positive * pivot).sum(dim=1)
        average = (positive + negative) @ pivot.mean(dim=0) / 2
        return (total - (1 - self.smoothing) * own - self.smoothing * average).mean()


class DistanceRankingLoss(nn.Module):
    """Pull positives to their pivots and push negatives away: the paper's Triplet Distance Ranking (section 3.1).

        |f_alpha(v+) - f_alpha(v*)| + 1 / |f_alpha(v-) - f_alpha(v*)|

    There is no f_theta. Distances below 0.001 count as 0.001 in the second term.

    Examples:
        >>> pivot, tokens = torch.zeros(1, 2), torch.tensor([0])
        >>> batch = CompactTriplets(pivot, pivot + torch.tensor([3.0, 4.0]), pivot + 2, tokens, tokens)
        >>> round(DistanceRankingLoss()(batch).item(), 4)  # 5 + 1 / sqrt(8)
        5.3536
    """

    def forward(self, batch: CompactTriplets) -> Tensor:
        """Return the mean loss of the batch.

        Args:
            batch: The triplets in the compact space.
        """
        near = vector_norm(batch.positive - batch.pivot, dim=1)
        far = vector_norm(batch.negative - batch.pivot, dim=1)
        loss: Tensor = (near + 1 / far.clamp_min(LEAST_DISTANCE)).mean()
        return loss


class ClippedRankingLoss(nn.Module):
    """Rank distances with squared and clipped distances: Triplet Distance Ranking as in the authors' code.

        |a - p|² + r(n, p) + r(n, n'),    r(x, y) = 10 / (min(|x - y|², 10) + 0.001)

    a, p and n are the compact positive, pivot and negative, and n' is the negative of the next triplet; the last
    triplet of a batch has none. The paper (section 3.1) writes `DistanceRankingLoss` instead.

    Examples:
        >>> pivot, tokens = torch.zeros(1, 2), torch.tensor([0])
        >>> batch = CompactTriplets(pivot, pivot + torch.tensor([3.0, 4.0]), pivot + 20, tokens, tokens)
        >>> round(ClippedRankingLoss()(batch).item(), 4)  # 25 + 10 / 10.001
        25.9999
    """

    def forward(self, batch: CompactTriplets) -> Tensor:
        """Return the mean loss of the batch.

        Args:
            batch: The triplets in the compact space.
        """
        near = (batch.positive - batch.pivot).square().sum(dim=1)
        loss = near.mean() + _repel(batch.negative, batch.pivot)
        if len(batch.negative) > 1:
            loss = loss + _repel(batch.negative[1:], batch.negative[:-1])
        return loss


def _repel(left: Tensor, right: Tensor) -> Tensor:
    squares = (left - right).square().sum(dim=1).clamp_max(_MARGIN)
    return (_MARGIN / (squares + _OFFSET)).mean()


class WordPredictionLoss(nn.Module):
    """Predict the token of each compact state: the paper's Word Prediction Loss (section 3.1).

        sum over v in {v*, v+, v-} of -log softmax(f_theta(f_alpha(v)))[token of v]

    f_theta is a linear layer c -> vocabulary without bias, drawn with the variance 1 / c. The labels are smoothed as
    in the authors' code.

    Args:
        dimension: c, the dimension of the compact space.
        vocabulary_size: Number of target tokens.
        smoothing: The label smoothing.

    Examples:
        >>> states, tokens = torch.zeros(4, 2), torch.tensor([0, 1, 2, 3])
        >>> loss = WordPredictionLoss(dimension=2, vocabulary_size=10, smoothing=0.0)
        >>> round(loss(CompactTriplets(states, states, states, tokens, tokens)).item(), 4)  # 3 log 10
        6.9078
    """

    def __init__(self, dimension: int, vocabulary_size: int, smoothing: float) -> None:
        super().__init__()
        self.smoothing = smoothing
        self.head = nn.Linear(dimension, vocabulary_size, bias=False)
        nn.init.normal_(self.head.weight, std=dimension**-0.5)

    def forward(self, batch: CompactTriplets) -> Tensor:
        """Return the mean over the batch of the sum of the three losses.

        Args:
            batch: The triplets in the compact space.
        """
        pivot = self._predict(batch.pivot, batch.tokens)
        positive = self._predict(batch.positive, batch.tokens)
        return pivot + positive + self._predict(batch.negative, batch.negative_tokens)

    def _predict(self, states: Tensor, tokens: Tensor) -> Tensor:
        return cross_entropy(self.head(states), tokens, label_smoothing=self.smoothing)


class WeightedLoss(nn.Module):
    """Sum several losses, each with a weight and with its own f_theta if it has one.

    Args:
        parts: The losses and their weights.
    """

    def __init__(self, parts: Sequence[tuple[nn.Module, float]]) -> None:
        super().__init__()
        self.parts = nn.ModuleList([part for part, _ in parts])
        self.weights = [weight for _, weight in parts]

    def forward(self, batch: CompactTriplets) -> Tensor:
        """Return the weighted sum of the mean losses of the batch.

        Args:
            batch: The triplets in the compact space.
        """
        losses = [weight * part(batch) for part, weight in zip(self.parts, self.weights, strict=True)]
        return torch.stack(losses).sum()


def build_loss(settings: CompactSettings, vocabulary_size: int) -> WeightedLoss:
    """Build the weighted loss that the settings name.

    Args:
        settings: The settings: objectives, nce, ranking, dimension and label_smoothing are used.
        vocabulary_size: Number of target tokens.

    Returns:
        The losses in the order of `settings.objectives`.
    """
    return WeightedLoss(
        [(_build_part(name, settings, vocabulary_size), weight) for name, weight in settings.objectives]
    )


def _build_part(name: str, settings: CompactSettings, vocabulary_size: int) -> nn.Module:
    if name == "nce":
        in_batch = settings.nce == "in_batch"
        return InBatchNceLoss(settings.label_smoothing) if in_batch else BinaryNceLoss(settings.dimension)
    if name == "ranking":
        return DistanceRankingLoss() if settings.ranking == "paper" else ClippedRankingLoss()
    return WordPredictionLoss(settings.dimension, vocabulary_size, settings.label_smoothing)
