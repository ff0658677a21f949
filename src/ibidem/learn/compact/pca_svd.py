"""Linear compactors, the paper's baselines (section 4.5.1): PCA of the keys, and SVD of the output matrix."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ibidem.compact import LinearCompactor
from ibidem.errors import MemoryFolderError, UsageError
from ibidem.learn.compact.trainer import TrainedCompactor
from ibidem.learn.compact.triplets import sample_entries
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
    """Compute the PCA of the keys: the feature-wise baseline (section 4.5.1; He et al. 2021).

    A key h becomes (h - mean) P^T, where P [c, d] holds the leading eigenvectors of the covariance of the keys. The
    result is exact, in float64, and the keys are read once.

    Args:
        keys: The keys of the memory, [entries, d].
        dimension: c, the dimension of the compact space.
        share: Share of the keys, drawn at random, to compute the covariance of.
        seed: Seed of that draw.
        device: Device of the computation.
        progress: Progress callback.

    Returns:
        The compactor on the CPU, and a report.

    Raises:
        UsageError: There are too few keys or dimensions.
        MemoryFolderError: Some keys are not finite.

    Examples:
        >>> from ibidem.retrieve import ArrayKeys
        >>> keys = ArrayKeys(np.random.default_rng(0).normal(size=(100, 8)).astype(np.float16))
        >>> train_pca(keys, 3).compactor(torch.zeros(5, 8)).shape
        torch.Size([5, 3])
    """
    start = time.perf_counter()
    taken = sample_entries(np.zeros(keys.size, np.int32), share, seed) == 0
    count = int(taken.sum())
    if not 1 <= dimension <= min(keys.dimension, count - 1):
        raise UsageError(
            f"PCA of {count} keys of {keys.dimension} dimensions cannot give {dimension}: "
            f"choose a dimension from 1 to {min(keys.dimension, count - 1)}."
        )
    # Sums of squares about a point near the mean lose no digits to the mean.
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
    variances, directions = _leading_eigenvectors(covariance, dimension)
    compactor = LinearCompactor("pca", directions.cpu(), (origin + offset).cpu())
    report: dict[str, object] = {
        "keys": count,
        "explained_variance": float(variances.sum() / covariance.trace()),
        "seconds": time.perf_counter() - start,
    }
    return TrainedCompactor(compactor, report)


def train_svd(output_matrix: Tensor, dimension: int, rows: int | None = None) -> TrainedCompactor:
    """Compute the SVD of the base model's output matrix: the weight-wise baseline (section 4.5.1).

    The paper writes W^T = S U V and takes h (S U) as the compact key. With W [V, d] = A diag(sigma) B^T, the projection
    is diag(sigma) B^T cut to its leading c rows, without bias: compact distances then approximate distances between
    the logits W h.

    Args:
        output_matrix: W, [V, d].
        dimension: c, the dimension of the compact space.
        rows: Number of leading rows of W to use; None takes all, the authors' code takes 10,000.

    Returns:
        The compactor on the CPU, and a report.

    Raises:
        UsageError: The matrix has fewer rows or columns than `dimension`.

    Examples:
        >>> train_svd(torch.eye(6, 4), 2).compactor(torch.zeros(5, 4)).shape
        torch.Size([5, 2])
    """
    start = time.perf_counter()
    weights = output_matrix.detach()[:rows].double()
    if not 1 <= dimension <= min(weights.shape):
        raise UsageError(
            f"SVD of an output matrix of shape {list(weights.shape)} cannot give {dimension} dimensions: "
            f"choose a dimension from 1 to {min(weights.shape)}."
        )
    # The right singular vectors of W are the eigenvectors of W^T W, whose size does not grow with the vocabulary.
    squares = weights.T @ weights
    values, directions = _leading_eigenvectors(squares, dimension)
    compactor = LinearCompactor("svd", (values.sqrt()[:, None] * directions).cpu())
    report: dict[str, object] = {
        "rows": len(weights),
        "explained_variance": float(values.sum() / squares.trace()),
        "seconds": time.perf_counter() - start,
    }
    return TrainedCompactor(compactor, report)


def _leading_eigenvectors(symmetric: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest eigenvalues [count] of a matrix [d, d], descending, and their vectors as rows [count, d].

    The component of largest magnitude of each vector is positive, the first of them if there are several.
    """
    values, vectors = torch.linalg.eigh(symmetric)
    values, rows = values.flip(0)[:count], vectors.T.flip(0)[:count]
    largest = rows.gather(1, rows.abs().argmax(dim=1, keepdim=True))
    return values.clamp_min(0), rows * largest.sign()


def _origin(keys: Keys, device: torch.device | str) -> Tensor:
    """Return the mean of the first block of keys: [d] float64."""
    first = next(iter(keys.blocks(_READ_ROWS)), np.zeros((1, keys.dimension), np.float16))
    return torch.tensor(first).to(device).double().mean(dim=0)
