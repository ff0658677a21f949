"""The mixture against the dense formula, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.combine import FixedCombiner, Weights, aggregate, mix
from ibidem.combine.mixing import distance_kernel, present


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


def dense(log_probs: torch.Tensor, weights: Weights, values: torch.Tensor) -> torch.Tensor:
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
        votes = [math.exp(-(distance - near[0]) / combiner.temperature) for distance in near]
        shares = [combiner.weight * vote / sum(votes) for vote in votes]
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
    torch.testing.assert_close(mixed.double().exp(), dense(log_probs, weights, values), atol=1e-5, rtol=1e-4)
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
    torch.testing.assert_close(mixed.exp(), dense(log_probs, weights, values), atol=1e-12, rtol=1e-10)
    assert torch.equal(log_probs, before), "the base model's distribution was changed in place"


def test_tokens_without_votes_keep_their_precision() -> None:
    """In log space a token of probability 1e-30 is not lost beside the neighbours'."""
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
def test_rows_of_unusable_distances_fall_back_to_the_base_model(bad: float) -> None:
    log_probs = torch.randn(2, 9).log_softmax(1)
    distances = torch.tensor([[bad] * 4, [0.5, 1.0, bad, bad]])
    values = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 4]])
    mixed = mix(log_probs, FixedCombiner(4, 0.9, 1.0).weigh(distances, values), values)
    torch.testing.assert_close(mixed[0], log_probs[0])
    two = mix(log_probs[1:], FixedCombiner(2, 0.9, 1.0).weigh(distances[1:, :2], values[1:, :2]), values[1:, :2])
    torch.testing.assert_close(mixed[1], two[0])


def test_huge_distances_and_small_temperatures_do_not_underflow() -> None:
    votes = distance_kernel(torch.tensor([[1e30, 1e30, 2e30]]), 1e-3)
    torch.testing.assert_close(votes, torch.tensor([[1.0, 1.0, 0.0]]))


def test_aggregate_sums_the_weights_of_one_value() -> None:
    summed = aggregate(torch.tensor([[0.1, 0.2, 0.3, 0.4]]), torch.tensor([[5, 7, 5, 5]]))
    torch.testing.assert_close(summed, torch.tensor([[0.8, 0.2, 0.8, 0.8]]))
