"""Linear layers with int8 weights and activations, a scale for each output, a step and a zero for each row."""

from __future__ import annotations

import weakref
from enum import IntEnum

import torch
from torch import Tensor

from ibidem.native.library import dense, require

_STEPS = 127
_TINY = torch.finfo(torch.float32).tiny


class Activation(IntEnum):
    """What follows the product; as in native/activation.h."""

    NONE = 0
    RELU = 1
    SWISH = 2
    SIGMOID = 3
    TANH = 4


class NativeLinear:
    """x [..., inputs] -> activation(x weight.T + bias) [..., outputs], rounded as by torch's own int8 products.

    A row's result depends on that row alone: each has its own step and zero, and its largest magnitude apart (see
    `QuantisedRows` of native/linear.h). Sums are exact, in int32. A row that holds something not finite gives NaN.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        weight = dense(weight)
        self.outputs, self.inputs = weight.shape
        scales = (weight.abs().amax(1) / _STEPS).clamp_min(_TINY)
        quantised = (weight * scales.reciprocal()[:, None]).round_().clamp_(-_STEPS, _STEPS).to(torch.int8)
        added = None if bias is None else dense(bias)
        library = require()
        self.handle = library.linear_new(
            quantised.data_ptr(),
            scales.data_ptr(),
            None if added is None else added.data_ptr(),
            self.inputs,
            self.outputs,
        )
        if not self.handle:
            raise MemoryError("there is no room for the weights of a linear layer")
        self._apply = library.linear_apply
        weakref.finalize(self, library.linear_free, self.handle)

    def __call__(self, x: Tensor, activation: Activation = Activation.NONE) -> Tensor:
        if x.shape[-1] != self.inputs:
            raise ValueError(f"a row of {x.shape[-1]} numbers was given to a layer of {self.inputs} inputs")
        plain = dense(x)
        out = torch.empty(*x.shape[:-1], self.outputs)
        rows = plain.numel() // self.inputs
        done = self._apply(self.handle, plain.data_ptr(), rows, activation, out.data_ptr(), torch.get_num_threads())
        if not done:
            raise MemoryError(f"there is no room to apply a linear layer to {rows} rows")
        return out
