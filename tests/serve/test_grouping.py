"""The cheapest lines to decode together, against trying all groups."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ibidem.serve.batcher import PADDING_COST, STEP_COST, choose_group, decoding_cost


def worth(lengths: list[int]) -> float:
    return sum(lengths) / (sum(lengths) + max(*lengths, 1) * (STEP_COST + PADDING_COST * len(lengths)))


@given(st.lists(st.integers(1, 300), min_size=1, max_size=12), st.integers(1, 8), st.data())
def test_no_group_is_worth_more(lengths: list[int], size: int, data: st.DataObject) -> None:
    lengths.sort()
    wanted = data.draw(st.none() | st.integers(0, len(lengths) - 1))
    chosen = choose_group(lengths, size, wanted)
    assert 1 <= len(chosen) <= size
    assert wanted is None or wanted in chosen
    groups = [
        range(start, end)
        for start in range(len(lengths))
        for end in range(start + 1, len(lengths) + 1)
        if end - start <= size and (wanted is None or wanted in range(start, end))
    ]
    assert worth([lengths[i] for i in chosen]) == max(worth([lengths[i] for i in group]) for group in groups)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=12), st.floats(1, 5_000), st.data())
def test_a_group_stays_within_its_budget(lengths: list[int], budget: float, data: st.DataObject) -> None:
    lengths.sort()
    wanted = data.draw(st.none() | st.integers(0, len(lengths) - 1))
    chosen = choose_group(lengths, 8, wanted, budget)
    assert len(chosen) >= 1
    assert wanted is None or wanted in chosen
    assert len(chosen) == 1 or sum(decoding_cost(lengths[i]) for i in chosen) <= budget


def test_like_lines_go_together() -> None:
    assert choose_group([40] * 10, 8) == range(0, 8)
    assert choose_group([20, 20, 20, 20, 400], 8) == range(0, 4)
    assert choose_group([20, 20, 20, 20, 400], 8, required=4) == range(0, 5)
    assert choose_group([5], 8) == range(0, 1)
