"""Linear compactors, the paper's baselines (4.3): PCA, (h - mean) P^T, and SVD, h P^T."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ibidem.errors import UsageError

LINEAR_KINDS = ("pca", "svd")


class LinearCompactor(nn.Module):
    """A projection [c, d] of what differs from a mean [d], in float32; without a mean (SVD) it is zero."""

    projection: Tensor
    mean: Tensor

    def __init__(self, kind: str, projection: Tensor, mean: Tensor | None = None) -> None:
        super().__init__()
        if kind not in LINEAR_KINDS:
            raise UsageError(f"Unknown linear compactor '{kind}': use one of {', '.join(LINEAR_KINDS)}.")
        self.kind = kind
        self.register_buffer("projection", projection.to(torch.float32).contiguous())
        start = torch.zeros(projection.shape[1]) if mean is None else mean
        self.register_buffer("mean", start.to(torch.float32))

    @property
    def input_dimension(self) -> int:
        return self.projection.shape[1]

    @property
    def dimension(self) -> int:
        return self.projection.shape[0]

    def forward(self, states: Tensor) -> Tensor:
        """Compact states [n, d] to [n, c]."""
        return nn.functional.linear(states.to(self.projection.dtype) - self.mean, self.projection)

    def summary(self) -> dict[str, object]:
        return {"kind": self.kind, "input_dimension": self.input_dimension, "dimension": self.dimension}
