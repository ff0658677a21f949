"""Several memories: one distribution, in which each has its say where it has something to say."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ibidem.combine import FixedCombiner, Weights, average_weights, mix, overlay_weights

VOCABULARY = 11


def draw(seed: int, rows: int, k: int) -> tuple[Weights, Tensor]:
    random = torch.Generator().manual_seed(seed)
    raw = torch.rand(rows, k + 1, generator=random) + 1e-3
    raw /= raw.sum(dim=1, keepdim=True)
    return Weights(raw[:, 0], raw[:, 1:]), torch.randint(VOCABULARY, (rows, k), generator=random)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 5), st.floats(0.01, 100)), min_size=1, max_size=4))
def test_one_list_of_neighbours_is_the_sum_of_the_memories(memories: list[tuple[int, int, float]]) -> None:
    """The oracle: every memory's whole distribution, weighed by its trust in itself."""
    log_probs = torch.randn(3, VOCABULARY, generator=torch.Generator().manual_seed(1)).log_softmax(dim=1)
    drawn = [draw(seed, 3, k) for seed, k, _ in memories]
    shares = [share for _, _, share in memories]
    blended = average_weights([weights for weights, _ in drawn], shares)
    found = mix(log_probs, blended, torch.cat([values for _, values in drawn], dim=1)).exp()
    trust = torch.stack([s * (1 - w.base) for (w, _), s in zip(drawn, shares, strict=True)])
    trust /= trust.sum(dim=0)
    expected = sum(a[:, None] * mix(log_probs, w, v).exp() for a, (w, v) in zip(trust, drawn, strict=True))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(blended.base + blended.neighbours.sum(dim=1), torch.ones(3))


def test_a_memory_that_has_nothing_to_say_changes_nothing() -> None:
    weights, _ = draw(3, 4, 5)
    silent = Weights(torch.ones(4), torch.zeros(4, 2))
    blended = average_weights([silent, weights, Weights(torch.ones(4), torch.empty(4, 0))], [9.0, 1.0, 1.0])
    torch.testing.assert_close(blended.base, weights.base)
    torch.testing.assert_close(blended.neighbours[:, 2:], weights.neighbours)
    assert not blended.neighbours[:, :2].any()
    nothing = average_weights([silent, silent], [1.0, 1.0])
    assert nothing.base.tolist() == [1.0] * 4
    assert not nothing.neighbours.any()


def test_a_memory_twice_counts_once() -> None:
    weights, values = draw(5, 4, 3)
    log_probs = torch.randn(4, VOCABULARY).log_softmax(dim=1)
    twice = mix(log_probs, average_weights([weights, weights], [1.0, 3.0]), torch.cat([values, values], dim=1))
    torch.testing.assert_close(twice, mix(log_probs, weights, values))


def test_absent_neighbours_are_no_numbers_that_spoil_others() -> None:
    combiner = FixedCombiner(2, 0.5, 1.0)
    far = torch.tensor([[torch.inf, torch.inf], [1.0, torch.inf]])
    near = torch.tensor([[0.0, 1.0], [torch.inf, torch.inf]])
    values = torch.zeros(2, 2, dtype=torch.long)
    blended = average_weights([combiner.weigh(far, values), combiner.weigh(near, values)], [1.0, 1.0])
    assert blended.base.tolist() == pytest.approx([0.5, 0.5])
    assert blended.neighbours.isfinite().all()


def test_what_lies_on_top_takes_the_rest_for_the_base_model() -> None:
    log_probs = torch.randn(3, VOCABULARY).log_softmax(dim=1)
    (under, values), (over, others) = draw(1, 3, 4), draw(2, 3, 2)
    found = mix(log_probs, overlay_weights(under, over), torch.cat([values, others], dim=1))
    torch.testing.assert_close(found, mix(mix(log_probs, under, values), over, others))
