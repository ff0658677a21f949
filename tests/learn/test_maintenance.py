"""Sealing the journal and rebuilding the index."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ibidem.learn import (
    ContextualSettings,
    LearnSettings,
    MemoryWriter,
    MetaKSettings,
    PruneSettings,
    TuneSettings,
    index_memory,
    learn,
    maintain,
    maintenance,
    prune_memory,
    repair_memory,
)
from ibidem.memory import Memory
from ibidem.native import native
from ibidem.retrieve import plan_digest
from ibidem.text import Corpus

if TYPE_CHECKING:
    from ibidem.model import BaseModel


@pytest.fixture
def memory(tmp_path: Path, learnt: Memory) -> Path:
    """A copy of the learnt memory that may be changed."""
    return Path(shutil.copytree(learnt.path, tmp_path / "memory"))


def test_journals_are_sealed_and_indexes_rebuilt_when_due(
    tiny: BaseModel, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = MemoryWriter(memory, tiny)
    generation = writer.memory.generation
    writer.add_pair("Eins", "One")
    assert writer.maintain().generation == generation  # nothing is due
    monkeypatch.setattr(maintenance, "SEAL_BYTES", 100)
    with writer.memory.writing():
        assert writer.maintain().generation == generation  # another writer holds the lock
    sealed = writer.maintain()
    assert (sealed.generation, bool(sealed.tail)) == (generation + 1, False)
    assert sealed.fitted_entries < sealed.entries
    monkeypatch.setattr(maintenance, "EXACT_BELOW", 2)
    monkeypatch.setattr(maintenance, "MERGE_SHARE", 10**9)
    merged = writer.maintain()
    assert merged.generation == generation + 2
    assert merged.fitted_entries == merged.entries
    assert maintain(merged, tiny.device).generation == generation + 2
    monkeypatch.setattr(maintenance, "SEAL_REMOVED", 0)
    monkeypatch.setattr(maintenance, "SEAL_BYTES", 10**9)
    writer.remove([0])
    assert not writer.maintain().tail


def test_damaged_index_and_combiners_are_mended(tiny: BaseModel, memory: Path) -> None:
    from ibidem.decode import Translator

    before, _ = index_memory(Memory.open(memory), "IVF4,SQ8;nprobe=4")
    text = next(before.sentences()).source
    for name in ("index", "combiner_contextual"):
        file = memory / "artefacts" / before.manifest.artefacts[name].file
        file.write_bytes(file.read_bytes()[:-1])
    done = repair_memory(memory)
    assert {row.file.partition("-")[0] for row in done.mended} == {"artefacts/index", "artefacts/combiner_contextual"}
    assert (done.lost, done.left) == ([], [])
    after = Memory.open(memory)
    assert after.verify() == []
    assert after.artefact("index") is not None
    assert after.artefact("combiner_contextual") is None
    assert after.manifest.stages["index"]["setting"] == "IVF4,SQ8;nprobe=4"
    assert list(after.sentences()) == list(before.sentences())
    assert Translator(tiny, after).translate([text])


def test_a_divided_index_is_repaired_and_not_merged(
    tiny: BaseModel, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes serve its parts: a new plan in the background would leave them behind."""
    before, _ = index_memory(Memory.open(memory), "auto" if native() is None else "native", shards=2)
    name = "index_plan" if native() is None else "index_part_2"
    file = memory / "artefacts" / before.manifest.artefacts[name].file
    file.write_bytes(file.read_bytes()[:-1])
    done = repair_memory(memory)
    assert {row.file.partition("-")[0] for row in done.mended} == {f"artefacts/{name}"}
    assert (done.lost, done.left) == ([], [])
    after = Memory.open(memory)
    assert after.verify() == []
    assert after.manifest.stages["index"] == before.manifest.stages["index"]
    assert plan_digest(after) == plan_digest(before)
    monkeypatch.setattr(maintenance, "EXACT_BELOW", 2)
    monkeypatch.setattr(maintenance, "MERGE_SHARE", 10**9)
    monkeypatch.setattr(maintenance, "SEAL_BYTES", 100)
    writer = MemoryWriter(memory, tiny)
    writer.add_pair("Eins", "One")
    sealed = writer.maintain()
    assert not sealed.tail
    assert plan_digest(sealed) == plan_digest(before)


def test_learning_divides_the_index(tiny: BaseModel, corpus_file: Path, tmp_path: Path) -> None:
    settings = LearnSettings(
        index="exact",
        index_shards=2,
        tune=TuneSettings(metak=MetaKSettings(updates=2), contextual=ContextualSettings(updates=2)),
    )
    made = learn(tiny, Corpus([corpus_file]), tmp_path / "made", settings=settings)
    assert made.manifest.stages["index"]["shards"] == 2
    left = made.path / "work" / "index-0123456789abcdef"  # by a process that was killed after its last commit
    left.mkdir(parents=True)
    imported = left.with_name("import-0123456789abcdef")
    imported.mkdir()
    again = learn(tiny, Corpus([corpus_file]), tmp_path / "made", settings=settings)
    assert again.generation == made.generation, "nothing is done twice"
    assert (left.exists(), imported.exists()) == (False, True)
    pruned = prune_memory(made, PruneSettings(rate=0.3))
    assert plan_digest(pruned) is None
    assert not [name for name in pruned.manifest.artefacts if name.startswith("index")]
