"""Training: every row of the paper's ablation learns, and seeds, resumed runs and key sources give equal weights."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from ibidem.compact import Compactor, compact_keys, store_compactor
from ibidem.errors import MemoryFolderError, UsageError
from ibidem.learn.compact import (
    CompactSettings,
    TrainedCompactor,
    parse_objectives,
    train_network,
    train_pca,
)
from ibidem.learn.compact.trainer import FILE
from ibidem.learn.compact.triplets import Clusters
from ibidem.retrieve import ArrayKeys

from .samples import Clustered, clustered, purity, quick

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.progress import Progress


@pytest.fixture(scope="module")
def sample() -> Clustered:
    return clustered()


def train(sample: Clustered, settings: CompactSettings, **options: object) -> TrainedCompactor:
    return train_network(sample.keys, sample.values, sample.labels, 24, settings, **options)  # type: ignore[arg-type]


def compacted(compactor: Compactor, sample: Clustered) -> np.ndarray:
    return np.concatenate(list(compact_keys(compactor, sample.keys)))


# The rows of the paper's table of feature reduction, and both readings of each objective.
ABLATION = [
    ("dynamic", "ranking", False),
    ("dynamic", "prediction", False),
    ("dynamic", "nce", False),
    ("dynamic", "nce+ranking", False),
    ("dynamic", "nce+prediction", False),
    ("dynamic", "nce", True),
    ("static", "nce", True),
    ("static", "nce+ranking", True),
    ("static", "nce+prediction", True),
]


@pytest.mark.parametrize(("nce", "ranking"), [("in_batch", "paper"), ("binary", "clipped")])
@pytest.mark.parametrize(("pivots", "objectives", "clusters"), ABLATION)
def test_every_row_of_the_ablation_learns(
    sample: Clustered, pivots: str, objectives: str, clusters: bool, nce: str, ranking: str
) -> None:
    settings = quick(
        pivots=pivots,
        objectives=parse_objectives(objectives),
        clusters=clusters,
        nce=nce,
        ranking=ranking,
        activation="sigmoid" if nce == "binary" else "tanh",
        negatives="cluster" if nce == "binary" else "family",
        updates=40,
        validate_every=20,
    )
    trained = train(sample, settings)
    history = trained.report["history"]
    assert isinstance(history, list)
    assert [update for update, _ in history] == [0, 20, 40]
    losses = [loss for _, loss in history]
    assert trained.report["loss"] == min(losses)
    if (nce, objectives) == ("binary", "nce"):
        # The least that a linear f_theta can reach, wherever it starts: see `BinaryNceLoss`.
        assert losses[-1] == pytest.approx(2 * math.log(2), abs=0.03)
    else:
        assert min(losses[1:]) < losses[0] - 0.01
    assert trained.compactor.dimension == 6


@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
def test_the_network_separates_tokens_that_pca_does_not(activation: str) -> None:
    """Nearest neighbours of unseen entries share their token more often than in the keys and after PCA."""
    sample, fresh = clustered(members=30), clustered(members=30, seed=1)
    before = purity(fresh.array, fresh.values)
    baseline = purity(compacted(train_pca(sample.keys, 6).compactor, fresh), fresh.values)
    trained = train(sample, quick(activation=activation, updates=300, learning_rate=0.01))
    found = purity(compacted(trained.compactor, fresh), fresh.values)
    assert found > 0.7
    assert found > max(before, baseline) + 0.5


def test_the_same_seed_gives_the_same_bytes_and_keeps_the_global_generator(sample: Clustered) -> None:
    before = torch.get_rng_state()
    first = train(sample, quick())
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    again, other = train(sample, quick()), train(sample, quick(seed=1))
    assert store_compactor(first.compactor) == store_compactor(again.compactor)
    assert store_compactor(first.compactor) != store_compactor(other.compactor)
    assert {**first.report, "seconds": 0} == {**again.report, "seconds": 0}


@pytest.mark.parametrize("pivots", ["static", "dynamic"])
def test_resident_and_streamed_keys_give_the_same_bytes(sample: Clustered, pivots: str) -> None:
    held, streamed = (train(sample, quick(pivots=pivots), resident_bytes=room) for room in (1 << 30, 0))
    assert store_compactor(held.compactor) == store_compactor(streamed.compactor)


class KilledError(Exception):
    pass


def kill_at(update: int) -> Progress:
    def watch(_label: str, _share: float | None, done: int, unit: str) -> None:
        if unit == "updates" and done >= update:
            raise KilledError

    return watch


@pytest.mark.parametrize(("objectives", "late"), [("nce", 200), ("nce+prediction", 240)])
def test_an_interrupted_run_resumes_to_the_same_bytes(
    sample: Clustered, objectives: str, late: int, tmp_path: Path
) -> None:
    """Interrupted twice, the second time with part of its patience used, before the learning rate falls."""
    settings = quick(objectives=parse_objectives(objectives), updates=400, learning_rate=0.03, patience=8)
    whole = train(sample, settings)
    best, end, rate = (whole.report[name] for name in ("best_update", "updates", "learning_rate"))
    assert best + 10 < late < end < 400, "its patience is not tested"
    assert rate == 0.015, "the fall of its learning rate is not tested"
    seen: list[int] = []

    def watch(_label: str, _share: float | None, done: int, unit: str) -> None:
        if unit == "updates":
            seen.append(done)

    for update in (20, late):
        with pytest.raises(KilledError):
            train(sample, settings, workspace=tmp_path / "work", progress=kill_at(update))
    resumed = train(sample, settings, workspace=tmp_path / "work", progress=watch)
    assert seen[0] == late, "it should resume from the last validation"
    assert store_compactor(resumed.compactor) == store_compactor(whole.compactor)
    assert {**resumed.report, "seconds": 0} == {**whole.report, "seconds": 0}
    # A finished run is not repeated.
    seen.clear()
    done = train(sample, settings, workspace=tmp_path / "work", progress=watch)
    assert not seen
    assert store_compactor(done.compactor) == store_compactor(whole.compactor)
    assert [file.name for file in (tmp_path / "work").iterdir()] == [FILE]


def test_the_checkpoint_of_another_run_is_ignored(sample: Clustered, tmp_path: Path) -> None:
    settings = quick(updates=40)
    train(sample, replace(settings, learning_rate=0.1), workspace=tmp_path)
    clean = store_compactor(train(sample, settings).compactor)
    assert store_compactor(train(sample, settings, workspace=tmp_path).compactor) == clean
    others = clustered(seed=3)
    clean = store_compactor(train(others, settings).compactor)
    assert store_compactor(train(others, settings, workspace=tmp_path).compactor) == clean
    for junk in (b"", b"junk", (tmp_path / FILE).read_bytes()[:-100]):
        (tmp_path / FILE).write_bytes(junk)
        assert store_compactor(train(others, settings, workspace=tmp_path).compactor) == clean


def test_the_best_weights_are_a_copy(sample: Clustered) -> None:
    """A run that continues past its lowest loss returns the weights of that loss, and stops after its patience."""
    wild = quick(learning_rate=0.03, updates=400, patience=4)
    long = train(sample, wild)
    best, updates = long.report["best_update"], long.report["updates"]
    assert isinstance(best, int)
    assert 0 < best == updates - 40 < 360, "the last weights were the best: the test shows nothing"
    stopped = train(sample, replace(wild, updates=best))
    assert store_compactor(stopped.compactor) == store_compactor(long.compactor)
    assert not long.compactor(torch.zeros(1, 40)).requires_grad


def test_the_learning_rate_falls_to_its_minimum(sample: Clustered) -> None:
    trained = train(sample, quick(updates=400, patience=1000, learning_rate=0.2, final_learning_rate=0.08))
    assert trained.report["learning_rate"] == pytest.approx(0.08)


def test_gradients_are_clipped(sample: Clustered) -> None:
    """Adam cancels a common scale of the gradients, unless it is as small as its epsilon."""
    clipped, free = (train(sample, quick(clip=clip)) for clip in (1e-8, 1e8))
    assert abs(clipped.report["loss"] - free.report["loss"]) > 0.1  # type: ignore[operator]


def test_held_out_members_are_not_trained_on(sample: Clustered) -> None:
    """Moving a held-out entry changes the validation loss and no weight; moving any other changes the weights."""
    settings = quick(updates=200, validate_every=200, held_out=0.3, batch=48)
    clusters = Clusters.of(sample.values, sample.labels, held_out=0.3, seed=settings.seed)
    taking, numbers = clusters.clustered(), clusters.training_labels()
    trained = train(sample, settings)
    assert trained.report["best_update"] == 200
    assert trained.report["entries"] == taking.sum()
    assert trained.report["entries_held_out"] == (taking & (numbers < 0)).sum() > 100
    for moved, alike in ((np.flatnonzero(taking & (numbers < 0)), True), (np.flatnonzero(numbers >= 0)[:1], False)):
        array = sample.array.copy()
        array[moved] *= 1.1
        other = train(Clustered(ArrayKeys(array), sample.values, sample.labels), settings)
        assert (store_compactor(other.compactor) == store_compactor(trained.compactor)) is alike
        assert other.report["best_update"] == 200
        assert other.report["loss"] != trained.report["loss"]


def test_without_held_out_members_training_members_validate(sample: Clustered) -> None:
    trained = train(sample, quick(held_out=0.0))
    assert trained.report["entries_held_out"] == 0
    assert trained.report["loss"] < 4


def test_a_share_of_the_entries(sample: Clustered) -> None:
    some = train(sample, quick(share=0.5))
    assert some.report["entries"] == pytest.approx((sample.labels >= 0).sum() / 2, rel=0.15)
    assert store_compactor(some.compactor) != store_compactor(train(sample, quick()).compactor)


def test_noise_and_excluded_entries_change_nothing(sample: Clustered) -> None:
    array = sample.array.copy()
    array[sample.labels < 0] = 77
    moved = Clustered(ArrayKeys(array), sample.values, sample.labels)
    assert store_compactor(train(moved, quick()).compactor) == store_compactor(train(sample, quick()).compactor)


def test_compact_keys_stay_far_below_the_range_of_float16(sample: Clustered) -> None:
    """Dot products have no temperature, so compact keys grow; they stay far below the range of float16."""
    trained = train(sample, quick(updates=400, patience=1000))
    largest = trained.report["largest"]
    assert isinstance(largest, float)
    assert np.abs(compacted(trained.compactor, sample)).max() < 100
    assert 0.1 < largest < 100


def test_a_run_that_diverges_is_reported(sample: Clustered) -> None:
    array = sample.array.copy()
    array[:, 0] = 60000
    broken = Clustered(ArrayKeys(array), sample.values, sample.labels)
    with pytest.raises(UsageError, match=r"diverged: at update .*Lower the learning rate"):
        train(broken, quick(learning_rate=1e30, clip=1e30))


def test_keys_that_are_not_finite_are_rejected(sample: Clustered) -> None:
    array = sample.array.copy()
    array[sample.labels >= 0, 3] = np.nan
    with pytest.raises(MemoryFolderError, match="ibidem verify"):
        train(Clustered(ArrayKeys(array), sample.values, sample.labels), quick())


def test_training_on_clusters_needs_their_labels(sample: Clustered) -> None:
    with pytest.raises(UsageError, match="cluster the memory first, or train without clusters"):
        train_network(sample.keys, sample.values, None, 24, quick())
    assert train_network(sample.keys, sample.values, None, 24, quick(clusters=False)).report["clusters"] == 24


@pytest.mark.gpu
def test_a_cuda_device_gives_the_same_bytes_from_every_source(sample: Clustered) -> None:
    held, streamed = (train(sample, quick(updates=300), device="cuda", resident_bytes=room) for room in (1 << 30, 0))
    assert store_compactor(held.compactor) == store_compactor(streamed.compactor)
    here = compacted(held.compactor, sample)
    there = np.concatenate(list(compact_keys(held.compactor, sample.keys, device="cuda")))
    np.testing.assert_allclose(here, there, rtol=2e-3, atol=2e-3)
    baseline = train_pca(sample.keys, 6, device="cuda").compactor
    assert purity(here, sample.values) > purity(compacted(baseline.to("cpu"), sample), sample.values) + 0.3
