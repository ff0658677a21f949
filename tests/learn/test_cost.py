"""Translation costs, against the definition."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.errors import UsageError
from ibidem.learn import cost
from ibidem.learn.cost import cut_blocks, translation_costs

if TYPE_CHECKING:
    from numpy.typing import NDArray


def cost_by_definition(log_probs: NDArray[np.float32], offsets: NDArray[np.int64], n: int) -> list[float]:
    costs = []
    for start, end in pairwise(offsets.tolist()):
        sentence = [float(x) for x in log_probs[start:end]]
        for place in range(len(sentence)):
            tails = [sentence[place - b + 1 : place + 1] for b in range(1, n + 1) if b <= place + 1]
            costs.append(min(-sum(tail) / len(tail) for tail in tails))
    return costs


def random_sentences(seed: int, lengths: list[int]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    losses = np.random.default_rng(seed).exponential(2, int(offsets[-1]))
    return -losses.astype(np.float32), offsets


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 9), max_size=12), st.integers(1, 5))
def test_costs_are_those_of_the_definition(seed: int, lengths: list[int], n: int) -> None:
    log_probs, offsets = random_sentences(seed, lengths)
    costs = translation_costs(log_probs, offsets, n)
    assert costs.dtype == np.float32
    np.testing.assert_allclose(costs, cost_by_definition(log_probs, offsets, n), rtol=2e-7)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 1000])
def test_short_and_long_sentences_in_small_blocks(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks smaller than some sentences, and a sentence of one token, change nothing."""
    log_probs, offsets = random_sentences(7, [1, 1, 30, 2, 0, 5, 1, 12, 3])
    monkeypatch.setattr(cost, "cut_blocks", lambda bounds: cut_blocks(bounds, size=8))
    np.testing.assert_allclose(
        translation_costs(log_probs, offsets, n), cost_by_definition(log_probs, offsets, n), rtol=2e-7
    )


def test_an_example_with_known_costs() -> None:
    """A costly token after one of cost 0 has half its cost; at the start of a sentence it has all of it."""
    log_probs = np.array([-4, -1, -3, 0, -2], dtype=np.float32)
    costs = translation_costs(log_probs, np.array([0, 3, 5]))
    assert costs.tolist() == [4, 1, 2, 0, 1]
    assert not np.signbit(costs).any()


def test_an_impossible_token_does_not_leak_into_the_next_sentence() -> None:
    log_probs = np.array([-1, -np.inf, -1, -1], dtype=np.float32)
    assert translation_costs(log_probs, np.array([0, 2, 4]), 3).tolist() == [1, np.inf, 1, 1]


@settings(deadline=None)
@given(st.lists(st.integers(0, 20), max_size=30), st.integers(1, 25))
def test_blocks_are_whole_sentences_and_small(lengths: list[int], size: int) -> None:
    bounds = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    blocks = list(cut_blocks(bounds, size))
    assert [part for first, last in blocks for part in range(first, last)] == list(range(len(lengths)))
    assert all(bounds[last] - bounds[first] <= size or last == first + 1 for first, last in blocks)


@pytest.mark.parametrize(
    ("offsets", "n", "message"),
    [
        ([0, 3], 0, "Invalid n-gram length 0"),
        ([0, 2], 2, "end with the number of tokens, which is 3"),
        ([1, 3], 2, "begin with 0"),
        ([], 2, "begin with 0"),
        ([0, 2, 1, 3], 2, "must not decrease"),
    ],
)
def test_invalid_arguments_are_refused(offsets: list[int], n: int, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        translation_costs(np.zeros(3, dtype=np.float32), np.array(offsets, dtype=np.int64), n)
