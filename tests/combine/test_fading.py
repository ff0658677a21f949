"""A combiner that is safe without tuning: it fades with distance, and with disagreement."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.combine import DistanceDecayCombiner, typical_distance
from ibidem.errors import UsageError

REACH = 200.0


def weigh(distances: list[float], values: list[int]) -> tuple[float, list[float]]:
    weights = DistanceDecayCombiner(REACH).weigh(torch.tensor([distances]), torch.tensor([values]))
    return float(weights.base), weights.neighbours[0].tolist()


def test_a_neighbour_at_no_distance_decides() -> None:
    base, votes = weigh([0.0, 900.0], [5, 6])
    assert base < 0.12
    assert votes[0] > 0.88


def test_a_far_neighbour_says_nothing() -> None:
    for distance in (800.0, 1e6, torch.inf, torch.nan):
        base, votes = weigh([distance, torch.inf], [5, 6])
        assert base == pytest.approx(1, abs=1e-5)
        assert sum(votes) == pytest.approx(0, abs=1e-5)


def test_trust_falls_with_distance_and_with_disagreement() -> None:
    bases = [weigh([distance, 900.0], [5, 6])[0] for distance in (0, 50, 100, 150, 200, 250, 300, 500)]
    assert bases == sorted(bases)
    assert bases[4] == pytest.approx(0.55, abs=0.01)
    agreeing, split = weigh([50.0] * 4, [5] * 4), weigh([50.0] * 4, [5, 6, 7, 8])
    assert agreeing[0] < 0.25
    assert split[0] > 0.95


@settings(deadline=None)
@given(
    st.lists(st.floats(0, 2000) | st.just(float("inf")), min_size=1, max_size=8),
    st.lists(st.integers(0, 3), min_size=8, max_size=8),
    st.floats(1e-3, 1e4),
)
def test_weights_sum_to_one(distances: list[float], values: list[int], reach: float) -> None:
    rows = torch.tensor([sorted(distances)])
    weights = DistanceDecayCombiner(reach).weigh(rows, torch.tensor([values[: len(distances)]]))
    assert float(weights.base + weights.neighbours.sum()) == pytest.approx(1, abs=1e-5)
    assert 0.09 < float(weights.base) <= 1
    assert bool((weights.neighbours >= 0).all())
    assert not weights.neighbours[0][torch.isinf(rows[0])].any()


def test_scale_is_all_that_matters() -> None:
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
    "wrong", [{"reach": 0.0}, {"reach": float("nan")}, {"k": 0}, {"weight": 1.0}, {"weight": -0.1}]
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="cannot be meant"):
        DistanceDecayCombiner(**{"reach": 1.0, **wrong})
