"""Static pivots: the centroid of each cluster, the mean of its members."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ibidem.retrieve.keys import Keys

_SUM_BYTES = 1 << 30
_READ_ROWS = 65536


def average_members(
    keys: Keys,
    numbers: NDArray[np.int32],
    count: int,
    progress: Progress = silent,
    *,
    sum_bytes: int = _SUM_BYTES,
) -> NDArray[np.float16]:
    """The mean key of each cluster [count, d], summed in float32 and rounded to float16 like the keys.

    numbers: [entries], the cluster of each entry, below 0 for none. The keys are read once for as many clusters as
    have room in sum_bytes: 500,000 of 512 dimensions take one reading at 1 GiB, and the result half a GiB.
    """
    means = np.zeros((count, keys.dimension), np.float16)
    step = max(1, sum_bytes // (4 * keys.dimension))
    for first in range(0, count, step):
        held = min(step, count - first)
        sums, sizes = torch.zeros(held, keys.dimension), torch.zeros(held)
        done = 0
        for block in keys.blocks(_READ_ROWS):
            wanted = numbers[done : done + len(block)] - np.int32(first)
            rows = np.flatnonzero((wanted >= 0) & (wanted < held))
            places = torch.from_numpy(wanted[rows].astype(np.int64))
            # On the CPU the sums are made in the order of the entries, so they are always the same.
            sums.index_add_(0, places, torch.from_numpy(block[rows].astype(np.float32)))
            sizes.index_add_(0, places, torch.ones(len(rows)))
            done += len(block)
            progress("Averaging clusters", (first + held * done / keys.size) / count, done, "keys")
        means[first : first + held] = (sums / sizes.clamp_min(1)[:, None]).numpy().astype(np.float16)
    return means
