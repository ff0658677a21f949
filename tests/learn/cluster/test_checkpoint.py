"""A clustering resumes from its checkpoint with the same labels, whatever interrupted or damaged it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ibidem.errors import MemoryFolderError
from ibidem.learn.cluster import Clustering, cluster_keys
from ibidem.learn.cluster import clustering as clustering_module
from ibidem.learn.cluster.checkpoint import LOG, STATE
from ibidem.retrieve import ArrayKeys

from .samples import SETTINGS, Sample

if TYPE_CHECKING:
    from pathlib import Path


class KilledError(Exception):
    """Ends a run before it is finished."""


class Killer:
    """Progress that ends the run at the n-th report of clustering, and records all reports."""

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
    """Make every family a batch of its own, so that a run can end after each."""
    monkeypatch.setattr(clustering_module, "SMALL", 0)


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("method", ["dbscan", "birch"])
def test_an_interrupted_run_resumes_with_the_same_labels(sample: Sample, tmp_path: Path, method: str) -> None:
    settings = replace(SETTINGS, eps=None, method=method)
    expected = cluster_keys(*sample, settings)
    for end in (1, 2):
        with pytest.raises(KilledError):
            cluster_keys(*sample, settings, workspace=tmp_path, progress=Killer(end))
    last = Killer(100)
    found = cluster_keys(*sample, settings, workspace=tmp_path, progress=last)
    assert len(last.reports) == 6 - 1 - 2, "finished families are not clustered again"
    assert [share for share, _ in last.reports] == sorted(share for share, _ in last.reports)
    assert last.reports[-1] == (pytest.approx(1.0), 150 + 250 + 250)
    assert found.labels.tolist() == expected.labels.tolist()
    assert found.eps == expected.eps
    assert found.report["scale"] == expected.report["scale"]
    assert cluster_keys(*sample, settings, workspace=tmp_path, progress=Killer(1)).labels.tolist() == (
        expected.labels.tolist()
    )


@pytest.mark.usefixtures("one_by_one")
def test_what_is_reported_as_finished_is_on_disk(sample: Sample, tmp_path: Path) -> None:
    """A killed process closes no files."""
    sizes: list[int] = []

    def watch(_label: str, _share: float | None, done: int, _unit: str) -> None:
        sizes.append((tmp_path / LOG).stat().st_size)
        assert sizes[-1] > 4 * done

    cluster_keys(*sample, SETTINGS, workspace=tmp_path, progress=watch)
    assert len(sizes) == 6


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("damage", ["torn", "flipped", "garbage", "twice", "state"])
def test_a_damaged_checkpoint_changes_no_label(
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
def test_a_checkpoint_of_another_clustering_is_discarded(sample: Sample, tmp_path: Path, change: str) -> None:
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


def test_a_checkpoint_that_cannot_be_written(sample: Sample, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(MemoryFolderError, match=r"checkpoint of the clustering.*run again"):
        cluster_keys(*sample, workspace=file / "below")
