"""Linear layers of `FastMarian`: in the dtype of the weights, or with int8 weights and activations."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear

if TYPE_CHECKING:
    from collections.abc import Iterator

_WEIGHT_STEPS = 127
# One step less than a byte has, since both ends of a range may round outwards.
_STEPS = 254
# The largest outlier of a row, as a multiple of the range of a byte.
_MAX_OUTLIER = 64
_ZERO_POINT = 128
_TINY = torch.finfo(torch.float32).tiny
_LIBRARY = "fbgemm"

# Integers [n, inputs] from -128 to 127 -> a new tensor of their products with the weights, [n, outputs]
Product = Callable[[Tensor], Tensor]


class Linear(Protocol):
    """A linear layer: x [..., inputs] -> [..., outputs]."""

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer.

        Args:
            x: Inputs of the dtype of the layer, [..., inputs].

        Returns:
            Outputs [..., outputs].
        """
        ...


class PlainLinear:
    """A linear layer in the dtype of its weights.

    Args:
        weight: [outputs, inputs].
        bias: [outputs], or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight.detach().contiguous()
        self._bias = None if bias is None else bias.detach()

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, self._weight, self._bias)


class QuantisedRows(NamedTuple):
    """Rows [n, inputs] as multiples of a step: x = steps * step, where steps are from -zero_point to 255 - zero_point.

    The value with the largest magnitude of each row is stored apart, since a single outlier would make the steps of all
    other values coarse.

    Attributes:
        steps: [n, inputs] integers in float32; 0 at the outlier.
        step: [n, 1] the size of a step.
        zero_point: [n, 1] the smallest of the steps, negated.
        outlier: [n, 1] the column of the outlier.
        outlier_steps: [n, 1] the outlier as a multiple of the step.
    """

    steps: Tensor
    step: Tensor
    zero_point: Tensor
    outlier: Tensor
    outlier_steps: Tensor


def quantise_rows(x: Tensor) -> QuantisedRows:
    """Quantise each row by itself.

    Args:
        x: [n, inputs] finite float32.

    Returns:
        The rows as multiples of their steps.
    """
    top, outlier = x.abs().max(1, keepdim=True)
    others = x.scatter(1, outlier, 0.0)
    highest, lowest = others.amax(1, keepdim=True), others.amin(1, keepdim=True).neg()
    # Division before addition, so that finite numbers do not overflow.
    even = torch.maximum(highest / _STEPS + lowest / _STEPS, top / (_MAX_OUTLIER * _STEPS))
    step = even.clamp_min_(_TINY)
    inverse = step.reciprocal()
    outlier_steps = (x.gather(1, outlier) * inverse).round_()
    return QuantisedRows(others.mul_(inverse).round_(), step, (lowest * inverse).round_(), outlier, outlier_steps)


class Int8Linear:
    """A linear layer with int8 products on a CPU: a scale for each output, a step and a zero point for each input row.

    The result of a row does not depend on the other rows. Rows are passed to the library as integers, so that one
    scale fits all. Sums are exact: in int32, or in float64 where the library computes wrong sums (`supports_int8`).

    Args:
        weight: [outputs, inputs]; it is quantised.
        bias: [outputs], or None; it stays in float32.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        weight = weight.detach().float()
        self._scales = (weight.abs().amax(1) / _WEIGHT_STEPS).clamp_min(_TINY)
        quantised = (weight * self._scales.reciprocal()[:, None]).round_().clamp_(-_WEIGHT_STEPS, _WEIGHT_STEPS)
        self._multiply = (_packed_product if supports_int8() else _float64_product)(quantised)
        self._columns = quantised.T.contiguous().to(torch.int8)
        self._sums = quantised.sum(1)
        self._bias = None if bias is None else bias.detach().float()

    def __call__(self, x: Tensor) -> Tensor:
        rows = quantise_rows(x.reshape(-1, x.shape[-1]))
        # The library has one zero point for all rows: the difference is subtracted afterwards.
        shift = rows.zero_point - _ZERO_POINT
        sums = self._multiply(rows.steps + shift)
        sums.addcmul_(shift, self._sums, value=-1.0)
        sums.addcmul_(self._columns[rows.outlier[:, 0]].float(), rows.outlier_steps)
        products = sums.mul_(self._scales)
        scaled = products.mul_(rows.step) if self._bias is None else torch.addcmul(self._bias, products, rows.step)
        return scaled.view(*x.shape[:-1], len(self._scales))


@cache
def supports_int8() -> bool:
    """Return whether PyTorch has correct int8 products for this CPU.

    Without VNNI instructions the library adds two products in 16 bits, and large sums saturate.
    """
    product = hasattr(torch.ops.quantized, "linear_with_input_q_dq_qweight_dq_output_fp32")
    if not product or _LIBRARY not in torch.backends.quantized.supported_engines:
        return False
    largest = torch.full((1, 64), float(_WEIGHT_STEPS))
    return bool(torch.equal(_packed_product(largest)(largest), _float64_product(largest)(largest)))


def _packed_product(quantised: Tensor) -> Product:
    """Return the product with weights [outputs, inputs] that are packed for the library."""
    with _library(), warnings.catch_warnings():
        # PyTorch deprecates quantised tensors, but the packed products accept nothing else yet.
        warnings.simplefilter("ignore", UserWarning)
        tensor = torch.quantize_per_tensor(quantised, 1.0, 0, torch.qint8)
        packed = torch.ops.quantized.linear_prepack(tensor, None)

    def multiply(rows: Tensor) -> Tensor:
        sums: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(rows, 1.0, _ZERO_POINT, packed)
        return sums

    return multiply


def _float64_product(quantised: Tensor) -> Product:
    """Return the product in float64, in which all sums are exact."""
    exact = quantised.double()
    return lambda rows: linear(rows.double(), exact).float()


@contextmanager
def _library() -> Iterator[None]:
    """Select the quantisation library, since weights are packed for the selected one."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = _LIBRARY
    try:
        yield
    finally:
        torch.backends.quantized.engine = before
