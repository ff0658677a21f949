"""int8 products against their definition in float64."""

from __future__ import annotations

import pytest
import torch

from ibidem.model import linear
from ibidem.model.linear import Int8Linear, PlainLinear, supports_int8


def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Round both sides, then multiply exactly.

    Weights to 127 steps of their row's largest value; activations to 254 between the least and the greatest of their
    row, without the largest magnitude.
    """
    scales = weight.double().abs().amax(1) / 127
    weights = (weight.double() / scales[:, None]).round() * scales[:, None]
    at_top = x.abs() == x.abs().amax(-1, keepdim=True)
    others = x.masked_fill(at_top, 0.0)
    span = others.amax(-1, keepdim=True) / 254 - others.amin(-1, keepdim=True) / 254
    step = torch.maximum(span, x.abs().amax(-1, keepdim=True) / (64 * 254)).clamp_min(1e-38)
    product = (x * (1 / step)).round().double() * step.double() @ weights.T
    return product if bias is None else product + bias.double()


@pytest.mark.parametrize("shape", [(1, 8), (5, 512), (3, 4, 33)])
@pytest.mark.parametrize("biased", [False, True])
def test_int8_linear_equals_the_rounded_product(shape: tuple[int, ...], biased: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(19, shape[-1], generator=generator)
    bias = torch.randn(19, generator=generator) if biased else None
    x = torch.randn(shape, generator=generator) * torch.rand((*shape[:-1], 1), generator=generator) * 50
    x[..., 3] *= 20
    found = Int8Linear(weight, bias)(x)
    torch.testing.assert_close(found.double(), reference(x, weight, bias), atol=1e-3, rtol=1e-4)
    exact = PlainLinear(weight, bias)(x)
    assert (found - exact).norm() < 0.03 * exact.norm()


def test_row_does_not_depend_on_other_rows() -> None:
    generator = torch.Generator().manual_seed(2)
    layer = Int8Linear(torch.randn(40, 64, generator=generator), torch.randn(40, generator=generator))
    x = torch.randn(70, 64, generator=generator) * torch.logspace(-4, 4, 70)[:, None]
    batched = layer(x)
    assert all(torch.equal(layer(x[row : row + 1])[0], batched[row]) for row in range(70))


def test_rows_and_weights_of_zeros() -> None:
    layer = Int8Linear(torch.zeros(3, 8), torch.ones(3))
    assert torch.equal(layer(torch.zeros(2, 8)), torch.ones(2, 3))


def test_rows_that_are_not_finite() -> None:
    layer = Int8Linear(torch.ones(3, 8), None)
    x = torch.ones(3, 8)
    x[0, 2], x[1, 7] = torch.nan, -torch.inf
    assert layer(x).isnan().any(1).tolist() == [True, True, False]


def test_largest_products_do_not_saturate() -> None:
    """Without VNNI the library adds products in 16 bits and must not be used."""
    weight = torch.full((3, 64), 1.0)
    x = torch.cat([torch.full((1, 64), 2.0), torch.full((1, 64), -2.0)])
    torch.testing.assert_close(Int8Linear(weight, None)(x), x @ weight.T)


def test_library_with_wrong_sums_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = linear._packed_product
    monkeypatch.setattr(linear, "_packed_product", lambda whole: lambda rows: packed(whole)(rows).clamp(max=32767.0))
    supports_int8.cache_clear()
    try:
        assert not supports_int8()
        generator = torch.Generator().manual_seed(3)
        weight, x = torch.rand(5, 512, generator=generator), torch.rand(4, 512, generator=generator)
        torch.testing.assert_close(Int8Linear(weight, None)(x), x @ weight.T, rtol=0.01, atol=0.0)
    finally:
        supports_int8.cache_clear()
