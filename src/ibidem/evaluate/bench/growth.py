"""Growth of the time of a search with the number of keys: a memory's own keys, and more of their distribution."""

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
    """Hold the time of searches in one index.

    Attributes:
        keys: Number of keys.
        description: Description of the index.
        build_seconds: Time to build it.
        microseconds: Median time of a query by batch size.
    """

    keys: int
    description: str
    build_seconds: float
    microseconds: dict[int, float]

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON."""
        return asdict(self)


def fit_growth(times: Sequence[SearchTime]) -> dict[int, float]:
    """Fit the exponent e of a time that grows as keys ** e, by least squares of logarithms.

    Args:
        times: Search times at several numbers of keys.

    Returns:
        The exponent by batch size; empty if all numbers of keys are equal.

    Examples:
        >>> times = [SearchTime(n, "exact", 0.0, {1: 2.0 * n}) for n in (100, 1000)]
        >>> round(fit_growth(times)[1], 3)
        1.0
    """
    if len({found.keys for found in times}) < 2:
        return {}
    keys = np.log([found.keys for found in times])
    return {
        size: float(np.polyfit(keys, np.log([found.microseconds[size] for found in times]), 1)[0])
        for size in times[0].microseconds
    }


def grow_keys(keys: Keys, size: int, *, seed: int) -> ArrayKeys:
    """Make `size` keys: a part of the given ones, or all of them and perturbed copies.

    A perturbed copy is 0.3 times as far from its original as two random keys of a block are from each other.

    Args:
        keys: The keys of a memory.
        size: Number of keys to make.
        seed: Seed of the copies.

    Returns:
        The keys, [size, d] float16.
    """
    generator = np.random.default_rng(seed)
    grown = np.empty((size, keys.dimension), np.float16)
    for start in range(0, size, _BLOCK):
        stop = min(start + _BLOCK, size)
        if stop <= keys.size:
            grown[start:stop] = keys.gather(np.arange(start, stop))
            continue
        originals = keys.gather(np.sort(generator.integers(keys.size, size=stop - start))).astype(np.float32)
        spread = 0.3 * float(np.abs(originals - generator.permutation(originals)).mean())
        grown[start:stop] = originals + spread * generator.standard_normal(originals.shape, dtype=np.float32)
    return ArrayKeys(grown)


def time_search(
    keys: Keys, queries: Tensor, setting: str, *, batches: list[int], k: int, rounds: int, seed: int
) -> SearchTime:
    """Build an index over the keys, and time searches in it after one round that is not counted.

    Args:
        keys: The keys.
        queries: [q, d], queries of the same space.
        setting: Setting of the index.
        batches: Batch sizes.
        k: Number of neighbours.
        rounds: Number of counted rounds.
        seed: Seed of the index and of the choice of queries.

    Returns:
        The time to build the index, and the median time of a query at each batch size.
    """
    began = time.perf_counter()
    index = build_index(keys, setting, seed=seed, device=queries.device)
    built = time.perf_counter() - began
    generator = np.random.default_rng(seed)
    seconds: dict[int, list[float]] = {size: [] for size in batches}
    for number in range(rounds + 1):
        for size in batches:
            chosen = torch.from_numpy(generator.integers(len(queries), size=size)).to(queries.device)
            batch = queries[chosen]
            began = time.perf_counter()
            index.search(batch, k)
            if batch.is_cuda:
                torch.cuda.synchronize()
            if number:
                seconds[size].append(time.perf_counter() - began)
    times = {size: 1e6 * statistics.median(found) / size for size, found in seconds.items()}
    return SearchTime(keys.size, index.description, built, times)
