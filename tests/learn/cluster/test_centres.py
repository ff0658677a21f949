"""Centroids and distances from them, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ibidem.errors import MismatchError
from ibidem.learn.cluster import (
    EXCLUDED,
    NOISE,
    UNSAMPLED,
    ClusterSettings,
    centroids,
    cluster_keys,
    distances_to_centres,
)
from ibidem.learn.cluster import centres as centres_module
from ibidem.retrieve import ArrayKeys

from .samples import Sample, draw_families

SIZES = {3: 150, 5: 4, 6: 40, 11: 700, 12: 60, 14: 30, 20: 300}


@pytest.fixture(autouse=True)
def _several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(centres_module, "_BLOCK", 12 * 100)
    monkeypatch.setattr(centres_module, "_SCORES", 64)
    monkeypatch.setattr(centres_module, "_SUMS", 12 * 7)


@pytest.fixture
def sample() -> Sample:
    return draw_families(SIZES)


@pytest.fixture
def labels(sample: Sample) -> np.ndarray:
    """Every kind of label, and a family (14) of noise alone."""
    found = cluster_keys(*sample, ClusterSettings(eps=2.6, family_bound=250), excluded=[12]).labels.copy()
    found[sample.values == 14] = NOISE
    found[np.flatnonzero(sample.values == 14)[0]] = UNSAMPLED
    numbers = np.unique(found[found >= 0])
    return np.where(found >= 0, np.searchsorted(numbers, found), found).astype(np.int32)


def means(sample: Sample, labels: np.ndarray) -> np.ndarray:
    keys = sample.keys.gather(np.arange(sample.keys.size)).astype(np.float64)
    return np.stack([keys[labels == cluster].mean(0) for cluster in range(labels.max() + 1)])


def test_centroids_are_means(sample: Sample, labels: np.ndarray) -> None:
    found = centroids(sample.keys, labels)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, means(sample, labels), rtol=1e-6, atol=1e-6)


def test_every_entry_has_the_nearest_centre_of_its_family_or_its_own(sample: Sample, labels: np.ndarray) -> None:
    assert {NOISE, UNSAMPLED, EXCLUDED} < set(labels.tolist())
    clusters, distances = distances_to_centres(sample.keys, sample.values, labels)
    relabelled = np.where(sample.values == 14, labels.max() + 1, labels)
    table = means(sample, relabelled)
    keys = sample.keys.gather(np.arange(sample.keys.size)).astype(np.float64)
    for entry, (value, label) in enumerate(zip(sample.values.tolist(), relabelled.tolist(), strict=True)):
        if value == 12:
            assert (clusters[entry], distances[entry]) == (EXCLUDED, 0)
            continue
        own = np.unique(relabelled[(sample.values == value) & (relabelled >= 0)]) if label < 0 else np.array([label])
        gaps = np.linalg.norm(table[own] - keys[entry], axis=1)
        assert clusters[entry] == own[gaps.argmin()]
        assert distances[entry] == pytest.approx(gaps.min(), rel=1e-5, abs=1e-5)
    assert (clusters.dtype, distances.dtype) == (np.int32, np.float32)
    assert labels[sample.values == 14].max() < 0, "the given labels are not changed"


def test_a_memory_without_noise(sample: Sample) -> None:
    families = np.unique(sample.values, return_inverse=True)[1].astype(np.int32)
    clusters, distances = distances_to_centres(sample.keys, sample.values, families)
    np.testing.assert_array_equal(clusters, families)
    assert (distances > 0).all()


def test_a_cluster_without_entries_is_assigned_to_no_entry(sample: Sample, labels: np.ndarray) -> None:
    """In a memory that was pruned after clustering, some clusters have lost their last entry."""
    count = len(centroids(sample.keys, labels))
    gone = labels[sample.values == 3].max()
    kept = np.flatnonzero(labels != gone)
    keys = ArrayKeys(sample.keys.gather(kept))
    clusters, _ = distances_to_centres(keys, sample.values[kept], labels[kept])
    assert gone not in clusters
    assert clusters.max() == count, "the family without a cluster is numbered after all others"


def test_keys_that_are_not_finite_change_no_centroid_and_are_infinitely_far(sample: Sample, labels: np.ndarray) -> None:
    broken = sample.keys.gather(np.arange(sample.keys.size)).copy()
    member = np.flatnonzero(labels == 0)[0]
    broken[member] = np.inf
    without = labels.copy()
    without[member] = EXCLUDED
    np.testing.assert_array_equal(centroids(ArrayKeys(broken), labels), centroids(sample.keys, without))
    clusters, distances = distances_to_centres(ArrayKeys(broken), sample.values, labels)
    assert clusters[member] == 0
    assert distances[member] == np.inf
    assert np.isfinite(np.delete(distances, member)).all()


def test_sums_of_half_precision_keys_do_not_depend_on_their_order(sample: Sample, labels: np.ndarray) -> None:
    halves = sample.keys.gather(np.arange(sample.keys.size)).astype(np.float16)
    order = np.random.default_rng(0).permutation(len(halves))
    np.testing.assert_array_equal(
        centroids(ArrayKeys(halves), labels), centroids(ArrayKeys(halves[order]), labels[order])
    )


def test_empty_input_and_errors(sample: Sample, labels: np.ndarray) -> None:
    empty = draw_families({})
    none = np.empty(0, np.int32)
    assert centroids(empty.keys, none).shape == (0, 12)
    assert [len(array) for array in distances_to_centres(empty.keys, none, none)] == [0, 0]
    with pytest.raises(MismatchError, match="array of 2"):
        centroids(sample.keys, labels[:2])
    with pytest.raises(MismatchError, match="array of 3"):
        distances_to_centres(sample.keys, sample.values[:3], labels)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda_gives_the_results_of_the_cpu(sample: Sample, labels: np.ndarray) -> None:
    np.testing.assert_allclose(centroids(sample.keys, labels, "cuda"), centroids(sample.keys, labels), rtol=1e-6)
    (clusters, distances), (others, measured) = (
        distances_to_centres(sample.keys, sample.values, labels, device=device) for device in ("cpu", "cuda")
    )
    assert clusters.tolist() == others.tolist()
    np.testing.assert_allclose(measured, distances, rtol=1e-5)
