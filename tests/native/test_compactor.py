"""The Compact Network and the lookup of values, against torch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.compact import NetworkCompactor, place_compactor
from ibidem.compact.native import SwiftCompactor
from ibidem.decode.values import values_of
from ibidem.native.compactor import NativeCompactor
from ibidem.native.lookup import look_up

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
def test_it_is_the_network(
    rows: int, inputs: int, hidden: int, outputs: int, activation: str, size: float, seed: int
) -> None:
    torch_form = network(inputs, hidden, outputs, activation, seed)
    swift = place_compactor(torch_form, "cpu")
    assert isinstance(swift, SwiftCompactor)
    states = torch.randn(rows, inputs) * size
    torch.testing.assert_close(swift(states), torch_form(states), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(swift(states.half()), torch_form(states.half()), rtol=1e-5, atol=1e-5)
    assert swift.summary() == torch_form.summary()


def test_a_row_does_not_depend_on_those_beside_it() -> None:
    swift = place_compactor(network(512, 256, 64, "sigmoid", 1), "cpu")
    states = torch.randn(101, 512)
    together = swift(states)
    assert torch.equal(together, torch.cat([swift(row[None]) for row in states]))
    assert torch.equal(together[:7], swift(states[:7]))


def test_a_state_that_is_no_number_has_no_place() -> None:
    swift = place_compactor(network(32, 16, 8, "sigmoid", 1), "cpu")
    states = torch.randn(3, 32)
    states[1, 5] = torch.nan
    found = swift(states)
    assert found[1].isnan().all()
    assert not found[[0, 2]].isnan().any()


def test_wrong_shapes_are_refused() -> None:
    made = NativeCompactor((torch.zeros(4, 6), torch.zeros(4)), (torch.zeros(2, 4), torch.zeros(2)), "tanh")
    for shape in ((3, 5), (6,)):
        with pytest.raises(ValueError, match="a compactor of 6 inputs"):
            made(torch.zeros(shape))
    with pytest.raises(ValueError, match="4 hidden units"):
        NativeCompactor((torch.zeros(4, 6), torch.zeros(4)), (torch.zeros(2, 5), torch.zeros(2)), "tanh")


@given(st.integers(1, 40), st.lists(st.lists(st.integers(-1, 39), min_size=3, max_size=3), max_size=9))
@settings(max_examples=60, deadline=None)
def test_values_are_looked_up(size: int, numbers: list[list[int]]) -> None:
    table = torch.arange(size) * 7 + 3
    entries = torch.tensor(numbers, dtype=torch.long).view(-1, 3).clamp_max(size - 1)
    assert torch.equal(values_of(table, entries), table[entries.clamp_min(0)])


def test_an_entry_out_of_the_table_is_refused() -> None:
    with pytest.raises(IndexError, match="none of the 4"):
        look_up(torch.zeros(4, dtype=torch.long), torch.tensor([[4]]))
