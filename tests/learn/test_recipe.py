"""The whole recipe on the tiny model: results of the stages, changed settings, interruptions."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from ibidem.decode import Translator
from ibidem.errors import MismatchError, UsageError
from ibidem.learn import (
    CompactSettings,
    ContextualSettings,
    LearnSettings,
    MetaKSettings,
    PruneSettings,
    TuneSettings,
    compact_memory,
    extract,
    index_memory,
    learn,
    maintenance,
    prune_memory,
    restore_memory,
    tune,
    tuning,
)
from ibidem.memory import Layout, Memory
from ibidem.retrieve import CompactedIndex, compactor_of, open_index
from ibidem.text import Corpus

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.model import BaseModel

TUNE = TuneSettings(
    k=4,
    metak=MetaKSettings(updates=20, validate_every=10, validation="same"),
    contextual=ContextualSettings(updates=20),
)
COMPACT = CompactSettings(dimension=6, batch=16, updates=40, validate_every=20, seed=3)
PRUNE = PruneSettings(rate=0.3, seed=3)
WHOLE = LearnSettings(compact=COMPACT, tune=TUNE, prune=PRUNE, index="Flat")


class Killed(Exception):  # noqa: N818 (not an error)
    pass


def run(model: BaseModel, corpus: Path, path: Path, settings: LearnSettings, **others: Any) -> Memory:
    memory = learn(model, Corpus([corpus]), path, seed=1, settings=settings, **others)
    assert memory.verify() == []
    return memory


def timeless(memory: Memory) -> dict[str, Any]:
    """Return the notes of all stages without durations."""
    return {name: {k: v for k, v in notes.items() if k != "seconds"} for name, notes in memory.manifest.stages.items()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny: BaseModel, corpus_file: Path) -> Memory:
    return run(tiny, corpus_file, tmp_path_factory.mktemp("recipe") / "memory", WHOLE)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory, sentences: list[Any]) -> Path:
    """The first sixty sentences as a TSV."""
    file = tmp_path_factory.mktemp("few") / "few.tsv"
    file.write_text("".join(f"{s.german}\t{s.english}\n" for s in sentences[:60]), encoding="utf-8")
    return file


@pytest.fixture
def memory(tmp_path: Path, finished: Memory) -> Memory:
    """A copy of the finished memory that may be changed."""
    return Memory.open(shutil.copytree(finished.path, tmp_path / "memory"))


def test_every_stage_leaves_its_result(finished: Memory, tiny: BaseModel) -> None:
    assert list(finished.manifest.stages) == ["extract", "cluster", "compact", "tune", "prune", "index"]
    assert finished.layout == Layout(keys=False, compact=6, clusters=True)
    combiners = {"combiner_fixed", "combiner_adaptive", "combiner_contextual"}
    assert set(finished.manifest.artefacts) == {"compactor", "index", "source_projection", *combiners}
    stage = finished.manifest.stages["prune"]
    assert finished.entries == stage["entries"] < finished.tokens == stage["entries_before"]
    assert abs(stage["achieved"] - 0.3) < 0.005
    assert isinstance(open_index(finished, None, tiny.device), CompactedIndex)
    card = (finished.path / "README.md").read_text("utf-8")
    assert f"{finished.entries:,} of {finished.tokens:,} target tokens" in card
    assert "6 dimensions, compacted from 32" in card
    assert "## prune" in card


def test_queries_pass_the_compactor(finished: Memory, tiny: BaseModel) -> None:
    """The neighbours are those of the compacted states among the compact keys, by brute force in float64."""
    states = torch.randn(7, tiny.dimension, generator=torch.Generator().manual_seed(1))
    found = open_index(finished, None, tiny.device).search(states, 5)
    compactor = compactor_of(finished)
    assert compactor is not None
    keys = torch.from_numpy(finished.search_keys.read(0, finished.entries).astype(np.float64))
    with torch.no_grad():
        true = torch.cdist(compactor(states).double(), keys).square().sort(dim=1).values[:, :5]
    np.testing.assert_allclose(found.distances.double(), true, rtol=1e-4)


def test_a_pruned_compact_memory_translates(finished: Memory, tiny: BaseModel, sentences: list[Any]) -> None:
    texts = [sentence.german for sentence in sentences[:6]]
    assert len(Translator(tiny, finished).translate(texts)) == 6
    assert Translator(tiny, finished).translate(texts) != Translator(tiny).translate(texts)


def test_completed_stages_are_not_repeated(memory: Memory, tiny: BaseModel, corpus_file: Path) -> None:
    assert run(tiny, corpus_file, memory.path, WHOLE).generation == memory.generation


def test_another_rate_redoes_pruning_and_index_only(memory: Memory, tiny: BaseModel, corpus_file: Path) -> None:
    settings = replace(WHOLE, prune=replace(PRUNE, rate=0.6))
    changed = run(tiny, corpus_file, memory.path, settings)
    before, after = timeless(memory), timeless(changed)
    assert [name for name in after if after[name] != before.get(name)] == ["prune", "index"]
    assert changed.manifest.stages["prune"]["entries_before"] == memory.tokens
    assert abs(changed.entries / memory.tokens - 0.4) < 0.005


def test_a_rate_of_zero_restores_all_entries(memory: Memory, tiny: BaseModel, corpus_file: Path) -> None:
    whole = run(tiny, corpus_file, memory.path, replace(WHOLE, prune=PruneSettings(rate=0.0)))
    assert whole.entries == whole.tokens == memory.tokens
    assert "prune" not in whole.manifest.stages


def test_another_combiner_is_tuned_on_the_whole_memory(memory: Memory, tiny: BaseModel, corpus_file: Path) -> None:
    settings = replace(WHOLE, tune=replace(TUNE, k=2))
    changed = run(tiny, corpus_file, memory.path, settings)
    assert f"{memory.tokens} keys" in changed.manifest.stages["tune"]["index"]
    assert changed.entries == memory.entries
    np.testing.assert_array_equal(changed.rows(), memory.rows())


def test_tuning_after_pruning(tmp_path: Path, tiny: BaseModel, corpus_file: Path) -> None:
    memory = run(tiny, corpus_file, tmp_path / "memory", replace(WHOLE, tuned_on="pruned"))
    assert f"{memory.entries} keys" in memory.manifest.stages["tune"]["index"]
    assert run(tiny, corpus_file, memory.path, replace(WHOLE, tuned_on="pruned")).generation == memory.generation
    with pytest.raises(UsageError, match="unpruned, pruned"):
        replace(WHOLE, tuned_on="other")


def test_dropped_keys_cannot_be_compacted_again(memory: Memory, tiny: BaseModel, corpus_file: Path) -> None:
    settings = replace(WHOLE, compact=replace(COMPACT, dimension=3))
    with pytest.raises(UsageError, match="keep_keys=true"):
        learn(tiny, Corpus([corpus_file]), memory.path, seed=1, settings=settings)


def test_kept_keys_are_compacted_again_with_the_same_clusters(
    tmp_path: Path, tiny: BaseModel, corpus_file: Path
) -> None:
    settings = replace(WHOLE, keep_keys=True)
    memory = run(tiny, corpus_file, tmp_path / "memory", settings)
    assert memory.layout.keys
    changed = run(tiny, corpus_file, memory.path, replace(settings, compact=replace(COMPACT, dimension=3)))
    assert changed.dimension == 3
    assert changed.manifest.stages["cluster"] == memory.manifest.stages["cluster"]
    plain = run(tiny, corpus_file, memory.path, LearnSettings(tune=TUNE, index="Flat"))
    assert plain.layout.compact is None
    assert "compactor" not in plain.manifest.artefacts
    assert plain.entries == plain.tokens


@pytest.mark.parametrize("label", ["Clustering", "Training the compactor", "Compacting keys", "Training Meta-k"])
def test_killed_in_any_stage_it_continues(
    tmp_path: Path, finished: Memory, tiny: BaseModel, corpus_file: Path, label: str
) -> None:
    def kill(found: str, _share: float | None, _done: float, _unit: str) -> None:
        if found == label:
            raise Killed

    with pytest.raises(Killed):
        learn(tiny, Corpus([corpus_file]), tmp_path / "memory", seed=1, settings=WHOLE, progress=kill)
    memory = run(tiny, corpus_file, tmp_path / "memory", WHOLE)
    assert timeless(memory) == timeless(finished)
    np.testing.assert_array_equal(memory.rows(), finished.rows())
    np.testing.assert_array_equal(
        memory.search_keys.read(0, memory.entries), finished.search_keys.read(0, finished.entries)
    )
    assert not list((memory.path / "work").iterdir())


def test_a_compactor_of_another_memory(tmp_path: Path, finished: Memory, tiny: BaseModel, corpus_file: Path) -> None:
    """The paper's G-CKMT*: trained on one memory, applied to another of the same base model."""
    artefact = finished.artefact("compactor")
    assert artefact is not None
    settings = LearnSettings(compactor=artefact.path, tune=TUNE, index="Flat")
    file = tmp_path / "few.tsv"
    file.write_text("".join(corpus_file.read_text("utf-8").splitlines(keepends=True)[:20]), encoding="utf-8")
    memory = run(tiny, file, tmp_path / "memory", settings)
    assert memory.layout == Layout(keys=False, compact=6)
    again = run(tiny, file, tmp_path / "memory", settings)
    assert again.generation == memory.generation
    kept = run(tiny, file, tmp_path / "kept", replace(settings, keep_keys=True))
    assert kept.layout == Layout(keys=True, compact=6)
    assert timeless(kept)["compact"] == timeless(memory)["compact"]
    assert "cluster" not in memory.manifest.stages
    assert memory.manifest.stages["compact"]["given"] == artefact.path.name
    taken = memory.artefact("compactor")
    assert taken is not None
    assert taken.path.read_bytes() == artefact.path.read_bytes()


def test_a_compactor_of_another_model_is_refused(
    tmp_path: Path, finished: Memory, tiny_folder: Path, corpus_file: Path
) -> None:
    from ibidem.model import load_model

    other = load_model(tiny_folder, device="cpu")
    with torch.no_grad():
        other.projection.weight[5, 5] += 1e-3
    artefact = finished.artefact("compactor")
    assert artefact is not None
    with pytest.raises(MismatchError, match="trained for another base model"):
        run(other, corpus_file, tmp_path / "memory", LearnSettings(compactor=artefact.path, tune=TUNE))


@pytest.mark.parametrize("method", ["pca", "svd"])
def test_pca_and_svd(tmp_path: Path, tiny: BaseModel, corpus_file: Path, method: str) -> None:
    settings = LearnSettings(compact=CompactSettings(method=method, dimension=5), tune=TUNE, index="exact")
    memory = run(tiny, corpus_file, tmp_path / "memory", settings)
    assert memory.layout == Layout(keys=False, compact=5, clusters=False)
    assert memory.artefact("compactor") is not None


def test_the_strategy_covered_depends_on_tuning(tmp_path: Path, tiny: BaseModel, corpus_file: Path) -> None:
    redundant = replace(WHOLE, prune=PruneSettings(strategy="redundant", rate=0.3, seed=3))
    memory = run(tiny, corpus_file, tmp_path / "memory", redundant)
    assert memory.manifest.stages["prune"]["achieved"] == pytest.approx(0.3, abs=0.005)
    assert run(tiny, corpus_file, memory.path, redundant).generation == memory.generation
    other = run(tiny, corpus_file, memory.path, replace(redundant, tune=replace(TUNE, k=2)))
    assert other.generation > memory.generation
    assert other.entries == memory.entries
    with pytest.raises(UsageError, match="unpruned memory first"):
        replace(redundant, tuned_on="pruned")
    untuned = extract(tiny, Corpus([corpus_file]), tmp_path / "untuned")
    with pytest.raises(UsageError, match="ibidem tune"):
        prune_memory(untuned, redundant.prune)


def test_same_seed_same_bytes(tmp_path: Path, finished: Memory, tiny: BaseModel, corpus_file: Path) -> None:
    memory = run(tiny, corpus_file, tmp_path / "memory", WHOLE)
    for name in ("compactor", "combiner_fixed", "combiner_adaptive", "combiner_contextual", "index"):
        ours, theirs = memory.artefact(name), finished.artefact(name)
        assert ours is not None
        assert theirs is not None
        assert ours.path.read_bytes() == theirs.path.read_bytes()
    assert [record.sha256 for record in memory.manifest.segments] == [
        record.sha256 for record in finished.manifest.segments
    ]
    other = replace(WHOLE, prune=replace(PRUNE, seed=4))
    assert not np.array_equal(run(tiny, corpus_file, memory.path, other).rows(), finished.rows())


def test_an_unclustered_memory_is_refused(learnt: Memory, tmp_path: Path) -> None:
    memory = Memory.open(shutil.copytree(learnt.path, tmp_path / "memory"))
    with pytest.raises(UsageError, match="ibidem cluster"):
        compact_memory(memory, COMPACT)
    with pytest.raises(UsageError, match="ibidem cluster"):
        prune_memory(memory, PruneSettings(strategy="spatial"))
    with pytest.raises(UsageError, match="trains no compactor"):
        compact_memory(memory, CompactSettings(method="none"))
    assert memory.refresh().generation == memory.generation


def test_extraction_notes_the_special_tokens(tmp_path: Path, tiny: BaseModel, corpus_file: Path) -> None:
    memory = extract(tiny, Corpus([corpus_file]), tmp_path / "memory")
    assert memory.manifest.stages["extract"]["special_tokens"] == [1, 2]


@pytest.mark.parametrize("rate", [1e-5, 0.3])
def test_learning_again_changes_nothing(tmp_path: Path, tiny: BaseModel, corpus_file: Path, rate: float) -> None:
    pruning = LearnSettings(tune=TUNE, prune=replace(PRUNE, rate=rate), index="Flat")
    for settings in (pruning, replace(pruning, tune=replace(TUNE, k=2)), replace(pruning, prune=PruneSettings(rate=0))):
        memory = run(tiny, corpus_file, tmp_path / "memory", settings)
        assert run(tiny, corpus_file, tmp_path / "memory", settings).generation == memory.generation
    assert "prune" not in memory.manifest.stages


def test_a_refused_change_leaves_the_memory_as_it_was(memory: Memory, tiny: BaseModel, corpus_file: Path) -> None:
    settings = replace(WHOLE, compact=replace(COMPACT, dimension=3))
    with pytest.raises(UsageError, match="remove the folder"):
        learn(tiny, Corpus([corpus_file]), memory.path, seed=1, settings=settings)
    after = Memory.open(memory.path)
    assert (after.generation, after.entries, after.snapshots()) == (memory.generation, memory.entries, ["unpruned"])


def test_unused_settings_of_a_method_repeat_no_stage(tmp_path: Path, tiny: BaseModel, corpus_file: Path) -> None:
    settings = LearnSettings(compact=CompactSettings(method="pca", dimension=5), tune=TUNE, index="exact")
    memory = run(tiny, corpus_file, tmp_path / "memory", settings)
    other = replace(settings, compact=replace(settings.compact, learning_rate=1.0, activation="tanh"))
    assert run(tiny, corpus_file, memory.path, other).generation == memory.generation


def test_a_dev_set_is_identified_by_its_content(tmp_path: Path, tiny: BaseModel, corpus_file: Path) -> None:
    dev = tmp_path / "dev.tsv"
    lines = corpus_file.read_text("utf-8").splitlines(keepends=True)
    settings = LearnSettings(tune=TUNE, index="exact")
    generations = []
    for part in (lines[:6], lines[:6], lines[6:12]):
        dev.write_text("".join(part), encoding="utf-8")
        generations.append(run(tiny, corpus_file, tmp_path / "memory", settings, dev=Corpus([dev])).generation)
    assert generations[0] == generations[1] < generations[2]


@pytest.mark.parametrize("stage", ["index", "tune"])
def test_a_result_for_another_space_is_not_stored(
    learnt: Memory, tmp_path: Path, tiny: BaseModel, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """Another process compacts the memory while this one tunes or indexes it."""
    memory = Memory.open(shutil.copytree(learnt.path, tmp_path / "memory"))
    module, name = {"index": (maintenance, "build_index"), "tune": (tuning, "train_by_temperature")}[stage]
    work = getattr(module, name)

    def disturbed(*given: Any, **options: Any) -> Any:
        compact_memory(memory, CompactSettings(method="pca", dimension=3), keep_keys=True)
        return work(*given, **options)

    monkeypatch.setattr(module, name, disturbed)
    stages = {"index": lambda: index_memory(memory, "Flat"), "tune": lambda: tune(memory, tiny, settings=TUNE)}
    with pytest.raises(MismatchError, match="changed by another process"):
        stages[stage]()


def test_every_stage_writes_the_card(memory: Memory) -> None:
    restored = restore_memory(memory)
    assert f"{restored.tokens:,} of {restored.tokens:,} target tokens" in (memory.path / "README.md").read_text("utf-8")
    pruned = prune_memory(restored, PruneSettings(rate=0.5))
    assert f"{pruned.entries:,} of {pruned.tokens:,} target tokens" in (memory.path / "README.md").read_text("utf-8")


def test_an_invalid_compactor_is_refused_before_any_work(tmp_path: Path, tiny: BaseModel, corpus_file: Path) -> None:
    with pytest.raises(UsageError, match="cannot be opened"):
        run(tiny, corpus_file, tmp_path / "memory", LearnSettings(compactor=tmp_path / "none", tune=TUNE))
    assert not (tmp_path / "memory").exists()


def test_too_many_dimensions_are_refused(learnt: Memory, tmp_path: Path) -> None:
    memory = Memory.open(shutil.copytree(learnt.path, tmp_path / "memory"))
    with pytest.raises(UsageError, match="more than the 32"):
        compact_memory(memory, CompactSettings(dimension=10**9, clusters=False))


def test_learning_twice_does_nothing_the_second_time(tmp_path: Path, tiny: BaseModel, few: Path) -> None:
    settings = LearnSettings(
        tune=TuneSettings(
            k=2, metak=MetaKSettings(updates=5, validate_every=5), contextual=ContextualSettings(updates=5)
        )
    )
    path = tmp_path / "memory"
    first = learn(tiny, Corpus([few]), path, settings=settings)
    files = {file: file.stat().st_mtime_ns for file in path.rglob("*") if file.name != "lock"}
    second = learn(tiny, Corpus([few]), path, settings=settings)
    assert second.generation == first.generation
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*") if file.name != "lock"} == files


def test_learning_continues_after_a_completed_stage(tmp_path: Path, tiny: BaseModel, few: Path) -> None:
    settings = LearnSettings(
        tune=TuneSettings(
            k=2, metak=MetaKSettings(updates=5, validate_every=5), contextual=ContextualSettings(updates=5)
        )
    )
    extract(tiny, Corpus([few]), tmp_path / "stages", seed=3)
    staged = learn(tiny, Corpus([few]), tmp_path / "stages", seed=3, settings=settings)
    at_once = learn(tiny, Corpus([few]), tmp_path / "once", seed=3, settings=settings)
    assert list(staged.manifest.stages) == ["extract", "index", "tune"]
    assert staged.manifest.stages["tune"] == at_once.manifest.stages["tune"]


def test_invalid_tuning_is_refused_before_any_work(tmp_path: Path, tiny: BaseModel, few: Path) -> None:
    with pytest.raises(UsageError, match="--dev"):
        learn(tiny, Corpus([few]), tmp_path / "m", settings=LearnSettings(tune=TuneSettings(objective="bleu")))
    with pytest.raises(UsageError, match="not 6"):
        TuneSettings(k=6)
    assert not (tmp_path / "m").exists()
