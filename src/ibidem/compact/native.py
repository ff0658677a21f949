"""Compactors for the states of decoding steps, in native code on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ibidem.compact.compactors import LinearCompactor, NetworkCompactor
from ibidem.native import CompactorKernel, native

if TYPE_CHECKING:
    from typing import Self

    import torch
    from torch import Tensor

    from ibidem.compact.compactors import Compactor


class NativeCompactor:
    """A compactor whose states on the CPU pass through native code, others through torch."""

    def __init__(self, compactor: LinearCompactor | NetworkCompactor, kernel: CompactorKernel) -> None:
        """Join a compactor in torch and its native form."""
        self._compactor = compactor
        self.kernel = kernel

    @property
    def input_dimension(self) -> int:
        return self._compactor.input_dimension

    @property
    def dimension(self) -> int:
        return self._compactor.dimension

    def __call__(self, states: Tensor, /) -> Tensor:
        """Compact states [n, d] to [n, c]."""
        if states.is_cpu:
            return self.kernel(states)
        compact: Tensor = self._compactor(states)
        return compact

    def to(self, device: torch.device | str, /) -> Self:
        self._compactor.to(device)
        return self

    def summary(self) -> dict[str, object]:
        return self._compactor.summary()

    def state_dict(self) -> dict[str, Any]:
        return self._compactor.state_dict()


def place_compactor(compactor: Compactor, device: torch.device | str, *, whole: bool = False) -> Compactor:
    """Move a compactor to a device; on the CPU it runs in native code where that exists.

    Args:
        compactor: The compactor.
        device: Where the states are.
        whole: Whether native code computes a network's first layer in int16, for states of a model that computes in
            int8. The added error is about that of rounding a key to float16.
    """
    placed = compactor.to(device)
    if native() is None or str(device) != "cpu":
        return placed
    if isinstance(placed, LinearCompactor):
        bias = -(placed.projection.double() @ placed.mean.double())
        return NativeCompactor(placed, CompactorKernel.linear(placed.projection, bias))
    if isinstance(placed, NetworkCompactor):
        inner, outer = ((layer.weight, layer.bias) for layer in (placed.inner, placed.outer))
        return NativeCompactor(placed, CompactorKernel.network(inner, outer, placed.activation, int16=whole))
    return placed
