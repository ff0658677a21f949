"""The mixture against the dense formula in float64, its best tokens, and the weights of several memories."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ibidem.combine import (
    Candidates,
    FixedCombiner,
    Weights,
    aggregate,
    average_weights,
    best_candidates,
    candidates_in_torch,
    mix,
    overlay_weights,
    score_tokens,
)
from ibidem.combine.mixture import distance_kernel, present

VOCABULARY = 11


@st.composite
def situations(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Base log-probabilities [r, V], ascending distances [r, K], some infinite, repeated values [r, K]."""
    rows, vocabulary, width = draw(st.integers(1, 5)), draw(st.integers(2, 30)), draw(st.integers(1, 16))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    logits = torch.randn(rows, vocabulary, generator=generator) * draw(st.sampled_from([0.1, 3.0, 30.0]))
    spread = draw(st.sampled_from([1e-3, 1.0, 1e3]))
    distances = (torch.rand(rows, width, generator=generator) * spread).sort(dim=1).values
    absent = torch.randint(0, width + 1, (rows, 1), generator=generator)
    distances = distances.masked_fill(torch.arange(width) >= absent, torch.inf)
    values = torch.randint(0, draw(st.integers(1, vocabulary)), (rows, width), generator=generator)
    return logits.log_softmax(1), distances, values


def dense_probabilities(log_probs: torch.Tensor, weights: Weights, values: torch.Tensor) -> torch.Tensor:
    """w_0 p_NMT + sum of w_j one-hot(value_j), written out over the vocabulary in float64."""
    mixed = log_probs.double().exp() * weights.base.double()[:, None]
    for row in range(len(values)):
        for weight, value in zip(weights.neighbours[row].tolist(), values[row].tolist(), strict=True):
            mixed[row, value] += weight
    return mixed


def textbook(distances: torch.Tensor, combiner: FixedCombiner) -> Weights:
    """(1 - λ) and λ softmax(-d / T), neighbour by neighbour in Python floats."""
    base, neighbours = [], []
    for row in distances.double().tolist():
        near = [distance for distance in row[: combiner.k] if math.isfinite(distance)]
        kernel = [math.exp(-(distance - near[0]) / combiner.temperature) for distance in near]
        shares = [combiner.weight * value / sum(kernel) for value in kernel]
        base.append(1 - combiner.weight if near else 1.0)
        neighbours.append([*shares, *[0.0] * (len(row) - len(shares))])
    return Weights(torch.tensor(base), torch.tensor(neighbours))


@settings(deadline=None, max_examples=200)
@given(
    situations(),
    st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    st.sampled_from([0.01, 1.0, 100.0]),
    st.integers(1, 20),
)
def test_fixed_mixture_is_the_textbook_formula(
    situation: tuple[torch.Tensor, torch.Tensor, torch.Tensor], weight: float, temperature: float, k: int
) -> None:
    log_probs, distances, values = situation
    combiner = FixedCombiner(k, weight, temperature)
    weights = combiner.weigh(distances, values)
    expected = textbook(distances, combiner)
    torch.testing.assert_close(weights.base, expected.base, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(weights.neighbours, expected.neighbours, atol=1e-5, rtol=1e-3)
    torch.testing.assert_close(weights.base + weights.neighbours.sum(1), torch.ones(len(values)))

    mixed = mix(log_probs, weights, values)
    assert not mixed.isnan().any()
    torch.testing.assert_close(
        mixed.double().exp(), dense_probabilities(log_probs, weights, values), atol=1e-5, rtol=1e-4
    )
    torch.testing.assert_close(mixed.exp().sum(1), torch.ones(len(values)), atol=1e-5, rtol=1e-5)


@settings(deadline=None, max_examples=100)
@given(situations())
def test_mix_takes_any_weights(situation: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> None:
    log_probs, distances, values = (tensor if tensor.dtype == torch.int64 else tensor.double() for tensor in situation)
    raw = torch.cat([torch.ones(len(values), 1).double(), present(distances) * torch.rand(values.shape).double()], 1)
    shares = raw / raw.sum(1, keepdim=True)
    weights = Weights(shares[:, 0], shares[:, 1:])
    before = log_probs.clone()
    mixed = mix(log_probs, weights, values)
    torch.testing.assert_close(mixed.exp(), dense_probabilities(log_probs, weights, values), atol=1e-12, rtol=1e-10)
    assert torch.equal(log_probs, before), "the base model's distribution was changed in place"


def test_tokens_without_neighbours_keep_their_precision() -> None:
    """In log space a token of probability 1e-30 keeps its precision next to the neighbours' tokens."""
    log_probs = torch.tensor([[0.0, -69.0, -80.0]]).log_softmax(1)
    weights = FixedCombiner(1, 0.5, 1.0).weigh(torch.tensor([[0.1]]), torch.tensor([[0]]))
    mixed = mix(log_probs, weights, torch.tensor([[0]]))
    torch.testing.assert_close(mixed[0, 1:], log_probs[0, 1:] + math.log(0.5))


def test_no_neighbour_columns_leave_the_base_model() -> None:
    log_probs = torch.randn(3, 7).log_softmax(1)
    nothing = torch.empty(3, 0)
    weights = FixedCombiner(4, 0.9, 1.0).weigh(nothing, nothing.long())
    torch.testing.assert_close(mix(log_probs, weights, nothing.long()), log_probs)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_rows_of_invalid_distances_fall_back_to_the_base_model(bad: float) -> None:
    log_probs = torch.randn(2, 9).log_softmax(1)
    distances = torch.tensor([[bad] * 4, [0.5, 1.0, bad, bad]])
    values = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 4]])
    mixed = mix(log_probs, FixedCombiner(4, 0.9, 1.0).weigh(distances, values), values)
    torch.testing.assert_close(mixed[0], log_probs[0])
    two = mix(log_probs[1:], FixedCombiner(2, 0.9, 1.0).weigh(distances[1:, :2], values[1:, :2]), values[1:, :2])
    torch.testing.assert_close(mixed[1], two[0])


def test_huge_distances_and_small_temperatures_do_not_underflow() -> None:
    kernel = distance_kernel(torch.tensor([[1e30, 1e30, 2e30]]), 1e-3)
    torch.testing.assert_close(kernel, torch.tensor([[1.0, 1.0, 0.0]]))


def test_aggregate_sums_the_weights_of_one_value() -> None:
    summed = aggregate(torch.tensor([[0.1, 0.2, 0.3, 0.4]]), torch.tensor([[5, 7, 5, 5]]))
    torch.testing.assert_close(summed, torch.tensor([[0.8, 0.2, 0.8, 0.8]]))


def draw_logits(seed: int, rows: int, vocabulary: int, k: int) -> tuple[torch.Tensor, Weights, torch.Tensor]:
    """Logits, weights and values with many neighbours of one value, some of them absent (weight 0)."""
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(rows, vocabulary, generator=generator)
    values = torch.randint(min(vocabulary, 5), (rows, k), generator=generator)
    raw = torch.rand(rows, k + 1, generator=generator) * (torch.rand(rows, k + 1, generator=generator) < 0.7)
    raw[:, 0] += 1e-3
    raw /= raw.sum(dim=1, keepdim=True)
    return logits, Weights(raw[:, 0], raw[:, 1:]), values


def dense_mixture(logits: torch.Tensor, weights: Weights, values: torch.Tensor) -> torch.Tensor:
    wide = Weights(weights.base.double(), weights.neighbours.double())
    return mix(logits.double().log_softmax(dim=1), wide, values)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 2**32),
    st.integers(0, 6),
    st.sampled_from([3, 7, 60]),
    st.sampled_from([0, 1, 8]),
    st.sampled_from([1, 4, 10]),
    st.lists(st.integers(0, 2), max_size=2, unique=True),
)
def test_the_best_are_those_of_the_whole_mixture(
    seed: int, rows: int, vocabulary: int, k: int, count: int, banned: list[int]
) -> None:
    logits, weights, values = draw_logits(seed, rows, vocabulary, k)
    mixture = dense_mixture(logits, weights, values)
    mixture[:, banned] = -torch.inf
    for best in (best_candidates, candidates_in_torch):
        found = best(logits.clone(), weights, values, count, torch.tensor(banned) if banned else None)
        check_candidates(found, mixture, count)


def check_candidates(found: Candidates, mixture: torch.Tensor, count: int) -> None:
    expected = mixture.topk(min(count, mixture.shape[1]), dim=1).values[:, : found.tokens.shape[1]]
    # Where fewer tokens are allowed than the count, the rest may be missing.
    assert found.tokens.shape == expected.shape
    torch.testing.assert_close(found.log_probs.double(), expected, atol=1e-5, rtol=1e-5)
    shown = found.log_probs > -torch.inf
    torch.testing.assert_close(
        mixture.gather(1, found.tokens)[shown], found.log_probs.double()[shown], atol=1e-5, rtol=1e-5
    )
    for tokens, real in zip(found.tokens.tolist(), shown.tolist(), strict=True):
        named = [token for token, there in zip(tokens, real, strict=True) if there]
        assert len(set(named)) == len(named)


@pytest.mark.parametrize("k", [0, 1, 8])
def test_the_score_of_a_given_token(k: int) -> None:
    logits, weights, values = draw_logits(3, 9, 20, k)
    tokens = torch.arange(9)
    expected = dense_mixture(logits, weights, values).gather(1, tokens[:, None])[:, 0]
    torch.testing.assert_close(score_tokens(logits, weights, values, tokens).double(), expected, atol=1e-5, rtol=1e-5)


def draw_weights(seed: int, rows: int, k: int) -> tuple[Weights, Tensor]:
    random = torch.Generator().manual_seed(seed)
    raw = torch.rand(rows, k + 1, generator=random) + 1e-3
    raw /= raw.sum(dim=1, keepdim=True)
    return Weights(raw[:, 0], raw[:, 1:]), torch.randint(VOCABULARY, (rows, k), generator=random)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 5), st.floats(0.01, 100)), min_size=1, max_size=4))
def test_averaged_weights_give_the_average_of_the_distributions(memories: list[tuple[int, int, float]]) -> None:
    """The oracle averages the whole distributions of the memories."""
    log_probs = torch.randn(3, VOCABULARY, generator=torch.Generator().manual_seed(1)).log_softmax(dim=1)
    drawn = [draw_weights(seed, 3, k) for seed, k, _ in memories]
    memory_weights = [weight for _, _, weight in memories]
    averaged = average_weights([weights for weights, _ in drawn], memory_weights)
    found = mix(log_probs, averaged, torch.cat([values for _, values in drawn], dim=1)).exp()
    parts = torch.stack([s * (1 - w.base) for (w, _), s in zip(drawn, memory_weights, strict=True)])
    parts /= parts.sum(dim=0)
    expected = sum(a[:, None] * mix(log_probs, w, v).exp() for a, (w, v) in zip(parts, drawn, strict=True))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(averaged.base + averaged.neighbours.sum(dim=1), torch.ones(3))


def test_a_memory_without_neighbours_changes_nothing() -> None:
    weights, _ = draw_weights(3, 4, 5)
    without = Weights(torch.ones(4), torch.zeros(4, 2))
    averaged = average_weights([without, weights, Weights(torch.ones(4), torch.empty(4, 0))], [9.0, 1.0, 1.0])
    torch.testing.assert_close(averaged.base, weights.base)
    torch.testing.assert_close(averaged.neighbours[:, 2:], weights.neighbours)
    assert not averaged.neighbours[:, :2].any()
    nothing = average_weights([without, without], [1.0, 1.0])
    assert nothing.base.tolist() == [1.0] * 4
    assert not nothing.neighbours.any()


def test_a_memory_twice_counts_once() -> None:
    weights, values = draw_weights(5, 4, 3)
    log_probs = torch.randn(4, VOCABULARY).log_softmax(dim=1)
    twice = mix(log_probs, average_weights([weights, weights], [1.0, 3.0]), torch.cat([values, values], dim=1))
    torch.testing.assert_close(twice, mix(log_probs, weights, values))


def test_absent_neighbours_give_finite_weights() -> None:
    combiner = FixedCombiner(2, 0.5, 1.0)
    far = torch.tensor([[torch.inf, torch.inf], [1.0, torch.inf]])
    near = torch.tensor([[0.0, 1.0], [torch.inf, torch.inf]])
    values = torch.zeros(2, 2, dtype=torch.long)
    averaged = average_weights([combiner.weigh(far, values), combiner.weigh(near, values)], [1.0, 1.0])
    assert averaged.base.tolist() == pytest.approx([0.5, 0.5])
    assert averaged.neighbours.isfinite().all()


def test_an_overlay_takes_the_other_mixture_for_the_base_model() -> None:
    log_probs = torch.randn(3, VOCABULARY).log_softmax(dim=1)
    (under, values), (over, others) = draw_weights(1, 3, 4), draw_weights(2, 3, 2)
    found = mix(log_probs, overlay_weights(under, over), torch.cat([values, others], dim=1))
    torch.testing.assert_close(found, mix(mix(log_probs, under, values), over, others))
