"""BIRCH gives scikit-learn's subclusters, numbered by their first point, small ones as noise."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from ibidem.errors import UsageError
from ibidem.learn.cluster import NOISE, ClusterSettings, birch, cluster_keys
from ibidem.learn.cluster.birch import derive_threshold
from ibidem.retrieve import ArrayKeys

from .samples import draw_families


def test_blobs_are_clusters_and_isolated_points_are_noise() -> None:
    generator = np.random.default_rng(0)
    blob = np.repeat([2, 0, 1], 20)
    points = (50 * np.eye(3, 8)[blob] + 0.1 * generator.standard_normal((60, 8))).astype(np.float32)
    points[5], points[30] = 500, np.nan
    labels = birch(points, 1.0, 4)
    expected = np.repeat([0, 1, 2], 20)
    expected[[5, 30]] = NOISE
    assert labels.tolist() == expected.tolist()
    alone = birch(points, 1.0, 1)
    assert alone[5] == 1, "numbered by the lowest point, and a cluster of one where one is enough"
    assert alone[30] == NOISE


def test_subclusters_are_those_of_scikit_learn() -> None:
    from sklearn.cluster import Birch

    points = draw_families({0: 250}).keys.gather(np.arange(250)).astype(np.float64)
    theirs = Birch(threshold=2.0, n_clusters=None).fit_predict(points - points.mean(0))
    ours = birch(points.astype(np.float32), 2.0, 1)
    pairs = set(zip(theirs.tolist(), ours.tolist(), strict=True))
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs}) > 3
    assert np.unique(ours, return_index=True)[1].tolist() == sorted(np.unique(ours, return_index=True)[1].tolist())


def test_the_derived_threshold_is_that_of_dbscans_sparsest_neighbourhood() -> None:
    for gap, group_size in ((0.999, True), (1.001, False)):
        labels = birch(np.float32([[0.0, 3.0], [gap, 3.0]]), derive_threshold(1.0, 2), 1)
        assert labels.tolist() == ([0, 0] if group_size else [0, 1])
    for reach, group_size in ((0.99, True), (1.01, False)):
        star = np.concatenate([np.zeros((1, 5)), reach * np.eye(5)[:3]]).astype(np.float32)
        assert (birch(star, derive_threshold(1.0, 4), 4).tolist() == [0] * 4) is group_size


def test_the_threshold_is_given_or_derived() -> None:
    sample = draw_families({1: 60, 2: 100})
    derived = cluster_keys(*sample, ClusterSettings(method="birch", eps_quantile=0.5))
    assert derived.report["threshold"] == pytest.approx(0.75 * derived.eps)
    given = cluster_keys(*sample, ClusterSettings(method="birch", threshold=derived.report["threshold"]))
    assert given.eps is None
    assert given.labels.tolist() == derived.labels.tolist()
    assert derived.labels.max() > 2
    tight = cluster_keys(*sample, ClusterSettings(method="birch", threshold=1e-6))
    assert tight.report["clusters"] == 0
    assert tight.report["noise_share"] == 1.0


def test_only_copies_are_clusters_if_most_keys_have_copies() -> None:
    sample = draw_families({1: 40})
    copied = ArrayKeys(np.repeat(sample.keys.gather(np.arange(40)), np.repeat([8, 1], 20), axis=0))
    for method in ("birch", "dbscan"):
        found = cluster_keys(copied, np.ones(180, np.int32), ClusterSettings(method=method, eps_quantile=0.5))
        assert found.eps == 0
        assert found.labels.tolist() == [*np.repeat(np.arange(20), 8).tolist(), *[NOISE] * 20]


def test_no_finite_points_and_no_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    assert birch(np.full((3, 2), np.nan, np.float32), 1.0, 1).tolist() == [NOISE] * 3
    assert birch(np.empty((0, 2), np.float32), 1.0, 1).tolist() == []
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    with pytest.raises(UsageError, match=r"pip install scikit-learn.*dbscan"):
        birch(np.zeros((3, 2), np.float32), 1.0, 1)
