"""PCA and SVD are those of scikit-learn and numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.compact import LinearCompactor
from ibidem.errors import MemoryFolderError, UsageError
from ibidem.learn.compact import pca_svd, train_pca, train_svd
from ibidem.retrieve import ArrayKeys


def random_keys(seed: int, size: int, dimension: int, offset: float) -> np.ndarray:
    random = np.random.default_rng(seed)
    spread = np.linspace(3, 0.5, dimension)
    return (random.normal(size=(size, dimension)) * spread + offset).astype(np.float16)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1000), st.integers(12, 200), st.integers(2, 12), st.integers(1, 8), st.sampled_from([0, 30]))
def test_pca_is_that_of_scikit_learn(seed: int, size: int, dimension: int, count: int, offset: float) -> None:
    """The keys are read once, in small blocks; a mean far from 0 loses no digits."""
    decomposition = pytest.importorskip("sklearn.decomposition")
    count = min(count, dimension)
    array = random_keys(seed, size, dimension, offset)
    rows, pca_svd._READ_ROWS = pca_svd._READ_ROWS, 7
    try:
        trained = train_pca(ArrayKeys(array), count)
    finally:
        pca_svd._READ_ROWS = rows
    oracle = decomposition.PCA(count, svd_solver="full").fit(array.astype(np.float64))
    compactor = trained.compactor
    assert isinstance(compactor, LinearCompactor)
    projection, mean = compactor.projection.double().numpy(), compactor.mean.double().numpy()
    np.testing.assert_allclose(mean, oracle.mean_, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(projection @ projection.T, np.eye(count), atol=1e-6)
    signs = np.sign((projection * oracle.components_).sum(axis=1))[:, None]
    np.testing.assert_allclose(projection * signs, oracle.components_, atol=1e-4)
    assert trained.report["explained_variance"] == pytest.approx(oracle.explained_variance_ratio_.sum(), rel=1e-6)
    assert all(row[np.abs(row).argmax()] > 0 for row in projection)
    compact = compactor(torch.from_numpy(array)).numpy()
    np.testing.assert_allclose(compact * signs.T, oracle.transform(array.astype(np.float64)), atol=1e-3)


def test_pca_of_a_share_is_seeded_and_near_that_of_all() -> None:
    keys = ArrayKeys(random_keys(0, 4000, 10, 5))
    whole, half, again, other = (
        train_pca(keys, 2, share=share, seed=seed) for share, seed in ((1.0, 0), (0.5, 0), (0.5, 0), (0.5, 1))
    )
    assert whole.report["keys"] == 4000
    assert half.report["keys"] == pytest.approx(2000, abs=150)
    assert all(isinstance(each.compactor, LinearCompactor) for each in (whole, half))
    first, second, third, fourth = (each.compactor.projection for each in (whole, half, again, other))
    assert torch.equal(second, third)
    assert not torch.equal(second, fourth)
    torch.testing.assert_close(first, second, atol=0.15, rtol=0)


@pytest.mark.parametrize(("size", "dimension"), [(100, 11), (100, 0), (5, 5), (1, 1), (0, 1)])
def test_invalid_dimensions_of_pca_are_rejected(size: int, dimension: int) -> None:
    with pytest.raises(UsageError, match="choose a dimension from 1 to"):
        train_pca(ArrayKeys(random_keys(0, size, 10, 0)), dimension)


def test_pca_rejects_keys_that_are_not_finite() -> None:
    array = random_keys(0, 50, 4, 0)
    array[30, 2] = np.inf
    with pytest.raises(MemoryFolderError, match="ibidem verify"):
        train_pca(ArrayKeys(array), 2)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1000), st.integers(8, 60), st.integers(2, 8), st.integers(1, 8), st.booleans())
def test_svd_is_that_of_numpy(seed: int, words: int, dimension: int, count: int, some: bool) -> None:
    count = min(count, dimension)
    matrix = random_keys(seed, words, dimension, 0).astype(np.float32)
    rows = max(dimension, words // 2) if some else None
    trained = train_svd(torch.from_numpy(matrix), count, rows)
    assert isinstance(trained.compactor, LinearCompactor)
    assert trained.report["rows"] == (rows or words)
    _, sizes, directions = np.linalg.svd(matrix[:rows].astype(np.float64), full_matrices=False)
    projection = trained.compactor.projection.numpy()
    expected = sizes[:count, None] * directions[:count]
    signs = np.sign((projection * expected).sum(axis=1))[:, None]
    np.testing.assert_allclose(projection * signs, expected, rtol=1e-4, atol=1e-3 * sizes[0])
    assert float(trained.compactor.mean.abs().max()) == 0
    if count == dimension:
        # With all directions, distances are those between logits.
        one, other = np.random.default_rng(seed).normal(size=(2, dimension))
        near = np.linalg.norm(projection @ one - projection @ other)
        assert near == pytest.approx(np.linalg.norm(matrix[:rows] @ (one - other)), rel=1e-4)


def test_invalid_dimensions_of_svd_are_rejected() -> None:
    with pytest.raises(UsageError, match="choose a dimension from 1 to 4"):
        train_svd(torch.zeros(30, 4), 5)
    with pytest.raises(UsageError, match="choose a dimension from 1 to 3"):
        train_svd(torch.zeros(30, 4), 4, rows=3)
