"""f_alpha, the first part of the Compact Network (the paper's 3.1): the part that is kept after training.

f_alpha(h) = FFN2(sigma(FFN1(h))), with sigma the sigmoid (paper) or tanh (the authors' code).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ibidem.errors import UsageError
from ibidem.native import runs_triton

if TYPE_CHECKING:
    from collections.abc import Callable

# States of one decoding step are compacted by kernels of our own; for more, what matters is torch's products.
_MOST_FUSED = 1024

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"sigmoid": torch.sigmoid, "tanh": torch.tanh}


class NetworkCompactor(nn.Module):
    """Two layers with an activation between them, in float32 whatever comes in."""

    def __init__(self, input_dimension: int, hidden: int, dimension: int, activation: str) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise UsageError(f"Unknown activation '{activation}': use one of {', '.join(ACTIVATIONS)}.")
        self.activation = activation
        self.inner = nn.Linear(input_dimension, hidden)
        self.outer = nn.Linear(hidden, dimension)
        self._activate = ACTIVATIONS[activation]

    @property
    def input_dimension(self) -> int:
        return self.inner.in_features

    @property
    def hidden(self) -> int:
        return self.inner.out_features

    @property
    def dimension(self) -> int:
        return self.outer.out_features

    def activate(self, states: Tensor) -> Tensor:
        """The hidden layer sigma(FFN1(h)) [n, hidden] of states [n, d]."""
        return self._activate(self.inner(states.to(self.inner.weight.dtype)))

    def forward(self, states: Tensor) -> Tensor:
        """Compact states [n, d] to [n, c]."""
        if runs_triton(states) and not torch.is_grad_enabled() and len(states) <= _MOST_FUSED:
            from ibidem.compact.kernels import apply_layer

            hidden = apply_layer(states, self.inner, self.activation)
            return apply_layer(hidden, self.outer, None)
        compact: Tensor = self.outer(self.activate(states))
        return compact

    def summary(self) -> dict[str, object]:
        return {
            "kind": "network",
            "input_dimension": self.input_dimension,
            "hidden": self.hidden,
            "dimension": self.dimension,
            "activation": self.activation,
        }
