"""Rough scores against float64, and the bound on their error."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.retrieve.exact import keep_nearest, lowest_by_tiles, order_rows
from ibidem.retrieve.scores import error_bound, make_scorer, split_halves


@settings(max_examples=60, deadline=None)
@given(
    dimension=st.sampled_from([1, 16, 64, 512]),
    offset=st.sampled_from([0.0, 1.0, 100.0]),
    magnitude=st.integers(-40, 12),
    key_type=st.sampled_from([torch.float16, torch.float32]),
    seed=st.integers(0, 2**32),
)
def test_scores_keep_their_bound(
    dimension: int, offset: float, magnitude: int, key_type: torch.dtype, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    keys = (offset + torch.randn(256, dimension, generator=generator)).to(key_type)
    queries = (offset + torch.randn(8, dimension, generator=generator)) * 2.0**magnitude
    squares = keys.double().square().sum(1)
    true = squares - 2 * queries.double() @ keys.double().T
    rough = make_scorer(queries, key_type)(keys, squares.float())
    bound = error_bound(queries.double().norm(dim=1), float(squares.max().sqrt()), dimension, key_type)
    error = (rough.double() - true).abs().amax(1)
    assert (error <= bound).all()
    assert (bound <= 1e-2 * (true.abs().amax(1) + squares.max())).all()


def test_halves_add_up_to_the_query() -> None:
    rows = [
        [1.0, 2.0 / 3, -3e-5],
        [0.0, 0.0, 0.0],
        [1e-30, -7e-31, 1e-40],
        [3e17, 1.0, -2.5e17],
        [1e-44, 0.0, 0.0],
    ]
    queries = torch.tensor(rows)
    high, low, scale = split_halves(queries)
    assert high.isfinite().all()
    back = (high.double() + low.double()) * scale.double()
    error = (back - queries.double()).abs()
    largest = queries.double().abs().amax(1, keepdim=True)
    allowed = torch.maximum(queries.double().abs() * 2.0**-22, largest * 2.0**-38)
    assert (error[:4] <= allowed[:4]).all()
    assert error[4].max() <= 1e-37


@pytest.mark.parametrize("wanted", [1, 5, 9, 10, 500, 5000])
def test_lowest_by_tiles_equals_a_sort(wanted: int) -> None:
    scores = torch.from_numpy(np.random.default_rng(0).integers(0, 50, (7, 1280)).astype(np.float32))
    found, columns = lowest_by_tiles(scores, wanted)
    assert torch.equal(found.sort(1).values, scores.sort(1).values[:, :wanted])
    assert torch.equal(scores.gather(1, columns), found)
    assert all(len(set(row)) == min(wanted, 1280) for row in columns.tolist())


def test_ties_come_by_entry() -> None:
    distances = torch.tensor([[2.0, 1.0, 1.0, torch.inf, 1.0]])
    entries = torch.tensor([[4, 9, 3, -1, 7]])
    assert order_rows(distances, entries, 4)[1].tolist() == [[3, 7, 9, 4]]


def test_keep_nearest_of_each_row() -> None:
    row = torch.tensor([1, 0, 1, 1, 0])
    distance = torch.tensor([2.0, 5.0, 1.0, 1.0, 4.0])
    entry = torch.tensor([0, 1, 2, 3, 4])
    kept = keep_nearest(row, distance, entry, 2)
    assert [part.tolist() for part in kept] == [[0, 0, 1, 1], [4.0, 5.0, 1.0, 1.0], [4, 1, 2, 3]]
