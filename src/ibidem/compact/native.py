"""A compactor ready for the states of decoding steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ibidem.compact.compactors import NetworkCompactor
from ibidem.native import NativeCompactor, native

if TYPE_CHECKING:
    from typing import Self

    import torch
    from torch import Tensor

    from ibidem.compact.compactors import Compactor


class NativeNetworkCompactor:
    """A Compact Network whose states on the CPU pass through native code, others through torch."""

    def __init__(self, network: NetworkCompactor, *, whole: bool = False) -> None:
        self._network = network
        inner, outer = ((layer.weight, layer.bias) for layer in (network.inner, network.outer))
        self.native = NativeCompactor(inner, outer, network.activation, whole=whole)

    @property
    def input_dimension(self) -> int:
        return self._network.input_dimension

    @property
    def dimension(self) -> int:
        return self._network.dimension

    def __call__(self, states: Tensor, /) -> Tensor:
        """Compact states [n, d] to [n, c]."""
        if states.is_cpu:
            return self.native(states)
        compact: Tensor = self._network(states)
        return compact

    def to(self, device: torch.device | str, /) -> Self:
        self._network.to(device)
        return self

    def summary(self) -> dict[str, object]:
        return self._network.summary()

    def state_dict(self) -> dict[str, Any]:
        return self._network.state_dict()


def place_compactor(compactor: Compactor, device: torch.device | str, *, whole: bool = False) -> Compactor:
    """The compactor on a device; on the CPU in native code where that is here.

    whole: there mostly in whole numbers of sixteen bits, for states of a model that computes in int8. What that adds to
    their error is about what rounding a key to float16 does.
    """
    placed = compactor.to(device)
    if not isinstance(placed, NetworkCompactor) or not placed.inner.weight.is_cpu or native() is None:
        return placed
    return NativeNetworkCompactor(placed, whole=whole)
