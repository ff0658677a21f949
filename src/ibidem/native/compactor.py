"""The Compact Network for the few states of a decoding step, in one call."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch

from ibidem.native.library import dense, require
from ibidem.native.linear import Activation

if TYPE_CHECKING:
    from torch import Tensor

ACTIVATIONS = {"sigmoid": Activation.SIGMOID, "tanh": Activation.TANH}


class NativeCompactor:
    """States [rows, inputs] -> outer(activation(inner(states))) [rows, outputs], in float32.

    inner, outer: weight [outputs, inputs] and bias of each layer; whole: the inner one, nearly all of the work, in
    whole numbers of sixteen bits. A row's result depends on that row alone.
    """

    def __init__(
        self, inner: tuple[Tensor, Tensor], outer: tuple[Tensor, Tensor], activation: str, *, whole: bool = False
    ) -> None:
        hidden, self.inputs = inner[0].shape
        self.outputs = len(outer[0])
        if outer[0].shape[1] != hidden:
            raise ValueError(f"{hidden} hidden units were given to a layer of {outer[0].shape[1]} inputs")
        library = require()
        tensors = [dense(tensor) for tensor in (*inner, *outer)]
        self.address = library.compactor_new(
            *(tensor.data_ptr() for tensor in tensors),
            self.inputs,
            hidden,
            self.outputs,
            ACTIVATIONS[activation],
            whole,
        )
        if not self.address:
            raise MemoryError("there is no room for the weights of a compactor")
        self._apply = library.compactor_apply
        weakref.finalize(self, library.compactor_free, self.address)

    def __call__(self, states: Tensor) -> Tensor:
        plain = dense(states)
        if plain.ndim != 2 or plain.shape[1] != self.inputs:
            raise ValueError(f"states of shape {list(plain.shape)} were given to a compactor of {self.inputs} inputs")
        rows = len(plain)
        compact = torch.empty(rows, self.outputs)
        if not self._apply(self.address, plain.data_ptr(), rows, compact.data_ptr(), torch.get_num_threads()):
            raise MemoryError(f"there is no room to compact {rows} states")
        return compact
