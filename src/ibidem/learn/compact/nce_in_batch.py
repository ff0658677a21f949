"""Triplet noise-contrastive estimation as the authors' code has it: each positive must find its pivot in the batch.

With a_i = f_alpha(v+_i), n_i = f_alpha(v-_i) and p_j = f_alpha(v*_j), row i of B has the 2B logits
[a_i . p_1 … a_i . p_B, n_i . p_1 … n_i . p_B] and the class i: raw dot products, no temperature, no f_theta,
pivots of the same family not masked. Smoothed: (1 - s) (-log p_i) + s / 2B sum over j of -log p_j.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from ibidem.learn.compact.triplet import Triplet


class InBatchNce(nn.Module):
    """A softmax over all pairs of a row; smoothing is 0.002 in the authors' code."""

    def __init__(self, smoothing: float) -> None:
        super().__init__()
        self.smoothing = smoothing

    def forward(self, triplet: Triplet) -> Tensor:
        """The mean over the batch, a scalar.

        -log p_j = total - logit_j, so the smoothed loss needs the logits only for their total, and not side by side:
        half the time of a cross-entropy over [B, 2B].
        """
        pivot, positive, negative = triplet.pivot, triplet.positive, triplet.negative
        total = torch.logaddexp((positive @ pivot.T).logsumexp(dim=1), (negative @ pivot.T).logsumexp(dim=1))
        own = (positive * pivot).sum(dim=1)
        average = (positive + negative) @ pivot.mean(dim=0) / 2
        return (total - (1 - self.smoothing) * own - self.smoothing * average).mean()
