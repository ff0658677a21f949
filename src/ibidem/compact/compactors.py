"""Compactors map keys and decoder states to the compact space; they apply to all keys of a memory, or to single steps.

`place_compactor` moves a compactor to a device, on the CPU into native code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ibidem.errors import MemoryFolderError, MismatchError, UsageError
from ibidem.native import CompactorKernel, native, runs_triton
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from numpy.typing import NDArray


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"sigmoid": torch.sigmoid, "tanh": torch.tanh}
_LINEAR_KINDS = ("pca", "svd")

# Up to this many states, those of one decoding step, our Triton kernels are faster than torch's matrix products.
_MOST_FUSED = 1024
_LARGEST = float(np.finfo(np.float16).max)


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
        """Map states to the compact space.

        Args:
            states: Keys or decoder states [n, d] of float16, bfloat16 or float32.

        Returns:
            Compact states [n, c] of float32.
        """
        ...

    def to(self, device: torch.device | str, /) -> Self:
        """Move the compactor to a device, and return it.

        Args:
            device: The device of the states.
        """
        ...

    def summary(self) -> dict[str, object]:
        """Return the kind, the dimensions and the activation."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the tensors by name, as they are stored."""
        ...


class NetworkCompactor(nn.Module):
    """f_alpha, the part of the Compact Network that is kept after training (the paper's section 3.1).

    f_alpha(h) = FFN2(sigma(FFN1(h))), computed in float32 for input of any precision.

    Args:
        input_dimension: The number of components of a key.
        hidden: The width of the hidden layer.
        dimension: The number of components of a compact key.
        activation: sigma, "sigmoid" (the paper) or "tanh" (the authors' code).

    Raises:
        UsageError: If the activation is unknown.

    Examples:
        >>> import torch
        >>> NetworkCompactor(512, 128, 64, "sigmoid")(torch.zeros(10, 512)).shape
        torch.Size([10, 64])
    """

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
        """Compute the hidden layer sigma(FFN1(h)).

        Args:
            states: Keys or decoder states, [n, d].

        Returns:
            The activations, [n, hidden].
        """
        return self._activate(self.inner(states.to(self.inner.weight.dtype)))

    def forward(self, states: Tensor) -> Tensor:
        """Map states to the compact space.

        Args:
            states: Keys or decoder states [n, d], of any float type.

        Returns:
            Compact states [n, c] of float32.
        """
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


class LinearCompactor(nn.Module):
    """A linear projection, the paper's baselines (section 4.5.1): PCA, (h - mean) P^T, and SVD, h P^T.

    Args:
        kind: "pca" or "svd".
        projection: P, [c, d].
        mean: The mean of the keys [d]; None (SVD) for zero.

    Raises:
        UsageError: If the kind is unknown.

    Examples:
        >>> import torch
        >>> LinearCompactor("pca", torch.eye(2, 3), torch.ones(3))(torch.tensor([[1.0, 2.0, 3.0]]))
        tensor([[0., 1.]])
    """

    projection: Tensor
    mean: Tensor

    def __init__(self, kind: str, projection: Tensor, mean: Tensor | None = None) -> None:
        super().__init__()
        if kind not in _LINEAR_KINDS:
            raise UsageError(f"Unknown linear compactor '{kind}': use one of {', '.join(_LINEAR_KINDS)}.")
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
        """Map states to the compact space.

        Args:
            states: Keys or decoder states [n, d], of any float type.

        Returns:
            Compact states [n, c] of float32.
        """
        return nn.functional.linear(states.to(self.projection.dtype) - self.mean, self.projection)

    def summary(self) -> dict[str, object]:
        return {"kind": self.kind, "input_dimension": self.input_dimension, "dimension": self.dimension}


class KeyBlocks(Protocol):
    """Keys of float16 or float32 that can be read in order."""

    @property
    def size(self) -> int:
        """The number of keys."""
        ...

    @property
    def dimension(self) -> int:
        """The number of components of a key."""
        ...

    def blocks(self, rows: int) -> Iterator[NDArray[np.floating[Any]]]:
        """Yield all keys in order.

        Args:
            rows: The largest number of keys of a block.

        Yields:
            Keys [at most rows, d].
        """
        ...


def compact_keys(
    compactor: Compactor,
    keys: KeyBlocks,
    *,
    rows: int = 65536,
    device: torch.device | str = "cpu",
    progress: Progress = silent,
) -> Iterator[NDArray[np.float16]]:
    """Map all keys to the compact space, block by block.

    Args:
        compactor: The compactor; it is moved to the device.
        keys: The keys, in order.
        rows: How many keys to read at once.
        device: The device to compute on.
        progress: Called after each block.

    Returns:
        An iterator of compact keys [at most rows, c] of float16.

    Raises:
        MismatchError: If the keys have another dimension than the compactor's input.
        MemoryFolderError: If a key is not finite.
        UsageError: If a compact key is too large for float16.
    """
    if keys.dimension != compactor.input_dimension:
        raise MismatchError(
            f"The compactor takes keys of {compactor.input_dimension} dimensions and the memory's have "
            f"{keys.dimension}: give a compactor trained for the memory's base model, or train one."
        )
    return _compact(compactor.to(device), keys, rows, torch.device(device), progress)


def _compact(
    compactor: Compactor, keys: KeyBlocks, rows: int, device: torch.device, progress: Progress
) -> Iterator[NDArray[np.float16]]:
    done = 0
    for block in keys.blocks(rows):
        # A copy: the memory's arrays are pages of its files, and torch warns about tensors of read-only arrays.
        states = torch.tensor(block).to(device)
        with torch.no_grad():
            compact = compactor(states)
        # The keys themselves are checked, since an activation maps an infinite component to a finite one.
        if (row := _first_row(~torch.isfinite(states))) is not None:
            raise MemoryFolderError(
                f"The key of entry {done + row} is not a finite number. Check the memory with `ibidem verify`, "
                "or extract it again."
            )
        if (row := _first_row(~(compact.abs() <= _LARGEST))) is not None:
            raise UsageError(
                f"The compact key of entry {done + row} reaches {float(compact[row].abs().max()):.3g}, beyond "
                f"float16's {_LARGEST:.0f}. Train the compactor again with another objective or activation, "
                "or scale its last layer down."
            )
        done += len(block)
        progress("Compacting keys", done / keys.size, done, "keys")
        yield compact.to(torch.float16).cpu().numpy()


def _first_row(wrong: Tensor) -> int | None:
    """Return the first row [n, d] with a true component, if there is one."""
    rows = wrong.any(dim=1)
    return int(rows.int().argmax()) if bool(rows.any()) else None


class NativeCompactor:
    """A compactor whose states on the CPU pass through native code, others through torch.

    Args:
        compactor: The compactor in torch, for states on other devices.
        kernel: Its native form.

    Attributes:
        kernel: The native form, for the native decoding step.
    """

    def __init__(self, compactor: LinearCompactor | NetworkCompactor, kernel: CompactorKernel) -> None:
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


def place_compactor(compactor: Compactor, device: torch.device | str, *, int16: bool = False) -> Compactor:
    """Move a compactor to a device; on the CPU it runs in native code where that exists.

    Args:
        compactor: The compactor; it is moved in place.
        device: Where the states are.
        int16: Whether native code computes a network's first layer in int16, for states of a model that computes in
            int8. The added error is about that of rounding a key to float16.

    Returns:
        The native form on the CPU where the native library is available, otherwise the compactor.
    """
    placed = compactor.to(device)
    if native() is None or str(device) != "cpu":
        return placed
    if isinstance(placed, LinearCompactor):
        bias = -(placed.projection.double() @ placed.mean.double())
        return NativeCompactor(placed, CompactorKernel.linear(placed.projection, bias))
    if isinstance(placed, NetworkCompactor):
        inner, outer = ((layer.weight, layer.bias) for layer in (placed.inner, placed.outer))
        return NativeCompactor(placed, CompactorKernel.network(inner, outer, placed.activation, int16=int16))
    return placed
