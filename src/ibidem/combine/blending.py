"""Several memories at once: one list of neighbours, and one weight for the base model.

p = sum over the memories m of a_m p_m, where p_m = w_m0 p_NMT + sum of w_mj over its neighbours. The shares a_m
follow, at every step, how much each memory trusts itself there: a_m is proportional to s_m (1 - w_m0), s_m being
the weight that the user gave. Constant shares would let a memory that has nothing to say about a sentence weaken
the one that has; and a memory mounted twice counts no more than once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ibidem.combine.mixing import Weights

if TYPE_CHECKING:
    from collections.abc import Sequence


def average_weights(weights: Sequence[Weights], shares: Sequence[float]) -> Weights:
    """The weights of the mixture, neighbours of all memories side by side, in the order of the memories."""
    trust = torch.stack([w.neighbours.sum(dim=1) * share for w, share in zip(weights, shares, strict=True)], dim=1)
    total = trust.sum(dim=1, keepdim=True)
    parts = torch.where(total > 0, trust / total.clamp_min(torch.finfo(trust.dtype).tiny), 0.0)
    base = (parts * torch.stack([w.base for w in weights], dim=1)).sum(dim=1)
    neighbours = torch.cat([w.neighbours * parts[:, m : m + 1] for m, w in enumerate(weights)], dim=1)
    return Weights(torch.where(total.squeeze(1) > 0, base, 1.0), neighbours)


def overlay_weights(under: Weights, over: Weights) -> Weights:
    """The weights of what `over` decides, with `under` in the place of the base model; neighbours side by side."""
    return Weights(over.base * under.base, torch.cat([over.base[:, None] * under.neighbours, over.neighbours], dim=1))
