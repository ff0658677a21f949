"""The number of entries that each cluster keeps."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.learn.prune import PruneSettings
from ibidem.learn.prune.allocation import ALLOCATIONS, allocate_exactly, allocate_floored
from ibidem.learn.prune.pruning import RULES

SIZES = st.lists(st.integers(1, 12) | st.integers(1, 3000), max_size=60)
RATES = st.integers(0, 99).map(lambda percent: percent / 100) | st.floats(0, 0.999)


def adjusted_share(sizes: list[int], wanted: int) -> float:
    """Find by bisection the share s at which the sum of max(1, s * size) is `wanted`."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if sum(max(1.0, middle * size) for size in sizes) < wanted:
            low = middle
        else:
            high = middle
    return high


@settings(max_examples=150, deadline=None)
@given(SIZES, RATES)
def test_exact_counts_add_up_and_are_in_proportion(sizes: list[int], rate: float) -> None:
    share = PruneSettings(rate=rate).kept_share
    wanted = math.floor(share * sum(sizes) + Fraction(1, 2))
    kept = allocate_exactly(np.array(sizes, dtype=np.int64), share).tolist()
    assert sum(kept) == max(wanted, len(sizes))
    proportion = adjusted_share(sizes, wanted)
    for size, count in zip(sizes, kept, strict=True):
        assert 1 <= count <= size
        assert abs(count - proportion * size) < 1 + 1e-6 or (count == 1 and proportion * size < 1)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(10, 40), min_size=2, max_size=60), st.integers(0, 60), st.integers(1, 60))
def test_every_run_of_clusters_keeps_its_share(sizes: list[int], first: int, length: int) -> None:
    """No cluster is too small for the share here, so the rate holds in every family too."""
    kept = allocate_exactly(np.array(sizes, dtype=np.int64), Fraction(4, 5))
    run = slice(first, first + length)
    share = math.floor(Fraction(4, 5) * sum(sizes) + Fraction(1, 2)) / sum(sizes)
    assert abs(int(kept[run].sum()) - share * sum(sizes[run])) < 1 + 1e-9


def test_small_clusters_lose_entries_as_often_as_large_ones() -> None:
    """Of a thousand pairs at a rate of a tenth, two hundred lose one: rounding favours no size."""
    kept = allocate_exactly(np.array([2] * 1000 + [9] * 1000, dtype=np.int64), Fraction(9, 10))
    assert int(kept[:1000].sum()) == 1800
    assert int(kept[1000:].sum()) == 8100


def test_more_clusters_than_entries_to_keep() -> None:
    assert allocate_exactly(np.array([5, 1, 2], dtype=np.int64), Fraction(1, 10)).tolist() == [1, 1, 1]
    assert allocate_exactly(np.array([], dtype=np.int64), Fraction(1, 10)).tolist() == []


@pytest.mark.parametrize(
    ("rate", "kept"),
    [
        (0.1, {1: 1, 2: 2, 3: 2, 9: 8, 10: 9, 11: 9, 100: 90}),
        (0.7, {1: 1, 2: 2, 3: 2, 9: 2, 10: 3, 100: 30}),
        (0.9, {1: 1, 2: 2, 10: 2, 30: 3, 100: 10}),
        (0.0, {1: 1, 2: 2, 3: 3, 100: 100}),
    ],
)
def test_the_authors_rule(rate: float, kept: dict[int, int]) -> None:
    """The results of the authors' code, and whole shares that floating point would floor to one less."""
    counts = allocate_floored(np.array(list(kept), dtype=np.int64), PruneSettings(rate=rate).kept_share)
    assert counts.tolist() == list(kept.values())


def test_every_rule_has_its_function() -> None:
    assert tuple(ALLOCATIONS) == RULES
