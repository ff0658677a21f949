"""The adaptive combiner against a direct sum over the choices of k."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.combine import AdaptiveCombiner, MetaK, mix
from ibidem.combine.adaptive import count_distinct, neighbour_counts, spread_choices
from ibidem.combine.mixing import distance_kernel
from ibidem.errors import UsageError


def make_combiner(k: int, seed: int = 0, temperature: float = 10.0) -> AdaptiveCombiner:
    """A network that chooses boldly, not the nearly uniform one it starts as."""
    torch.manual_seed(seed)
    network = MetaK(k, scale=5.0)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=1.0)
    return AdaptiveCombiner(network.eval().requires_grad_(False), temperature)


@settings(deadline=None, max_examples=100)
@given(st.sampled_from([1, 2, 4, 8, 16]), st.integers(0, 10_000), st.sampled_from([0.5, 10.0, 100.0]))
def test_weights_are_the_direct_sum_over_k(k: int, seed: int, temperature: float) -> None:
    combiner = make_combiner(k, seed, temperature)
    distances = (torch.rand(6, k) * 30).sort(dim=1).values
    values = torch.randint(0, 5, (6, k))
    chosen = combiner.network(distances, values).double().exp()
    weights = combiner.weigh(distances, values)
    for row in range(len(values)):
        expected = [0.0] * k
        for choice, probability in zip(neighbour_counts(k), chosen[row, 1:].tolist(), strict=True):
            votes = [math.exp(-distance / temperature) for distance in distances[row, :choice].tolist()]
            for j, vote in enumerate(votes):
                expected[j] += probability * vote / sum(votes)
        torch.testing.assert_close(weights.neighbours[row], torch.tensor(expected), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(weights.base.double(), chosen[:, 0], atol=1e-5, rtol=1e-3)
    torch.testing.assert_close(weights.base + weights.neighbours.sum(1), torch.ones(6))
    mixed = mix(torch.randn(6, 20).log_softmax(1), weights, values)
    torch.testing.assert_close(mixed.exp().sum(1), torch.ones(6), atol=1e-5, rtol=1e-5)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 4), min_size=8, max_size=8), min_size=1, max_size=6))
def test_count_distinct_is_the_size_of_a_set(rows: list[list[int]]) -> None:
    expected = [[len(set(row[: j + 1])) for j in range(len(row))] for row in rows]
    assert count_distinct(torch.tensor(rows)).tolist() == expected


def test_features_are_distances_in_units_of_the_scale_and_counts() -> None:
    network = MetaK(4, scale=2.0)
    features = network.features(torch.tensor([[1.0, 4.0, 1e9, math.inf]]), torch.tensor([[3, 3, 8, 3]]))
    torch.testing.assert_close(features, torch.tensor([[0.5, 2.0, 10.0, 10.0, 1.0, 1.0, 2.0, 2.0]]))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_unusable_distances_never_reach_the_result(bad: float) -> None:
    combiner = make_combiner(4)
    distances = torch.tensor([[bad] * 4, [1.0, 2.0, bad, bad], [bad, 1.0, 2.0, 3.0]])
    values = torch.tensor([[1, 2, 3, 4]] * 3)
    log_probs = torch.randn(3, 9).log_softmax(1)
    weights = combiner.weigh(distances, values)
    mixed = mix(log_probs, weights, values)
    assert torch.isfinite(mixed).all()
    torch.testing.assert_close(mixed[0], log_probs[0])
    assert weights.neighbours[1, 2:].tolist() == [0.0, 0.0]
    assert weights.neighbours[2, 0] == 0
    torch.testing.assert_close(mixed.exp().sum(1), torch.ones(3), atol=1e-5, rtol=1e-5)


def test_a_choice_without_neighbours_goes_to_the_base_model() -> None:
    """Where the nearest is unusable, the choice k = 1 has no voter: its probability is the base model's."""
    log_choice = torch.tensor([[0.2, 0.3, 0.5]]).log()
    weights = spread_choices(log_choice, distance_kernel(torch.tensor([[math.nan, 1.0]]), 1.0))
    torch.testing.assert_close(weights.base, torch.tensor([0.5]))
    torch.testing.assert_close(weights.neighbours, torch.tensor([[0.0, 0.5]]))


@pytest.mark.parametrize("k", [0, 3, 6, -1])
def test_k_must_be_a_power_of_two(k: int) -> None:
    with pytest.raises(UsageError, match="1, 2, 4, 8"):
        neighbour_counts(k)


def test_choices_double() -> None:
    assert neighbour_counts(16) == [1, 2, 4, 8, 16]
