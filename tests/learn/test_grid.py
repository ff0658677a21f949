"""The grid of the fixed combiner, against the dense mixture of every point."""

from __future__ import annotations

import pytest
import torch

from ibidem.learn import tune_fixed
from ibidem.learn.grid import TEMPERATURES, WEIGHTS

from .samples import Dense, neighbour_distribution, random_examples


def dense_loss(dense: Dense, k: int, weight: float, temperature: float) -> float:
    """Mean of -log((1 - w) p_NMT + w p_kNN) of the true token, over whole distributions."""
    examples, base = dense
    losses = []
    for row in range(len(examples)):
        found = neighbour_distribution(
            examples.distances[row], examples.values[row], k, temperature, examples.vocabulary_size
        )
        nmt = base[row].exp()
        mixed = (1 - weight) * nmt + weight * found if found.sum() > 0 else nmt
        assert float(mixed.sum()) == pytest.approx(1.0)
        losses.append(-float(mixed[examples.gold[row]].log()))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("k", [None, 4])
def test_every_point_equals_the_dense_mixture(k: int | None) -> None:
    dense = random_examples(3, rows=12)
    points = tune_fixed(dense.examples, k=k)
    sizes = [1, 2, 4, 8] if k is None else [k]
    assert len(points) == len(sizes) * len(TEMPERATURES) * len(WEIGHTS)
    assert sorted({point.combiner.k for point in points}) == sizes
    expected = {
        point.combiner: dense_loss(dense, point.combiner.k, point.combiner.weight, point.combiner.temperature)
        for point in points
    }
    for point in points:
        assert point.loss == pytest.approx(expected[point.combiner], rel=1e-9)
    assert expected[points[0].combiner] == pytest.approx(min(expected.values()), rel=1e-9)


def test_the_best_point_follows_the_memory() -> None:
    """A memory that is always right gets the greatest weight, one that is always wrong the least."""
    examples = random_examples(5).examples
    near = examples.distances.clamp(max=30)
    right = examples.gold[:, None].expand_as(examples.values)
    wrong = (right + 1) % examples.vocabulary_size
    for values, weight in ((right, max(WEIGHTS)), (wrong, min(WEIGHTS))):
        changed = type(examples)(
            near,
            values,
            torch.zeros_like(near),
            examples.gold,
            examples.base_gold,
            examples.base_sum,
            examples.sentences,
            examples.vocabulary_size,
        )
        assert tune_fixed(changed)[0].combiner.weight == weight
