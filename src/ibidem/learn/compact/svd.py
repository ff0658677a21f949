"""SVD of the output matrix, the paper's weight-wise baseline (4.3): W^T ~ S U V, a key becomes h (S U).

With W [V, d] = A diag(sigma) B^T, the projection is diag(sigma) B^T cut to the leading c rows [c, d], without bias:
distances are then those between the logits W h, as far as c directions can tell. The authors' code looks at the
first 10,000 rows of W only.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ibidem.compact import LinearCompactor
from ibidem.errors import UsageError
from ibidem.learn.compact.pca import leading
from ibidem.learn.compact.trained import TrainedCompactor

if TYPE_CHECKING:
    from torch import Tensor


def train_svd(output_matrix: Tensor, dimension: int, rows: int | None = None) -> TrainedCompactor:
    """The leading directions of an output matrix [V, d], or of its first rows, times their singular values."""
    start = time.perf_counter()
    weights = output_matrix.detach()[:rows].double()
    if not 1 <= dimension <= min(weights.shape):
        raise UsageError(
            f"SVD of an output matrix of shape {list(weights.shape)} cannot give {dimension} dimensions: "
            f"choose a dimension from 1 to {min(weights.shape)}."
        )
    # The right singular vectors are the eigenvectors of W^T W: [d, d], however large the vocabulary.
    squares = weights.T @ weights
    values, directions = leading(squares, dimension)
    compactor = LinearCompactor("svd", (values.sqrt()[:, None] * directions).cpu())
    report: dict[str, object] = {
        "rows": len(weights),
        "explained_variance": float(values.sum() / squares.trace()),
        "seconds": time.perf_counter() - start,
    }
    return TrainedCompactor(compactor, report)
