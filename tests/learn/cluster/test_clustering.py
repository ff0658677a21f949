"""Clustering of whole memories: what every label is, and that no circumstance of the work changes it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from ibidem.errors import MemoryFolderError, MismatchError
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
from ibidem.learn.cluster.journal import LOG, STATE
from ibidem.retrieve import ArrayKeys

from .samples import Sample, draw_families

if TYPE_CHECKING:
    from pathlib import Path

SIZES = {3: 150, 5: 4, 6: 40, 9: 1, 11: 700, 12: 60, 20: 300, 21: 5}
SETTINGS = ClusterSettings(eps=2.6, family_bound=250)


@pytest.fixture(scope="module")
def sample() -> Sample:
    return draw_families(SIZES)


@pytest.fixture(scope="module")
def expected(sample: Sample) -> Clustering:
    return cluster_keys(*sample, SETTINGS)


def test_every_label_by_its_definition(sample: Sample) -> None:
    """Family by family, with the plain DBSCAN of its sample, numbered on from the family before."""
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


def test_small_families_are_one_cluster_and_without_a_method_all_are(sample: Sample) -> None:
    labels = cluster_keys(*sample, replace(SETTINGS, eps=1e-6)).labels
    assert len(set(labels[sample.values == 5].tolist())) == len(set(labels[sample.values == 9].tolist())) == 1
    assert set(labels[sample.values == 21].tolist()) == {NOISE}
    whole = cluster_keys(*sample, ClusterSettings(method="none", family_bound=10), excluded=[12])
    numbers = {value: number for number, value in enumerate(value for value in SIZES if value != 12)}
    assert whole.labels.tolist() == [numbers.get(value, EXCLUDED) for value in sample.values.tolist()]
    assert whole.eps is None
    assert whole.report["clusters"] == 7


def test_the_work_may_be_cut_in_any_way(sample: Sample, expected: Clustering, monkeypatch: pytest.MonkeyPatch) -> None:
    for small, room in ((0, 1 << 30), (10_000, 1), (10_000, 1 << 30), (100, 100_000)):
        monkeypatch.setattr(clustering_module, "SMALL", small)
        monkeypatch.setattr(clustering_module, "_CPU_BATCH_BYTES", room)
        assert cluster_keys(*sample, SETTINGS).labels.tolist() == expected.labels.tolist()


def test_no_more_than_a_batch_of_keys_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Watched(ArrayKeys):
        def gather(self, ids: np.ndarray) -> np.ndarray:
            asked.append(len(ids))
            assert (np.diff(ids) > 0).all(), "read in the order in which they lie"
            return super().gather(ids)

    sample = draw_families(dict.fromkeys(range(200), 30) | {500: 900})
    keys = Watched(sample.keys.gather(np.arange(sample.keys.size)))
    monkeypatch.setattr(clustering_module, "_CPU_BATCH_BYTES", 12 * 12 * 30 * 30)
    found = cluster_keys(keys, sample.values, replace(SETTINGS, family_bound=400))
    assert max(asked) == 400
    assert len(asked) == 17 + 1, "small families twelve at once, and a large one"
    assert found.labels.tolist() == cluster_keys(*sample, replace(SETTINGS, family_bound=400)).labels.tolist()


class KilledError(Exception):
    """What ends a run part-way."""


class Killer:
    """Progress that ends the run at the n-th report of clustering, and remembers them all."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.reports: list[tuple[float | None, int]] = []

    def __call__(self, label: str, share: float | None, done: int, unit: str) -> None:
        assert unit in ("entries", "families")
        if label == "Clustering":
            self.reports.append((share, done))
            if len(self.reports) == self.at:
                raise KilledError


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every family a batch of its own, so that a run can end after each."""
    monkeypatch.setattr(clustering_module, "SMALL", 0)


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("method", ["dbscan", "birch"])
def test_a_killed_run_goes_on_and_gives_the_same(sample: Sample, tmp_path: Path, method: str) -> None:
    settings = replace(SETTINGS, eps=None, method=method)
    expected = cluster_keys(*sample, settings)
    for end in (1, 2):
        with pytest.raises(KilledError):
            cluster_keys(*sample, settings, workspace=tmp_path, progress=Killer(end))
    last = Killer(100)
    found = cluster_keys(*sample, settings, workspace=tmp_path, progress=last)
    assert len(last.reports) == 6 - 1 - 2, "families that were done are not done again"
    assert [share for share, _ in last.reports] == sorted(share for share, _ in last.reports)
    assert last.reports[-1] == (pytest.approx(1.0), 150 + 250 + 250)
    assert found.labels.tolist() == expected.labels.tolist()
    assert found.eps == expected.eps
    assert found.report["scale"] == expected.report["scale"]
    assert cluster_keys(*sample, settings, workspace=tmp_path, progress=Killer(1)).labels.tolist() == (
        expected.labels.tolist()
    )


@pytest.mark.usefixtures("one_by_one")
def test_what_is_reported_as_done_is_on_the_disk(sample: Sample, tmp_path: Path) -> None:
    """A process that is killed outright closes no files."""
    sizes: list[int] = []

    def watch(_label: str, _share: float | None, done: int, _unit: str) -> None:
        sizes.append((tmp_path / LOG).stat().st_size)
        assert sizes[-1] > 4 * done

    cluster_keys(*sample, SETTINGS, workspace=tmp_path, progress=watch)
    assert len(sizes) == 6


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("damage", ["torn", "flipped", "garbage", "twice", "state"])
def test_a_damaged_journal_costs_work_and_nothing_else(
    sample: Sample, expected: Clustering, tmp_path: Path, damage: str
) -> None:
    with pytest.raises(KilledError):
        cluster_keys(*sample, SETTINGS, workspace=tmp_path, progress=Killer(4))
    log = tmp_path / LOG
    content = bytearray(log.read_bytes())
    if damage == "torn":
        log.write_bytes(content[:-3])
    elif damage == "flipped":
        content[len(content) // 2] ^= 4
        log.write_bytes(content)
    elif damage == "garbage":
        log.write_bytes(bytes(content) + b"\xff" * 33)
    elif damage == "twice":
        log.write_bytes(bytes(content) * 2)
    else:
        (tmp_path / STATE).write_text("{")
    for _ in range(2):  # the second run reads what the first one added after the damage
        rest = Killer(100)
        found = cluster_keys(*sample, SETTINGS, workspace=tmp_path, progress=rest)
        assert found.labels.tolist() == expected.labels.tolist()
    assert rest.reports == []


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("change", ["settings", "keys", "values", "excluded"])
def test_a_workspace_of_other_work_is_discarded(sample: Sample, tmp_path: Path, change: str) -> None:
    begun = replace(SETTINGS, eps=None)
    cluster_keys(*sample, begun, workspace=tmp_path)
    keys, values, settings, excluded = *sample, begun, [20]
    if change == "settings":
        settings, excluded = replace(SETTINGS, eps=1.5), []
    elif change == "keys":
        keys, excluded = ArrayKeys(keys.gather(np.arange(keys.size)[::-1])), []
    elif change == "values":
        values, excluded = values[::-1].copy(), []
    fresh = cluster_keys(keys, values, settings, excluded=excluded)
    found = cluster_keys(keys, values, settings, excluded=excluded, workspace=tmp_path)
    assert found.labels.tolist() == fresh.labels.tolist()
    assert found.eps == fresh.eps
    assert found.labels.tolist() != cluster_keys(*sample, begun).labels.tolist()


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


def test_errors(sample: Sample, tmp_path: Path) -> None:
    with pytest.raises(MismatchError, match="1260 keys, but 3 values"):
        cluster_keys(sample.keys, sample.values[:3])
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(MemoryFolderError, match=r"journal.*run again"):
        cluster_keys(*sample, workspace=file / "below")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda_clusters_like_the_cpu(sample: Sample, expected: Clustering) -> None:
    assert cluster_keys(*sample, SETTINGS, device="cuda").labels.tolist() == expected.labels.tolist()
    derived, other = (cluster_keys(*sample, device=device) for device in ("cpu", "cuda"))
    assert other.eps == pytest.approx(derived.eps, rel=1e-12)
