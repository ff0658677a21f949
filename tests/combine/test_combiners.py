"""Combiners against their formulas, written out neighbour by neighbour."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.combine import AdaptiveCombiner, DistanceDecayCombiner, FixedCombiner, MetaK, mix, typical_distance
from ibidem.combine.combiners import count_distinct, neighbour_counts, spread_choices
from ibidem.combine.mixture import distance_kernel
from ibidem.errors import UsageError

BANDWIDTH = 200.0


@pytest.mark.parametrize(
    ("k", "weight", "temperature"),
    [(0, 0.5, 1.0), (4, -0.1, 1.0), (4, 1.1, 1.0), (4, 0.5, 0.0), (4, 0.5, -1.0)],
)
def test_invalid_settings_of_a_fixed_combiner_are_refused(k: int, weight: float, temperature: float) -> None:
    with pytest.raises(UsageError, match=r"Invalid combiner: k = .*temperature above 0"):
        FixedCombiner(k, weight, temperature)


def make_combiner(k: int, seed: int = 0, temperature: float = 10.0) -> AdaptiveCombiner:
    """Make a combiner whose network is far from the nearly uniform initial one."""
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
            kernel = [math.exp(-distance / temperature) for distance in distances[row, :choice].tolist()]
            for j, value in enumerate(kernel):
                expected[j] += probability * value / sum(kernel)
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
def test_invalid_distances_get_no_weight(bad: float) -> None:
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
    """Where the nearest distance is invalid, the choice k = 1 has no neighbour."""
    log_choice = torch.tensor([[0.2, 0.3, 0.5]]).log()
    weights = spread_choices(log_choice, distance_kernel(torch.tensor([[math.nan, 1.0]]), 1.0))
    torch.testing.assert_close(weights.base, torch.tensor([0.5]))
    torch.testing.assert_close(weights.neighbours, torch.tensor([[0.0, 0.5]]))


@pytest.mark.parametrize("k", [0, 3, 6, -1])
def test_k_must_be_a_power_of_two(k: int) -> None:
    with pytest.raises(UsageError, match="1, 2, 4, 8"):
        neighbour_counts(k)


def test_neighbour_counts_are_powers_of_two() -> None:
    assert neighbour_counts(16) == [1, 2, 4, 8, 16]


def decay(distances: list[float], values: list[int]) -> tuple[float, list[float]]:
    weights = DistanceDecayCombiner(BANDWIDTH).weigh(torch.tensor([distances]), torch.tensor([values]))
    return float(weights.base), weights.neighbours[0].tolist()


def test_a_neighbour_at_distance_0_has_most_of_the_weight() -> None:
    base, neighbours = decay([0.0, 900.0], [5, 6])
    assert base < 0.12
    assert neighbours[0] > 0.88


def test_a_far_neighbour_has_no_weight() -> None:
    for distance in (800.0, 1e6, torch.inf, torch.nan):
        base, neighbours = decay([distance, torch.inf], [5, 6])
        assert base == pytest.approx(1, abs=1e-5)
        assert sum(neighbours) == pytest.approx(0, abs=1e-5)


def test_the_weight_falls_with_distance_and_with_disagreement() -> None:
    bases = [decay([distance, 900.0], [5, 6])[0] for distance in (0, 50, 100, 150, 200, 250, 300, 500)]
    assert bases == sorted(bases)
    assert bases[4] == pytest.approx(0.55, abs=0.01)
    agreeing, split = decay([50.0] * 4, [5] * 4), decay([50.0] * 4, [5, 6, 7, 8])
    assert agreeing[0] < 0.25
    assert split[0] > 0.95


@settings(deadline=None)
@given(
    st.lists(st.floats(0, 2000) | st.just(float("inf")), min_size=1, max_size=8),
    st.lists(st.integers(0, 3), min_size=8, max_size=8),
    st.floats(1e-3, 1e4),
)
def test_decayed_weights_sum_to_1(distances: list[float], values: list[int], bandwidth: float) -> None:
    rows = torch.tensor([sorted(distances)])
    weights = DistanceDecayCombiner(bandwidth).weigh(rows, torch.tensor([values[: len(distances)]]))
    assert float(weights.base + weights.neighbours.sum()) == pytest.approx(1, abs=1e-5)
    assert 0.09 < float(weights.base) <= 1
    assert bool((weights.neighbours >= 0).all())
    assert not weights.neighbours[0][torch.isinf(rows[0])].any()


def test_scaling_distances_and_bandwidth_changes_nothing() -> None:
    distances, values = torch.tensor([[10.0, 30.0, 70.0]]), torch.tensor([[1, 2, 1]])
    one = DistanceDecayCombiner(50.0).weigh(distances, values)
    other = DistanceDecayCombiner(5000.0).weigh(100 * distances, values)
    torch.testing.assert_close(one.neighbours, other.neighbours)


def test_typical_distance_is_the_mean_over_pairs() -> None:
    keys = np.random.default_rng(1).standard_normal((40, 7)).astype(np.float16)
    wide = keys.astype(np.float64)
    pairs = [np.square(wide[i] - wide[j]).sum() for i in range(40) for j in range(i)]
    assert typical_distance(keys) == pytest.approx(np.mean(pairs))
    assert typical_distance(keys[:1]) == typical_distance(keys[:0]) == 0


@pytest.mark.parametrize(
    "wrong", [{"bandwidth": 0.0}, {"bandwidth": float("nan")}, {"k": 0}, {"weight": 1.0}, {"weight": -0.1}]
)
def test_invalid_settings_of_a_distance_decay_combiner_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=r"Invalid combiner: k = .*bandwidth above 0"):
        DistanceDecayCombiner(**{"bandwidth": 1.0, **wrong})
