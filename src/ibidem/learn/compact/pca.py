"""PCA of the keys, the paper's feature-wise baseline (4.3; He et al. 2021): exact, in one pass, for any number of keys.

P holds the leading c eigenvectors of the covariance of the keys; a key becomes (h - mean) P^T.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ibidem.compact import LinearCompactor
from ibidem.errors import MemoryFolderError, UsageError
from ibidem.learn.compact.clusters import thin
from ibidem.learn.compact.trained import TrainedCompactor
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from ibidem.retrieve import Keys

_READ_ROWS = 16384


def train_pca(
    keys: Keys,
    dimension: int,
    *,
    share: float = 1.0,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: Progress = silent,
) -> TrainedCompactor:
    """The leading directions of the keys, or of a random share of them; in float64 throughout."""
    start = time.perf_counter()
    taken = thin(np.zeros(keys.size, np.int32), share, seed) == 0
    count = int(taken.sum())
    if not 1 <= dimension <= min(keys.dimension, count - 1):
        raise UsageError(
            f"PCA of {count} keys of {keys.dimension} dimensions cannot give {dimension}: "
            f"choose a dimension from 1 to {min(keys.dimension, count - 1)}."
        )
    # Sums of squares about a point near the mean lose no digits to it.
    origin = _origin(keys, device)
    total = torch.zeros(keys.dimension, dtype=torch.float64, device=device)
    products = torch.zeros(keys.dimension, keys.dimension, dtype=torch.float64, device=device)
    done = 0
    for block in keys.blocks(_READ_ROWS):
        rows = torch.from_numpy(block[taken[done : done + len(block)]]).to(device).double() - origin
        total += rows.sum(dim=0)
        products.addmm_(rows.T, rows)
        done += len(block)
        progress("Computing PCA", done / keys.size, done, "keys")
    offset = total / count
    covariance = (products - count * torch.outer(offset, offset)) / (count - 1)
    if not bool(torch.isfinite(covariance).all()):
        raise MemoryFolderError(
            "Some keys are not finite numbers. Check the memory with `ibidem verify`, or extract it again."
        )
    variances, directions = leading(covariance, dimension)
    compactor = LinearCompactor("pca", directions.cpu(), (origin + offset).cpu())
    report: dict[str, object] = {
        "keys": count,
        "explained_variance": float(variances.sum() / covariance.trace()),
        "seconds": time.perf_counter() - start,
    }
    return TrainedCompactor(compactor, report)


def leading(symmetric: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest eigenvalues [count] of a matrix [d, d], descending, and their vectors as rows [count, d].

    A vector's sign is such that its component of largest size is positive, the first of them if there are several.
    """
    values, vectors = torch.linalg.eigh(symmetric)
    values, rows = values.flip(0)[:count], vectors.T.flip(0)[:count]
    largest = rows.gather(1, rows.abs().argmax(dim=1, keepdim=True))
    return values.clamp_min(0), rows * largest.sign()


def _origin(keys: Keys, device: torch.device | str) -> Tensor:
    first = next(iter(keys.blocks(_READ_ROWS)), np.zeros((1, keys.dimension), np.float16))
    return torch.tensor(first).to(device).double().mean(dim=0)
