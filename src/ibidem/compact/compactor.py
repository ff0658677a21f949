"""What every compactor can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from typing import Self

    import torch
    from torch import Tensor


class Compactor(Protocol):
    """A map from keys, and from the decoder states that query them, to the compact space."""

    @property
    def input_dimension(self) -> int:
        """The number of components of a key."""
        ...

    @property
    def dimension(self) -> int:
        """The number of components of a compact key."""
        ...

    def __call__(self, states: Tensor, /) -> Tensor:
        """Compact states [n, d] of float16, bfloat16 or float32 to [n, c] float32."""
        ...

    def to(self, device: torch.device | str, /) -> Self:
        """Move to a device, and return itself."""
        ...

    def summary(self) -> dict[str, object]:
        """The kind, the dimensions and the activation, for people."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """The tensors by name, as they are stored."""
        ...
