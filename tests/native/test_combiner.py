"""Native combiners against their torch forms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.combine import AdaptiveCombiner, DistanceDecayCombiner, FixedCombiner, MetaK, NativeCombiner, to_native
from ibidem.native import CombinerKernel

if TYPE_CHECKING:
    from ibidem.combine import Combiner

pytestmark = pytest.mark.usefixtures("native_build")


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


def compare(combiner: Combiner, distances: torch.Tensor, values: torch.Tensor) -> None:
    native = to_native(combiner)
    assert isinstance(native, NativeCombiner)
    assert native.k == combiner.k
    found, expected = native.weigh(distances, values), combiner.weigh(distances, values)
    torch.testing.assert_close(found.base, expected.base, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.neighbours, expected.neighbours, rtol=1e-5, atol=1e-6)


ROWS, SIZES, SEEDS = st.integers(0, 60), st.sampled_from([0.0, 0.1, 10.0, 1e4, 1e30]), st.integers(0, 99)


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
