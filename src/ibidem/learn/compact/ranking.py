"""Triplet distance ranking (the paper's 3.1): positives near their pivots, negatives far. There is no f_theta."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.linalg import vector_norm

if TYPE_CHECKING:
    from ibidem.learn.compact.triplet import Triplet

# Two keys may be equal, and 1 / 0 would spoil the whole batch: nearer than this counts as this near.
NEAREST = 1e-3
# The authors' constants: squared distances count up to this, and their inverses as many times.
MARGIN = 10.0
_ALMOST_ZERO = 1e-3


class Ranking(nn.Module):
    """The paper's formula: |f_alpha(v+) - f_alpha(v*)| + 1 / |f_alpha(v-) - f_alpha(v*)|."""

    def forward(self, triplet: Triplet) -> Tensor:
        """The mean over the batch, a scalar."""
        near = vector_norm(triplet.positive - triplet.pivot, dim=1)
        far = vector_norm(triplet.negative - triplet.pivot, dim=1)
        loss: Tensor = (near + 1 / far.clamp_min(NEAREST)).mean()
        return loss


class ClippedRanking(nn.Module):
    """The authors' code: |a - p|^2 + r(n, p) + r(n, next n), where r(x, y) = 10 / (min(|x - y|^2, 10) + 0.001).

    a, p and n are the compact positive, pivot and negative; the last negative of a batch has no next one.
    """

    def forward(self, triplet: Triplet) -> Tensor:
        """The mean over the batch, a scalar."""
        near = (triplet.positive - triplet.pivot).square().sum(dim=1)
        loss = near.mean() + _repel(triplet.negative, triplet.pivot)
        if len(triplet.negative) > 1:
            loss = loss + _repel(triplet.negative[1:], triplet.negative[:-1])
        return loss


def _repel(left: Tensor, right: Tensor) -> Tensor:
    squares = (left - right).square().sum(dim=1).clamp_max(MARGIN)
    return (MARGIN / (squares + _ALMOST_ZERO)).mean()
