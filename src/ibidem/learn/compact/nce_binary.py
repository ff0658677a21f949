"""Triplet noise-contrastive estimation as the paper writes it (3.1): two binary classifications a triplet.

-log sigma(f_theta([f_alpha(v+); f_alpha(v*)])) - log(1 - sigma(f_theta([f_alpha(v-); f_alpha(v*)])))

With f_theta one linear layer of output 1, "the f_theta layer" of the paper, the logit is a sum u(v±) + w(v*) of
one term for each side. Where positives and negatives are drawn alike, no such sum tells pairs apart: the loss is
convex in (u, w), its gradient at 0 is nil, so 2 log 2 is its least value whatever f_alpha does. It is kept as the
paper's formula, and `in_batch` (the authors' code) is the default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

if TYPE_CHECKING:
    from ibidem.learn.compact.triplet import Triplet


class BinaryNce(nn.Module):
    """f_theta: Linear(2c -> 1), discarded after training."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.head = nn.Linear(2 * dimension, 1)

    def forward(self, triplet: Triplet) -> Tensor:
        """The mean over the batch, a scalar."""
        same = self.head(torch.cat([triplet.positive, triplet.pivot], dim=1))
        other = self.head(torch.cat([triplet.negative, triplet.pivot], dim=1))
        # log(1 - sigma(x)) = log sigma(-x), and logsigmoid neither under- nor overflows.
        loss: Tensor = -(logsigmoid(same) + logsigmoid(-other)).mean()
        return loss
