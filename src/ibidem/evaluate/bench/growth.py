"""How the cost of a search grows with the memory: its own keys, and more of their kind."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ibidem.retrieve import ArrayKeys, build_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from ibidem.retrieve import Keys

_BLOCK = 1 << 20


@dataclass(frozen=True)
class SearchTime:
    """The index of so many keys: what it is, seconds to build it, and microseconds a query by size of batch."""

    keys: int
    description: str
    build_seconds: float
    microseconds: dict[int, float]

    def to_json(self) -> dict[str, Any]:
        """The same for a report."""
        return asdict(self)


def fit_growth(times: Sequence[SearchTime]) -> dict[int, float]:
    """By size of batch the exponent e of a cost that grows as keys ** e, by least squares of logarithms; {} of one."""
    if len({found.keys for found in times}) < 2:
        return {}
    keys = np.log([found.keys for found in times])
    return {
        size: float(np.polyfit(keys, np.log([found.microseconds[size] for found in times]), 1)[0])
        for size in times[0].microseconds
    }


def grow_keys(keys: Keys, size: int, *, seed: int) -> ArrayKeys:
    """`size` keys: a part of the given ones, or all of them and others moved away from one of them a little.

    A new key lies as far from its model as two random keys of one block lie apart, times 0.3: among the others, but
    no copy.
    """
    generator = np.random.default_rng(seed)
    grown = np.empty((size, keys.dimension), np.float16)
    for start in range(0, size, _BLOCK):
        stop = min(start + _BLOCK, size)
        if stop <= keys.size:
            grown[start:stop] = keys.gather(np.arange(start, stop))
            continue
        models = keys.gather(np.sort(generator.integers(keys.size, size=stop - start))).astype(np.float32)
        spread = 0.3 * float(np.abs(models - generator.permutation(models)).mean())
        grown[start:stop] = models + spread * generator.standard_normal(models.shape, dtype=np.float32)
    return ArrayKeys(grown)


def time_search(
    keys: Keys, queries: Tensor, setting: str, *, batches: list[int], k: int, rounds: int, seed: int
) -> SearchTime:
    """Build an index over the keys and search it with queries [q, d] of their space, in batches of some sizes."""
    began = time.perf_counter()
    index = build_index(keys, setting, seed=seed, device=queries.device)
    built = time.perf_counter() - began
    generator = np.random.default_rng(seed)
    seconds: dict[int, list[float]] = {size: [] for size in batches}
    for number in range(rounds + 1):
        for size in batches:
            chosen = torch.from_numpy(generator.integers(len(queries), size=size)).to(queries.device)
            asked = queries[chosen]
            began = time.perf_counter()
            index.search(asked, k)
            if asked.is_cuda:
                torch.cuda.synchronize()
            if number:  # the first round warms up
                seconds[size].append(time.perf_counter() - began)
    times = {size: 1e6 * statistics.median(found) / size for size, found in seconds.items()}
    return SearchTime(keys.size, index.description, built, times)
