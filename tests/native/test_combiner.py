"""Native combiners against their torch forms, and the best of the mixture against the dense formula in float64."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ibidem.combine import (
    AdaptiveCombiner,
    ContextualCombiner,
    ContextualNetwork,
    DistanceDecayCombiner,
    FixedCombiner,
    MetaK,
    NativeCombiner,
    NeighbourContext,
    to_native,
)
from ibidem.errors import UsageError
from ibidem.native import Best, CombinerKernel, best_of_mixture

if TYPE_CHECKING:
    from ibidem.combine import Combiner

pytestmark = pytest.mark.usefixtures("native_build")
ROWS, SIZES, SEEDS = st.integers(0, 60), st.sampled_from([0.0, 0.1, 10.0, 1e4, 1e30]), st.integers(0, 99)


def draw_rows(rows: int, k: int, size: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ascending distances [rows, k], of which some are absent, and values of few tokens."""
    torch.manual_seed(seed)
    distances = (size * torch.rand(rows, k)).sort(dim=1).values
    if rows > 1:
        distances[0] = math.inf
    if rows > 2 and k > 1:
        distances[1, k // 2 :] = math.inf
    if rows > 3:
        distances[2] = 0.0
    return distances, torch.randint(0, 4, (rows, k))


def compare(
    combiner: Combiner, distances: torch.Tensor, values: torch.Tensor, context: NeighbourContext | None = None
) -> None:
    native = to_native(combiner)
    assert isinstance(native, NativeCombiner)
    assert native.k == combiner.k
    found, expected = native.weigh(distances, values, context), combiner.weigh(distances, values, context)
    torch.testing.assert_close(found.base, expected.base, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.neighbours, expected.neighbours, rtol=1e-5, atol=1e-6)


@given(ROWS, st.integers(1, 33), st.integers(1, 33), st.sampled_from([0.0, 0.3, 1.0]), SIZES, SEEDS)
@settings(max_examples=60, deadline=None)
def test_fixed(rows: int, k: int, width: int, weight: float, size: float, seed: int) -> None:
    compare(FixedCombiner(k, weight, 10.0), *draw_rows(rows, width, size, seed))


@given(ROWS, st.integers(1, 33), st.sampled_from([0.0, 0.9]), SIZES, SEEDS)
@settings(max_examples=60, deadline=None)
def test_distance_decay(rows: int, k: int, weight: float, size: float, seed: int) -> None:
    compare(DistanceDecayCombiner(5.0, k=k, weight=weight), *draw_rows(rows, k, size, seed))


@given(ROWS, st.sampled_from([1, 2, 8, 32]), SIZES, SEEDS)
@settings(max_examples=60, deadline=None)
@torch.no_grad()
def test_adaptive(rows: int, k: int, size: float, seed: int) -> None:
    torch.manual_seed(seed)
    network = MetaK(k, scale=3.0)
    network.inner.weight.normal_()
    compare(AdaptiveCombiner(network, 10.0), *draw_rows(rows, k, size, seed))


def draw_context(rows: int, k: int) -> NeighbourContext:
    """Random log-probabilities, some of them very small, and distances of sources."""
    now, stored = -3 * torch.rand(2, rows, k) / torch.rand(2, rows, k).clamp_min(1e-3)
    top = (-2 * torch.rand(rows, 2)).sort(dim=1, descending=True).values
    return NeighbourContext(now, stored, 2 * torch.rand(rows, k), top)


@given(ROWS, st.sampled_from([1, 3, 8, 16]), st.sampled_from([5, 16, 64]), st.sampled_from([3, 32]), SIZES, SEEDS)
@settings(max_examples=60, deadline=None)
@torch.no_grad()
def test_contextual(rows: int, k: int, hidden: int, neighbour_hidden: int, size: float, seed: int) -> None:
    torch.manual_seed(seed)
    network = ContextualNetwork(k, scale=3.0, hidden=hidden, neighbour_hidden=neighbour_hidden)
    for layer in (network.base, network.temperature, network.score):
        layer.weight.normal_()
    compare(ContextualCombiner(network), *draw_rows(rows, k, size, seed), draw_context(rows, k))


def test_contextual_needs_its_context() -> None:
    combiner = ContextualCombiner(ContextualNetwork(2, scale=1.0).requires_grad_(False))
    rows = torch.zeros(3, 2), torch.zeros(3, 2, dtype=torch.long)
    with pytest.raises(UsageError, match="needs the base model's logits"):
        combiner.weigh(*rows)
    with pytest.raises(ValueError, match="a context of shapes"):
        to_native(combiner).weigh(*rows)
    short = draw_context(2, 2)
    with pytest.raises(ValueError, match="a context of shapes"):
        to_native(combiner).weigh(*rows, short)


def test_a_distance_that_overflows_the_kernel_has_no_weight() -> None:
    for combiner in (FixedCombiner(2, 0.5, 1e-10), DistanceDecayCombiner(1e-10, k=2)):
        compare(combiner, torch.tensor([[3e38, 3.1e38]]), torch.tensor([[1, 2]]))


def test_shapes_that_differ_are_refused() -> None:
    kernel = CombinerKernel.fixed(2, 0.5, 1.0)
    with pytest.raises(ValueError, match="are not"):
        kernel.weigh(torch.zeros(3, 2), torch.zeros(2, 2, dtype=torch.long))
    torch.manual_seed(0)
    meta = MetaK(4, scale=1.0).requires_grad_(False)
    adaptive = to_native(AdaptiveCombiner(meta, 1.0))
    with pytest.raises(ValueError, match="are not"):
        adaptive.weigh(torch.zeros(3, 2), torch.zeros(3, 2, dtype=torch.long))


def dense_scores(logits: Tensor, base: Tensor, weights: Tensor, values: Tensor, banned: list[int]) -> Tensor:
    """Log-probabilities [rows, V] of the mixture in float64, -inf for banned tokens."""
    probs = logits.double().softmax(1) * base.double()[:, None]
    probs = probs.scatter_add(1, values, weights.double())
    scores = probs.log()
    scores[:, banned] = -torch.inf
    return scores


def check(found: Best, scores: Tensor) -> None:
    """The scores are those of the dense formula, of distinct tokens, and no better token was left out."""
    count = found.tokens.shape[1]
    assert all(len(set(row)) == count for row in found.tokens.tolist())
    torch.testing.assert_close(found.scores.double(), scores.gather(1, found.tokens), rtol=1e-6, atol=4e-6)
    torch.testing.assert_close(found.scores.double(), scores.topk(count, dim=1).values, rtol=1e-6, atol=4e-6)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_equals_the_dense_formula(data: st.DataObject) -> None:
    rows, size = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 700))
    width = data.draw(st.sampled_from([0, 1, 3, 8, 64]))
    count = data.draw(st.integers(1, min(size, 90)))
    banned = data.draw(st.lists(st.integers(0, size - 1), max_size=min(size - count, 70), unique=True))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 999)))
    logits = torch.randn(rows, size, generator=generator) * data.draw(st.sampled_from([0.1, 3.0, 40.0]))
    # Few distinct values, so that neighbours share them, and weights as small as a far neighbour's.
    values = torch.randint(0, max(1, size // data.draw(st.sampled_from([1, 50]))), (rows, width), generator=generator)
    weights = torch.randn(rows, width, generator=generator).mul(5).sub(5).exp() * (torch.rand(rows, width) > 0.2)
    base = torch.rand(rows, generator=generator).clamp_min(1e-6)
    found = best_of_mixture(logits, count, base=base, weights=weights, values=values, banned=banned)
    check(found, dense_scores(logits, base, weights, values, banned))


def test_equal_scores_come_by_token() -> None:
    logits = torch.zeros(2, 1000)
    logits[1, 500:] = 1.0
    assert best_of_mixture(logits, 5, banned=[1, 501]).tokens.tolist() == [[0, 2, 3, 4, 5], [500, 502, 503, 504, 505]]
    lifted = best_of_mixture(
        logits, 4, base=torch.ones(2), weights=torch.full((2, 2), 0.01), values=torch.tensor([[9, 7], [7, 9]])
    )
    assert lifted.tokens.tolist() == [[7, 9, 0, 1], [7, 9, 500, 501]]


@pytest.mark.parametrize("size", [100, 16_000])
def test_without_neighbours_equals_the_base_model(size: int) -> None:
    logits = torch.randn(7, size, generator=torch.Generator().manual_seed(1)) * 3
    found, expected = best_of_mixture(logits, 10), logits.double().log_softmax(1).topk(10, dim=1)
    torch.testing.assert_close(found.scores.double(), expected.values, rtol=0, atol=4e-6)
    assert torch.equal(found.tokens, expected.indices)


def test_neighbours_without_weight() -> None:
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(2))
    values = torch.tensor([[-1, 50, 3, 4, 5, 6]])
    weights = torch.tensor([[0.9, 0.9, np.nan, 0.0, -0.5, 0.2]])
    found = best_of_mixture(logits, 50 - 1, base=torch.ones(1), weights=weights, values=values, banned=[7])
    expected = dense_scores(logits, torch.ones(1), torch.tensor([[0.2]]), torch.tensor([[6]]), [7])
    check(found, expected)
    silent = best_of_mixture(logits, 5, base=torch.ones(1), weights=weights[:, :5], values=values[:, :5])
    assert torch.equal(silent.tokens, best_of_mixture(logits, 5).tokens)


def test_a_banned_neighbour_is_never_returned() -> None:
    found = best_of_mixture(
        torch.zeros(1, 20),
        19,
        base=torch.tensor([0.1]),
        weights=torch.tensor([[0.9]]),
        values=torch.tensor([[4]]),
        banned=[4],
    )
    assert found.tokens.tolist() == [[token for token in range(20) if token != 4]]


@pytest.mark.parametrize("size", [10, 16_000])
def test_impossible_tokens_and_a_base_model_without_weight(size: int) -> None:
    logits = torch.full((1, size), -torch.inf)
    logits[0, 3] = 1.0
    found = best_of_mixture(logits, 3)
    assert found.tokens.tolist() == [[3, 0, 1]]
    assert found.scores.tolist() == [[0.0, -np.inf, -np.inf]]
    only = best_of_mixture(
        logits, 2, base=torch.zeros(1), weights=torch.tensor([[0.25, 0.75]]), values=torch.tensor([[8, 5]])
    )
    assert only.tokens.tolist() == [[5, 8]]
    torch.testing.assert_close(only.scores, torch.tensor([[0.75, 0.25]]).log())


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
@pytest.mark.parametrize("place", [0, 63, 64, 15_998, 15_999])
def test_logits_without_a_distribution(wrong: float, place: int) -> None:
    logits = torch.randn(3, 15_999 + 1, generator=torch.Generator().manual_seed(3))
    sane = best_of_mixture(logits, 4)
    logits[1, place] = wrong
    found = best_of_mixture(logits, 4, banned=[1])
    assert found.tokens[1].tolist() == [0, 2, 3, 4]
    assert found.scores[1].isnan().all()
    assert torch.equal(found.scores[[0, 2]], sane.scores[[0, 2]])
    assert best_of_mixture(torch.full((1, 99), -torch.inf), 2).scores.isnan().all()


def test_rows_apart_in_memory_and_other_types() -> None:
    wide = torch.randn(6, 800, generator=torch.Generator().manual_seed(4))
    plain = best_of_mixture(wide[:, :700].contiguous(), 5)
    assert torch.equal(best_of_mixture(wide[:, :700], 5).tokens, plain.tokens)
    assert torch.equal(best_of_mixture(wide[:, :700].t().contiguous().t(), 5).tokens, plain.tokens)
    assert torch.equal(best_of_mixture(wide[:, :700].double(), 5).scores, plain.scores)
    assert best_of_mixture(wide[:0], 5).tokens.shape == (0, 5)


def test_threads_do_not_change_results() -> None:
    logits = torch.randn(40, 16_000, generator=torch.Generator().manual_seed(5))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = best_of_mixture(logits, 10)
        torch.set_num_threads(3)
        group_size = best_of_mixture(logits, 10)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(alone.scores, group_size.scores)
    assert torch.equal(alone.tokens, group_size.tokens)


def test_invalid_arguments_are_refused() -> None:
    logits = torch.zeros(2, 9)
    with pytest.raises(ValueError, match="only 9 are not banned"):
        best_of_mixture(logits, 10)
    with pytest.raises(ValueError, match="only 8 are not banned"):
        best_of_mixture(logits, 9, banned=[3, 3])
    with pytest.raises(ValueError, match="all of base"):
        best_of_mixture(logits, 1, base=torch.ones(2))
    with pytest.raises(ValueError, match="where"):
        best_of_mixture(logits, 1, base=torch.ones(2), weights=torch.ones(2, 1), values=torch.ones(1, 1))
    with pytest.raises(IndexError):
        best_of_mixture(logits, 1, banned=[9])
