"""Native compactors and the lookup of values against torch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.compact import LinearCompactor, NativeCompactor, NetworkCompactor, place_compactor
from ibidem.decode.scorer import values_of
from ibidem.native import CompactorKernel, look_up

pytestmark = pytest.mark.usefixtures("native_build")


def network(inputs: int, hidden: int, outputs: int, activation: str, seed: int) -> NetworkCompactor:
    torch.manual_seed(seed)
    return NetworkCompactor(inputs, hidden, outputs, activation).requires_grad_(False)


@given(
    st.integers(0, 70),
    st.integers(1, 70),
    st.integers(1, 140),
    st.integers(1, 70),
    st.sampled_from(["sigmoid", "tanh"]),
    st.sampled_from([0.1, 3.0, 100.0]),
    st.integers(0, 99),
)
@settings(max_examples=80, deadline=None)
def test_network_compactors_equal_torch(
    rows: int, inputs: int, hidden: int, outputs: int, activation: str, size: float, seed: int
) -> None:
    torch_form = network(inputs, hidden, outputs, activation, seed)
    native_form = place_compactor(torch_form, "cpu")
    assert isinstance(native_form, NativeCompactor)
    states = torch.randn(rows, inputs) * size
    # The two forms add in different orders; draws of large weights differ by a little more than 1e-5.
    torch.testing.assert_close(native_form(states), torch_form(states), rtol=1e-5, atol=3e-5)
    torch.testing.assert_close(native_form(states.half()), torch_form(states.half()), rtol=1e-5, atol=3e-5)
    assert native_form.summary() == torch_form.summary()


@given(st.integers(0, 120), st.integers(1, 70), st.integers(1, 70), st.booleans(), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_linear_compactors_equal_torch(rows: int, inputs: int, outputs: int, centred: bool, seed: int) -> None:
    torch.manual_seed(seed)
    mean = 3 * torch.randn(inputs) if centred else None
    exact = LinearCompactor("pca" if centred else "svd", torch.randn(outputs, inputs), mean)
    placed = place_compactor(exact, "cpu")
    assert isinstance(placed, NativeCompactor)
    states = torch.randn(rows, inputs)
    torch.testing.assert_close(placed(states), exact(states), rtol=1e-4, atol=1e-4)
    assert placed.summary() == exact.summary()
    rows_alone = [placed(row[None]) for row in states]
    assert torch.equal(placed(states), torch.cat(rows_alone) if rows_alone else torch.empty(0, outputs))


@given(
    st.integers(1, 70),
    st.integers(1, 300),
    st.sampled_from(["sigmoid", "tanh"]),
    st.sampled_from([1e-6, 0.1, 3.0]),
    st.sampled_from([1.0, 30.0]),
    st.integers(0, 99),
)
@settings(max_examples=80, deadline=None)
def test_int16_error_is_small(rows: int, inputs: int, activation: str, size: float, peak: float, seed: int) -> None:
    """The error of int16 is small compared with that of rounding to float16, also with one very large value."""
    exact = network(inputs, 40, 20, activation, seed)
    states = torch.randn(rows, inputs) * size
    states[:, 0] *= peak
    found, wanted = place_compactor(exact, "cpu", int16=True)(states), exact(states)
    rounded = (exact(states.half().float()) - wanted).half().float().abs().max() + wanted.abs().max() * 2**-11
    assert (found - wanted).abs().max() <= 2 * rounded


@pytest.mark.parametrize("inputs", [2, 512, 4096])
def test_no_int16_sum_overflows(inputs: int) -> None:
    """All products have the largest magnitude and one sign, so that every row needs a coarser step."""
    weight, none = torch.full((40, inputs), 0.01), torch.zeros(40)
    made = CompactorKernel.network((weight, none), (torch.eye(40), none), "tanh", int16=True)
    states = torch.tensor([1.0, -1.0, 1e3, 1e-30, 0.0])[:, None].expand(-1, inputs).clone() / inputs
    torch.testing.assert_close(made(states), torch.tanh(states @ weight.T), rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("whole", [False, True])
def test_a_row_does_not_depend_on_other_rows(whole: bool) -> None:
    native_form = place_compactor(network(512, 256, 64, "sigmoid", 1), "cpu", int16=whole)
    states = torch.randn(101, 512)
    whole_batch = native_form(states)
    assert torch.equal(whole_batch, torch.cat([native_form(row[None]) for row in states]))
    assert torch.equal(whole_batch[:7], native_form(states[:7]))


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_a_state_that_is_not_finite_gives_nan(whole: bool, wrong: float) -> None:
    native_form = place_compactor(network(32, 16, 8, "sigmoid", 1), "cpu", int16=whole)
    states = torch.randn(3, 32)
    states[1, 5] = wrong
    if wrong == torch.inf:
        states[1, 6:] = wrong
    found = native_form(states)
    assert found[1].isnan().all()
    assert not found[[0, 2]].isnan().any()


def test_wrong_shapes_are_refused() -> None:
    made = CompactorKernel.network((torch.zeros(4, 6), torch.zeros(4)), (torch.zeros(2, 4), torch.zeros(2)), "tanh")
    for shape in ((3, 5), (6,)):
        with pytest.raises(ValueError, match="a compactor of 6 inputs"):
            made(torch.zeros(shape))
    with pytest.raises(ValueError, match="4 hidden units"):
        CompactorKernel.network((torch.zeros(4, 6), torch.zeros(4)), (torch.zeros(2, 5), torch.zeros(2)), "tanh")


@given(st.integers(1, 40), st.lists(st.lists(st.integers(-1, 39), min_size=3, max_size=3), max_size=9))
@settings(max_examples=60, deadline=None)
def test_values_are_looked_up(size: int, numbers: list[list[int]]) -> None:
    table = torch.arange(size) * 7 + 3
    entries = torch.tensor(numbers, dtype=torch.long).view(-1, 3).clamp_max(size - 1)
    assert torch.equal(values_of(table, entries), table[entries.clamp_min(0)])


def test_an_entry_beyond_the_table_is_refused() -> None:
    with pytest.raises(IndexError, match="none of the 4"):
        look_up(torch.zeros(4, dtype=torch.long), torch.tensor([[4]]))
