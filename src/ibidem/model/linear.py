"""Linear layers as the lean engine applies them: as they are, or with int8 weights and activations."""

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
# One less than bytes have, since both ends of a range may round outwards.
_STEPS = 254
# So many times the range of the bytes is what the largest value of a row may reach.
_MAX_OUTLIER = 64
_ZERO_POINT = 128
_TINY = torch.finfo(torch.float32).tiny
_LIBRARY = "fbgemm"

# Whole numbers [n, inputs] from -128 to 127 -> sums of their products with weights [n, outputs], a new tensor
Product = Callable[[Tensor], Tensor]


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


class QuantisedRows(NamedTuple):
    """Rows [n, inputs] as whole numbers of steps, x = steps * step, all from -zero to 255 - zero but the largest.

    The largest magnitude of a row stands apart: `steps` has nothing at its place `peak`, and `height` is how many steps
    it is. A single value is often many times as large as all others, and would make their steps coarse. All but
    `steps` are [n, 1].
    """

    steps: Tensor
    step: Tensor
    zero_point: Tensor
    outlier: Tensor
    outlier_steps: Tensor


def quantise_rows(x: Tensor) -> QuantisedRows:
    """Rows [n, inputs] in float32, each by itself."""
    top, outlier = x.abs().max(1, keepdim=True)
    others = x.scatter(1, outlier, 0.0)
    highest, lowest = others.amax(1, keepdim=True), others.amin(1, keepdim=True).neg()
    # Divided before they are added, so that no finite numbers overflow.
    even = torch.maximum(highest / _STEPS + lowest / _STEPS, top / (_MAX_OUTLIER * _STEPS))
    step = even.clamp_min_(_TINY)
    inverse = step.reciprocal()
    outlier_steps = (x.gather(1, outlier) * inverse).round_()
    return QuantisedRows(others.mul_(inverse).round_(), step, (lowest * inverse).round_(), outlier, outlier_steps)


class Int8Linear:
    """int8 products on a CPU: a scale for each output, and a step and a zero for each row of the input.

    Since every row has its own, what comes of a row does not depend on the rows beside it. Rows are given to the
    library as whole numbers, so that one scale fits all. Sums are whole numbers too, made in int32, or in float64 where
    the library would get them wrong: right and slow, for comparing.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        weight = weight.detach().float()
        self._scales = (weight.abs().amax(1) / _WEIGHT_STEPS).clamp_min(_TINY)
        whole = (weight * self._scales.reciprocal()[:, None]).round_().clamp_(-_WEIGHT_STEPS, _WEIGHT_STEPS)
        self._multiply = (_packed_product if supports_int8() else _float64_product)(whole)
        self._columns = whole.T.contiguous().to(torch.int8)
        self._sums = whole.sum(1)
        self._bias = None if bias is None else bias.detach().float()

    def __call__(self, x: Tensor) -> Tensor:
        rows = quantise_rows(x.reshape(-1, x.shape[-1]))
        # The library has one zero for all: what a row's own is away from it comes off afterwards.
        shift = rows.zero_point - _ZERO_POINT
        sums = self._multiply(rows.steps + shift)
        sums.addcmul_(shift, self._sums, value=-1.0)
        sums.addcmul_(self._columns[rows.outlier[:, 0]].float(), rows.outlier_steps)
        products = sums.mul_(self._scales)
        scaled = products.mul_(rows.step) if self._bias is None else torch.addcmul(self._bias, products, rows.step)
        return scaled.view(*x.shape[:-1], len(self._scales))


@cache
def supports_int8() -> bool:
    """Whether PyTorch has int8 products for this CPU, and right ones.

    Without an instruction for them (VNNI) the library adds two products in sixteen bits, which cut large ones off.
    """
    product = hasattr(torch.ops.quantized, "linear_with_input_q_dq_qweight_dq_output_fp32")
    if not product or _LIBRARY not in torch.backends.quantized.supported_engines:
        return False
    largest = torch.full((1, 64), float(_WEIGHT_STEPS))
    return bool(torch.equal(_packed_product(largest)(largest), _float64_product(largest)(largest)))


def _packed_product(whole: Tensor) -> Product:
    """By the library, with weights [outputs, inputs] packed for it."""
    with _library(), warnings.catch_warnings():
        # These tensors are to leave PyTorch some day; the packed products have no other way in yet.
        warnings.simplefilter("ignore", UserWarning)
        quantized = torch.quantize_per_tensor(whole, 1.0, 0, torch.qint8)
        packed = torch.ops.quantized.linear_prepack(quantized, None)

    def multiply(rows: Tensor) -> Tensor:
        sums: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(rows, 1.0, _ZERO_POINT, packed)
        return sums

    return multiply


def _float64_product(whole: Tensor) -> Product:
    """In float64, which holds all sums exactly."""
    exact = whole.double()
    return lambda rows: linear(rows.double(), exact).float()


@contextmanager
def _library() -> Iterator[None]:
    """Weights are packed for the library that is chosen while packing."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = _LIBRARY
    try:
        yield
    finally:
        torch.backends.quantized.engine = before
