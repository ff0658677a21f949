"""int8 products against the same rounding in float64, and against torch's own int8 products."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ibidem.model.linear import Int8Linear
from ibidem.native import Activation, NativeLinear

pytestmark = pytest.mark.usefixtures("native_build")

TINY = torch.finfo(torch.float32).tiny
FUNCTIONS = {
    Activation.NONE: lambda x: x,
    Activation.RELU: torch.relu,
    Activation.SWISH: torch.nn.functional.silu,
    Activation.SIGMOID: torch.sigmoid,
    Activation.TANH: torch.tanh,
}


def oracle(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Activations as whole numbers of their row's step, weights from -127 to 127, multiplied in float64.

    254 steps span all values of a row but the one of the largest magnitude, which is at most 64 times as large.
    """
    rows = []
    for row in x:
        apart = int(row.abs().argmax())
        others = [float(value) for place, value in enumerate(row) if place != apart]
        span = torch.tensor([max([0.0, *others]), -min([0.0, *others]), float(row[apart].abs()) / 64]) / 254
        step = torch.maximum(span[0] + span[1], span[2]).clamp_min(TINY)
        whole = (row * (1 / step)).round()
        values = whole[torch.arange(len(row)) != apart]
        assert len(values) == 0 or float(values.max() - values.min()) <= 255
        rows.append(whole.double() * step.double())
    scales = (weight.abs().amax(1) / 127).clamp_min(TINY)
    weights = (weight * (1 / scales)[:, None]).round().double()
    exact = torch.stack(rows) @ weights.T * scales.double()
    return exact if bias is None else exact + bias.double()


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_equals_the_rounded_product(data: st.DataObject) -> None:
    rows = data.draw(st.sampled_from([1, 2, 5, 6, 7, 12, 13, 25]))
    inputs, outputs = data.draw(st.integers(1, 200)), data.draw(st.integers(1, 200))
    activation = data.draw(st.sampled_from(list(Activation)))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 999)))
    scale = data.draw(st.sampled_from([1e-20, 0.1, 1.0, 1e20]))
    x = torch.randn(rows, inputs, generator=generator) * scale
    x[:, data.draw(st.integers(0, inputs - 1))] *= data.draw(st.sampled_from([1.0, -30.0, 1000.0]))
    weight = torch.randn(outputs, inputs, generator=generator)
    bias = data.draw(st.sampled_from([None, torch.randn(outputs, generator=generator) * scale]))
    found = NativeLinear(weight, bias)(x, activation)
    expected = FUNCTIONS[activation](oracle(x, weight, bias))
    # Sums are exact, so only the scaling rounds; outputs of an activation have an absolute tolerance.
    error = 1e-5 * max(scale, float(x.abs().max()))
    if activation in (Activation.SIGMOID, Activation.TANH):
        error = min(max(error, 1e-5), 1e-2)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=error)


@pytest.mark.filterwarnings("ignore:.*quantize:UserWarning")
def test_equals_int8_products_of_torch() -> None:
    generator = torch.Generator().manual_seed(1)
    weight, bias = torch.randn(1536, 512, generator=generator), torch.randn(1536, generator=generator)
    x = torch.randn(4, 7, 512, generator=generator)
    x[1] = x[1].abs()
    x[2, :, 100] -= 40
    x[3, 0] = 0.0
    found, expected = NativeLinear(weight, bias)(x), Int8Linear(weight, bias)(x)
    assert found.shape == expected.shape == (4, 7, 1536)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-5)


def errors_of(x: Tensor) -> Tensor:
    """Return the error of a layer for each row [n], with weights that int8 represents exactly."""
    generator = torch.Generator().manual_seed(5)
    weight = torch.randint(-127, 128, (64, x.shape[1]), generator=generator).float()
    weight[:, 0] = 127.0
    return (NativeLinear(weight, None)(x).double() - x.double() @ weight.double().T).norm(dim=1)


@pytest.mark.parametrize("peak", [30.0, -30.0])
@pytest.mark.parametrize("place", [0, 99, 129])
def test_one_large_value_does_not_coarsen_the_others(peak: float, place: int) -> None:
    x = torch.randn(40, 130, generator=torch.Generator().manual_seed(6))
    plain = errors_of(x)
    x[:, place] = peak
    # The largest value of the plain rows was stored apart too, and is now among the others.
    assert float(errors_of(x).mean()) < 1.3 * float(plain.mean())


def test_values_of_one_sign_use_all_steps() -> None:
    x = torch.rand(40, 130, generator=torch.Generator().manual_seed(7)) + 0.01
    both = torch.cat([x, x - 0.5 * x.amax(1, keepdim=True)]).split(40)
    for rows in (x, -x):
        assert float(errors_of(rows).mean()) < 1.1 * float(errors_of(both[1]).mean())


def test_the_largest_numbers_do_not_overflow() -> None:
    top = torch.finfo(torch.float32).max
    x = torch.tensor([[top, -top, top, 0.0], [top, 0.0, 0.0, 0.0], [1.0, -1.0, 1.0, -1.0]])
    weight = torch.eye(4) * torch.tensor([0.5, 0.25, 0.125, 1.0])
    torch.testing.assert_close(NativeLinear(weight, None)(x), x @ weight, rtol=0.01, atol=0.0)


def test_a_row_does_not_depend_on_other_rows() -> None:
    generator = torch.Generator().manual_seed(2)
    layer = NativeLinear(torch.randn(300, 130, generator=generator), torch.randn(300, generator=generator))
    x = torch.randn(160, 130, generator=generator) * torch.logspace(-3, 3, 160)[:, None]
    group_size = layer(x, Activation.SWISH)
    for count in (1, 5, 6, 31):
        parts = [layer(part, Activation.SWISH) for part in x.split(count)]
        assert torch.equal(torch.cat(parts), group_size)


def test_threads_do_not_change_results() -> None:
    generator = torch.Generator().manual_seed(3)
    layer = NativeLinear(torch.randn(2000, 256, generator=generator), None)
    x = torch.randn(50, 256, generator=generator)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = layer(x)
        torch.set_num_threads(3)
        assert torch.equal(layer(x), alone)
    finally:
        torch.set_num_threads(before)


def test_rows_of_zeros_and_rows_that_are_not_finite() -> None:
    generator = torch.Generator().manual_seed(4)
    layer = NativeLinear(torch.randn(20, 33, generator=generator), torch.arange(20.0))
    x = torch.randn(4, 33, generator=generator)
    plain = layer(x)
    x[0] = 0.0
    x[1, 32] = torch.nan
    x[2, 0] = torch.inf
    found = layer(x)
    assert torch.equal(found[0], torch.arange(20.0))
    assert found[1:3].isnan().all()
    assert torch.equal(found[3], plain[3])


def test_weights_of_zeros_other_types_and_no_rows() -> None:
    layer = NativeLinear(torch.zeros(3, 8), torch.ones(3))
    assert torch.equal(layer(torch.randn(2, 8)), torch.ones(2, 3))
    assert torch.equal(layer(torch.randn(8, 2, dtype=torch.float64).T), torch.ones(2, 3))
    assert layer(torch.randn(0, 8)).shape == (0, 3)
    with pytest.raises(ValueError, match="7 numbers"):
        layer(torch.randn(2, 7))


@pytest.mark.parametrize(("outputs", "count"), [(1024, 100), (32, 3200)])
def test_weights_are_freed(outputs: int, count: int) -> None:
    """Weights with pages of their own, and weights that share a page."""
    weight = torch.zeros(outputs, 4096)
    NativeLinear(weight, None)
    before = resident_bytes()
    for _ in range(count):
        NativeLinear(weight, None)
    gc.collect()
    assert resident_bytes() - before < 0.4 * count * weight.numel()  # other threads of the process take some as well


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
