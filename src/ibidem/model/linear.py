"""Linear layers as the lean engine applies them: as they are, or with int8 weights and activations."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear

if TYPE_CHECKING:
    from collections.abc import Iterator

_STEPS = 127
_TINY = torch.finfo(torch.float32).tiny
_LIBRARY = "fbgemm"


class Linear(Protocol):
    """x [..., inputs] -> [..., outputs]."""

    def __call__(self, x: Tensor) -> Tensor: ...


class PlainLinear:
    """In the type of the weights."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight.detach().contiguous()
        self._bias = None if bias is None else bias.detach()

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, self._weight, self._bias)


class Int8Linear:
    """int8 products on a CPU: a scale for each output, and one for each row of the input.

    Since every row has its own scale, what comes of a row does not depend on the rows beside it. Rows are brought to
    [-1, 1] first, so that one scale given to the library fits all. Sums are exact, in int32.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        weight = weight.detach().float()
        scales = (weight.abs().amax(1) / _STEPS).clamp_min(_TINY)
        zeros = torch.zeros(len(weight), dtype=torch.long)
        with _library(), warnings.catch_warnings():
            # These tensors are to leave PyTorch some day; the packed products have no other way in yet.
            warnings.simplefilter("ignore", UserWarning)
            quantized = torch.quantize_per_channel(weight.contiguous(), scales.double(), zeros, 0, torch.qint8)
            self._packed = torch.ops.quantized.linear_prepack(quantized, None)
        self._bias = None if bias is None else bias.detach().float()

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        largest = rows.abs().amax(1, keepdim=True).clamp_min_(_TINY)
        # Activations are unsigned with the zero in the middle: 1 becomes 255, -1 becomes 1.
        products = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            rows / largest, 1 / _STEPS, 128, self._packed
        )
        scaled = products * largest if self._bias is None else torch.addcmul(self._bias, products, largest)
        return scaled.view(*x.shape[:-1], -1)


def supports_int8() -> bool:
    """Whether PyTorch has int8 products for this CPU."""
    product = hasattr(torch.ops.quantized, "linear_with_input_q_dq_qweight_dq_output_fp32")
    return product and _LIBRARY in torch.backends.quantized.supported_engines


@contextmanager
def _library() -> Iterator[None]:
    """Weights are packed for the library that is chosen while packing."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = _LIBRARY
    try:
        yield
    finally:
        torch.backends.quantized.engine = before
