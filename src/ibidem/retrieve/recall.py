"""Recall@k of an index, measured against exact search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ibidem.retrieve.exact import ExactIndex

if TYPE_CHECKING:
    from torch import Tensor

    from ibidem.retrieve.index import Index
    from ibidem.retrieve.keys import Keys

# What float32 rounding may add to a distance.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Probe:
    """Sampled queries and the distance of their k-th true neighbour.

    Attributes:
        queries: [n, d] float32.
        limits: [n] float64, squared distances.
        k: the number of true neighbours.
    """

    queries: Tensor
    limits: Tensor
    k: int


def measure_recall(index: Index, keys: Keys, *, k: int = 16, samples: int = 256, seed: int) -> float:
    """Measure recall@k: the share of the k true nearest keys that an index finds, over sampled queries.

    Args:
        index: the index to measure.
        keys: the keys of the index.
        k: neighbours for each query.
        samples: the number of queries.
        seed: of the sampling.

    Returns:
        A number from 0 to 1.

    Examples:
        >>> from ibidem.retrieve import ArrayKeys
        >>> keys = ArrayKeys(np.eye(8, dtype=np.float16))
        >>> measure_recall(ExactIndex(keys), keys, k=2, samples=4, seed=0)
        1.0
    """
    return recall_at(index, keys, draw_probe(keys, k=k, samples=samples, seed=seed))


def draw_probe(keys: Keys, *, k: int, samples: int, seed: int, exact: Index | None = None) -> Probe:
    """Draw queries that resemble those of decoding, and search for them exactly.

    A query is a key of the memory, moved in a random direction by the distance of its nearest other key. The query of
    a key that has a duplicate is therefore the key itself.

    Args:
        keys: the keys to draw from.
        k: true neighbours for each query.
        samples: the number of queries.
        seed: of the sampling.
        exact: an exact index of the keys; None to make one on the CPU.

    Returns:
        The queries and the distance of the k-th true neighbour of each.
    """
    generator = np.random.default_rng(seed)
    ids = np.sort(generator.choice(keys.size, min(samples, keys.size), replace=False))
    drawn = torch.from_numpy(keys.gather(ids).astype(np.float32))
    drawn = drawn[torch.isfinite(drawn).all(1)]
    exact = ExactIndex(keys) if exact is None else exact
    nearest_other = exact.search(drawn, 2).distances[:, 1]
    step = torch.where(torch.isfinite(nearest_other), nearest_other, 0.0).sqrt()
    noise = torch.from_numpy(generator.standard_normal(drawn.shape, dtype=np.float32))
    queries = drawn + noise / noise.norm(dim=1, keepdim=True) * step[:, None]
    width = max(1, min(k, keys.size))
    return Probe(queries, exact.search(queries, width).distances[:, -1].double(), width)


def recall_at(index: Index, keys: Keys, probe: Probe) -> float:
    """Measure recall on a probe; 1 where the probe is empty.

    A found key counts where it is no farther than the k-th true neighbour, so any of several duplicates counts.

    Args:
        index: the index to measure.
        keys: the keys of the index.
        probe: the queries, drawn from the same keys.

    Returns:
        A number from 0 to 1.
    """
    if len(probe.queries) == 0:
        return 1.0
    entries = index.search(probe.queries, probe.k).entries
    ids = entries.clamp(min=0).flatten().numpy()
    found = torch.from_numpy(keys.gather(ids).astype(np.float64)).view(*entries.shape, -1)
    distances = (probe.queries[:, None].double() - found).square().sum(2)
    hits = (entries >= 0) & (distances <= probe.limits[:, None] * (1 + _ROUNDING))
    return float(hits.double().mean())
