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

from ibidem.model.linear import Int8Linear, supports_int8
from ibidem.native.linear import Activation, NativeLinear

pytestmark = pytest.mark.usefixtures("native_build")

TINY = torch.finfo(torch.float32).tiny
FUNCTIONS = {
    Activation.NONE: lambda x: x,
    Activation.RELU: torch.relu,
    Activation.SWISH: torch.nn.functional.silu,
}


def oracle(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Whole numbers from -127 to 127 for activations and weights, multiplied in float64."""
    largest = x.abs().amax(1, keepdim=True).clamp_min(TINY)
    activations = (x / largest * 127).round().double()
    scales = (weight.abs().amax(1) / 127).clamp_min(TINY)
    weights = (weight * (1 / scales)[:, None]).round().double()
    exact = activations @ weights.T * (largest.double() / 127) * scales.double()
    return exact if bias is None else exact + bias.double()


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_it_is_the_rounded_product(data: st.DataObject) -> None:
    rows = data.draw(st.sampled_from([1, 2, 5, 6, 7, 12, 13, 25]))
    inputs, outputs = data.draw(st.integers(1, 200)), data.draw(st.integers(1, 200))
    activation = data.draw(st.sampled_from(list(Activation)))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 999)))
    scale = data.draw(st.sampled_from([1e-20, 0.1, 1.0, 1e20]))
    x = torch.randn(rows, inputs, generator=generator) * scale
    weight = torch.randn(outputs, inputs, generator=generator)
    bias = data.draw(st.sampled_from([None, torch.randn(outputs, generator=generator) * scale]))
    found = NativeLinear(weight, bias)(x, activation)
    expected = FUNCTIONS[activation](oracle(x, weight, bias))
    # Sums are exact, so only the scaling rounds.
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5 * scale)


@pytest.mark.skipif(not supports_int8(), reason="torch has no int8 products here")
@pytest.mark.filterwarnings("ignore:.*quantize:UserWarning")
def test_it_is_torchs_int8() -> None:
    generator = torch.Generator().manual_seed(1)
    weight, bias = torch.randn(1536, 512, generator=generator), torch.randn(1536, generator=generator)
    x = torch.randn(4, 7, 512, generator=generator)
    found, expected = NativeLinear(weight, bias)(x), Int8Linear(weight, bias)(x)
    assert found.shape == expected.shape == (4, 7, 1536)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_rows_do_not_depend_on_their_neighbours() -> None:
    generator = torch.Generator().manual_seed(2)
    layer = NativeLinear(torch.randn(300, 130, generator=generator), torch.randn(300, generator=generator))
    x = torch.randn(160, 130, generator=generator) * torch.logspace(-3, 3, 160)[:, None]
    together = layer(x, Activation.SWISH)
    for count in (1, 5, 6, 31):
        parts = [layer(part, Activation.SWISH) for part in x.split(count)]
        assert torch.equal(torch.cat(parts), together)


def test_threads_change_nothing() -> None:
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


def test_weights_are_given_back() -> None:
    weight = torch.zeros(1024, 4096)
    NativeLinear(weight, None)
    before = resident_bytes()
    for _ in range(100):
        NativeLinear(weight, None)
    gc.collect()
    assert resident_bytes() - before < 40 * weight.numel()  # other threads of the process take some as well


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
