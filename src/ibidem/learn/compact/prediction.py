"""Word prediction (the paper's 3.1): the compact states alone must tell their tokens.

The sum over v in {v*, v+, v-} of -log softmax(f_theta(f_alpha(v)))[word of v], smoothed as in the authors' code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

if TYPE_CHECKING:
    from ibidem.learn.compact.triplet import Triplet


class Prediction(nn.Module):
    """f_theta: Linear(c -> vocabulary) without bias, started with variance 1 / c; discarded after training."""

    def __init__(self, dimension: int, vocabulary_size: int, smoothing: float) -> None:
        super().__init__()
        self.smoothing = smoothing
        self.head = nn.Linear(dimension, vocabulary_size, bias=False)
        nn.init.normal_(self.head.weight, std=dimension**-0.5)

    def forward(self, triplet: Triplet) -> Tensor:
        """The mean over the batch of the three losses' sum, a scalar."""
        pivot = self._loss(triplet.pivot, triplet.words)
        positive = self._loss(triplet.positive, triplet.words)
        return pivot + positive + self._loss(triplet.negative, triplet.negative_words)

    def _loss(self, compact: Tensor, words: Tensor) -> Tensor:
        return cross_entropy(self.head(compact), words, label_smoothing=self.smoothing)
