"""Clustering of a memory, and its settings."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from ibidem.errors import MismatchError, UsageError
from ibidem.learn.cluster import (
    EXCLUDED,
    NOISE,
    UNSAMPLED,
    Clustering,
    ClusterSettings,
    cluster_keys,
    dbscan,
    group_by_value,
)
from ibidem.learn.cluster import clustering as clustering_module
from ibidem.retrieve import ArrayKeys

from .samples import SETTINGS, SIZES, Sample, draw_families

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"method": "kmeans"}, "'kmeans': use one of auto, dbscan, birch, none"),
        ({"eps": 0.0}, "Invalid eps 0.0"),
        ({"eps": float("inf")}, "Invalid eps inf"),
        ({"threshold": -1.0}, "Invalid threshold -1.0"),
        ({"min_samples": 0}, "Invalid min_samples 0.*1 or more"),
        ({"family_bound": 1}, "Invalid family_bound 1.*2 or more"),
        ({"smallest": 0}, "Invalid smallest 0"),
        ({"seed": -1}, "Invalid seed -1"),
        ({"eps_quantile": 0.0}, "Invalid eps_quantile 0.0"),
        ({"eps_quantile": 1.5}, "Invalid eps_quantile 1.5"),
    ],
)
def test_errors_name_the_setting_and_its_range(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ClusterSettings(**wrong)


def test_auto_is_the_papers_choice() -> None:
    assert ClusterSettings().choose_method(99_999_999) == "dbscan"
    assert ClusterSettings().choose_method(100_000_000) == "birch"
    assert ClusterSettings(method="birch").choose_method(5) == "birch"
    assert ClusterSettings(method="none").choose_method(10**9) == "none"


def test_every_label_by_its_definition(sample: Sample) -> None:
    """Each family has the labels of DBSCAN on its sample, numbered after those of the family before."""
    found = cluster_keys(*sample, SETTINGS, excluded=[6, 9999])
    labels = np.full(len(sample.values), EXCLUDED)
    families = group_by_value(sample.values)
    clusters, counts = 0, []
    for family, value in enumerate(families.values.tolist()):
        if value == 6:
            continue
        entries, drawn = families.entries(family), families.sample(family, 250, 0)
        labels[entries] = UNSAMPLED
        own = np.zeros(len(drawn), np.int64)
        if len(entries) >= 5:
            own = dbscan(torch.from_numpy(sample.keys.gather(drawn)), 2.6, 4).numpy()
        labels[drawn] = np.where(own >= 0, own + clusters, own)
        counts.append(own.max() + 1)
        clusters += own.max() + 1
    assert found.labels.dtype == np.int32
    assert found.labels.tolist() == labels.tolist()
    assert set(found.labels.tolist()) == {*range(clusters), NOISE, UNSAMPLED, EXCLUDED}
    report = found.report
    assert report["clusters"] == clusters
    assert report["families"] == 7
    assert report["clusters_per_family"] == {"mean": np.mean(counts), "median": np.median(counts), "max": max(counts)}
    assert report["noise_share"] == (labels == NOISE).mean()
    assert report["unsampled_share"] == (450 + 50) / len(labels)
    assert report["excluded_share"] == 40 / len(labels)
    assert report["families_without_cluster"] == counts.count(0)
    assert report["cluster_sizes"]["1.0"] == np.bincount(labels[labels >= 0]).max()
    assert found.eps == report["eps"] == 2.6
    assert json.loads(json.dumps(report)) == report


def test_small_families_are_one_cluster_and_so_are_all_with_the_method_none(sample: Sample) -> None:
    labels = cluster_keys(*sample, replace(SETTINGS, eps=1e-6)).labels
    assert len(set(labels[sample.values == 5].tolist())) == len(set(labels[sample.values == 9].tolist())) == 1
    assert set(labels[sample.values == 21].tolist()) == {NOISE}
    whole = cluster_keys(*sample, ClusterSettings(method="none", family_bound=10), excluded=[12])
    numbers = {value: number for number, value in enumerate(value for value in SIZES if value != 12)}
    assert whole.labels.tolist() == [numbers.get(value, EXCLUDED) for value in sample.values.tolist()]
    assert whole.eps is None
    assert whole.report["clusters"] == 7


def test_the_labels_do_not_depend_on_the_batches(
    sample: Sample, expected: Clustering, monkeypatch: pytest.MonkeyPatch
) -> None:
    for small, room in ((0, 1 << 30), (10_000, 1), (10_000, 1 << 30), (100, 100_000)):
        monkeypatch.setattr(clustering_module, "SMALL", small)
        monkeypatch.setattr(clustering_module, "_CPU_BATCH_BYTES", room)
        assert cluster_keys(*sample, SETTINGS).labels.tolist() == expected.labels.tolist()


def test_no_more_than_a_batch_of_keys_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Watched(ArrayKeys):
        def gather(self, ids: np.ndarray) -> np.ndarray:
            asked.append(len(ids))
            assert (np.diff(ids) > 0).all(), "read in the order in which they are stored"
            return super().gather(ids)

    sample = draw_families(dict.fromkeys(range(200), 30) | {500: 900})
    keys = Watched(sample.keys.gather(np.arange(sample.keys.size)))
    monkeypatch.setattr(clustering_module, "_CPU_BATCH_BYTES", 12 * 12 * 30 * 30)
    found = cluster_keys(keys, sample.values, replace(SETTINGS, family_bound=400))
    assert max(asked) == 400
    assert len(asked) == 17 + 1, "small families in batches of twelve, and a large one"
    assert found.labels.tolist() == cluster_keys(*sample, replace(SETTINGS, family_bound=400)).labels.tolist()


def test_keys_that_are_not_finite_are_noise(sample: Sample) -> None:
    broken = sample.keys.gather(np.arange(sample.keys.size)).copy()
    places = np.flatnonzero(np.isin(sample.values, [3, 6, 20]))[::17]
    broken[places, 3] = np.inf
    labels = cluster_keys(ArrayKeys(broken), sample.values, replace(SETTINGS, family_bound=10**6)).labels
    assert set(labels[places].tolist()) == {NOISE}
    assert labels.max() > 10


def test_nothing_to_cluster(tmp_path: Path) -> None:
    empty = cluster_keys(*draw_families({}), workspace=tmp_path)
    assert empty.labels.tolist() == []
    assert empty.report["clusters"] == 0
    tiny = cluster_keys(*draw_families({1: 2, 2: 1}), workspace=tmp_path)
    assert sorted(tiny.labels.tolist()) == [0, 0, 1]


def test_arrays_of_another_memory_are_rejected(sample: Sample) -> None:
    with pytest.raises(MismatchError, match="1260 keys, but 3 values"):
        cluster_keys(sample.keys, sample.values[:3])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda_clusters_like_the_cpu(sample: Sample, expected: Clustering) -> None:
    assert cluster_keys(*sample, SETTINGS, device="cuda").labels.tolist() == expected.labels.tolist()
    derived, other = (cluster_keys(*sample, device=device) for device in ("cpu", "cuda"))
    assert other.eps == pytest.approx(derived.eps, rel=1e-12)
