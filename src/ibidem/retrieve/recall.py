"""How much of the true neighbourhood an index finds, measured against exact search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ibidem.retrieve.exact import ExactIndex

if TYPE_CHECKING:
    from torch import Tensor

    from ibidem.retrieve.keys import Keys
    from ibidem.retrieve.neighbours import Index

# What float32 rounding may add to a distance.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Probe:
    """Queries [n, d] float32 and how far the k-th true neighbour of each is, [n] float64."""

    queries: Tensor
    limits: Tensor
    k: int


def measure_recall(index: Index, keys: Keys, *, k: int = 16, samples: int = 256, seed: int) -> float:
    """Measure recall@k: the share of the k true nearest keys that an index finds, over sampled queries."""
    return recall_at(index, keys, draw_probe(keys, k=k, samples=samples, seed=seed))


def draw_probe(keys: Keys, *, k: int, samples: int, seed: int) -> Probe:
    """Draw queries that resemble those of decoding, and search them exactly.

    A query is a key of the memory moved in a random direction by as much as its nearest other key is away, so
    that a key with a duplicate is asked for itself.
    """
    generator = np.random.default_rng(seed)
    ids = np.sort(generator.choice(keys.size, min(samples, keys.size), replace=False))
    held = torch.from_numpy(keys.gather(ids).astype(np.float32))
    held = held[torch.isfinite(held).all(1)]
    exact = ExactIndex(keys)
    nearest_other = exact.search(held, 2).distances[:, 1]
    step = torch.where(torch.isfinite(nearest_other), nearest_other, 0.0).sqrt()
    noise = torch.from_numpy(generator.standard_normal(held.shape, dtype=np.float32))
    queries = held + noise / noise.norm(dim=1, keepdim=True) * step[:, None]
    width = max(1, min(k, keys.size))
    return Probe(queries, exact.search(queries, width).distances[:, -1].double(), width)


def recall_at(index: Index, keys: Keys, probe: Probe) -> float:
    """Measure recall on drawn queries; 1 where there are none.

    A key found counts where it is no farther than the k-th true neighbour, so that of duplicates any will do.
    """
    if len(probe.queries) == 0:
        return 1.0
    entries = index.search(probe.queries, probe.k).entries
    ids = entries.clamp(min=0).flatten().numpy()
    found = torch.from_numpy(keys.gather(ids).astype(np.float64)).view(*entries.shape, -1)
    distances = (probe.queries[:, None].double() - found).square().sum(2)
    hits = (entries >= 0) & (distances <= probe.limits[:, None] * (1 + _ROUNDING))
    return float(hits.double().mean())
