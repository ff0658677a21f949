"""Compactors in native code: a linear map, or the two layers of the Compact Network, for the states of a step."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Self

import torch

from ibidem.native.engine import Activation
from ibidem.native.library import dense, require

if TYPE_CHECKING:
    from torch import Tensor

_ACTIVATIONS = {"sigmoid": Activation.SIGMOID, "tanh": Activation.TANH}


class CompactorKernel:
    """Maps states [rows, inputs] to compact states [rows, outputs] in float32.

    The result of a row does not depend on other rows.
    """

    def __init__(self, address: int | None, inputs: int, outputs: int) -> None:
        """Take over a compactor of the library.

        Args:
            address: Where the library has it; None when the library ran out of memory.
            inputs: Components of a state.
            outputs: Components of a compact state.
        """
        if not address:
            raise MemoryError("Out of memory for the weights of a compactor.")
        self.address, self.inputs, self.outputs = address, inputs, outputs
        library = require()
        self._apply = library.compactor_apply
        weakref.finalize(self, library.compactor_free, address)

    @classmethod
    def network(
        cls, inner: tuple[Tensor, Tensor], outer: tuple[Tensor, Tensor], activation: str, *, int16: bool = False
    ) -> Self:
        """Make outer(activation(inner(states))).

        Args:
            inner: Weight [hidden, inputs] and bias [hidden].
            outer: Weight [outputs, hidden] and bias [outputs].
            activation: "sigmoid" or "tanh".
            int16: Whether the inner layer, nearly all of the work, computes in int16.

        Raises:
            ValueError: The layers do not fit together.
        """
        hidden, inputs = inner[0].shape
        outputs = len(outer[0])
        if outer[0].shape[1] != hidden:
            raise ValueError(f"{hidden} hidden units were given to a layer of {outer[0].shape[1]} inputs.")
        tensors = [dense(tensor) for tensor in (*inner, *outer)]
        addresses = (tensor.data_ptr() for tensor in tensors)
        made = require().compactor_new_network(*addresses, inputs, hidden, outputs, _ACTIVATIONS[activation], int16)
        return cls(made, inputs, outputs)

    @classmethod
    def linear(cls, weight: Tensor, bias: Tensor) -> Self:
        """Make states weight.T + bias.

        Args:
            weight: [outputs, inputs].
            bias: [outputs].
        """
        outputs, inputs = weight.shape
        tensors = [dense(weight), dense(bias)]
        made = require().compactor_new_linear(tensors[0].data_ptr(), tensors[1].data_ptr(), inputs, outputs)
        return cls(made, inputs, outputs)

    def __call__(self, states: Tensor) -> Tensor:
        """Compact states.

        Args:
            states: [rows, inputs].

        Returns:
            [rows, outputs] float32.

        Raises:
            ValueError: The states have the wrong shape.
        """
        plain = dense(states)
        if plain.ndim != 2 or plain.shape[1] != self.inputs:
            raise ValueError(f"states of shape {list(plain.shape)} were given to a compactor of {self.inputs} inputs")
        rows = len(plain)
        compact = torch.empty(rows, self.outputs, dtype=torch.float32)
        if not self._apply(self.address, plain.data_ptr(), rows, compact.data_ptr(), torch.get_num_threads()):
            raise MemoryError(f"Out of memory to compact {rows} states.")
        return compact
