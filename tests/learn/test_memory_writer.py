"""Adding, removing and replacing pairs, and the effect on every other stage."""

from __future__ import annotations

import contextlib
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ibidem.combine import FixedCombiner
from ibidem.decode import Translator
from ibidem.errors import LockedMemoryError, MismatchError, UsageError
from ibidem.learn import (
    ClusterSettings,
    CompactSettings,
    ContextualSettings,
    LearnSettings,
    MemoryWriter,
    MetaKSettings,
    PruneSettings,
    TuneSettings,
    cluster_memory,
    compact_memory,
    create_memory,
    extract,
    index_memory,
    learn,
    prune_memory,
    restore_memory,
    tune,
)
from ibidem.learn.extraction import identify_model
from ibidem.memory import Memory
from ibidem.model import BaseModel, load_model
from ibidem.text import Corpus, Counts, Pair

# The states of a random model lie close together: it needs a combiner with a low temperature.
CLOSE = FixedCombiner(4, 0.99, 1e-5)


@pytest.fixture
def memory(tmp_path: Path, learnt: Memory) -> Path:
    """A copy of the learnt memory that may be changed."""
    return Path(shutil.copytree(learnt.path, tmp_path / "memory"))


def spelt(model: BaseModel, text: str) -> str:
    return model.tokens.decode(model.tokens.encode_targets([text])[0])


def texts(memory: Memory) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in memory.sentences()]


def test_changes_are_used_from_the_first_pair_on(tiny: BaseModel, tmp_path: Path) -> None:
    writer = MemoryWriter(tmp_path / "new", tiny)
    translator = Translator(tiny, tmp_path / "new", combiner=CLOSE)
    bare = translator.translate(["Guten Morgen", "Gute Nacht"])
    assert bare == Translator(tiny).translate(["Guten Morgen", "Gute Nacht"])
    assert writer.add_pair(" Guten\tMorgen ", "Good morning\n") == (0, True)
    assert translator.translate(["Guten Morgen"]) == ["Good morning"]
    assert writer.add_pair("Gute Nacht", "Good night") == (1, True)
    assert translator.translate(["Guten Morgen", "Gute Nacht"]) == ["Good morning", "Good night"]
    assert writer.replace_pair("Gute Nacht", "Good night", "Sleep well") == (2, True)
    assert translator.translate(["Gute Nacht"]) == ["Sleep well"]
    assert writer.replace(0, "Top of the morning") == (3, True)
    assert translator.translate(["Guten Morgen"]) == ["Top of the morning"]
    assert writer.remove_pair("Gute Nacht", "Sleep well") == [2]
    assert writer.remove([3]) == [3]
    assert translator.translate(["Guten Morgen", "Gute Nacht"]) == bare
    assert writer.memory.active_pairs == 0


def test_a_correction_replaces_every_pair_of_its_source(tiny: BaseModel, memory: Path) -> None:
    """Sealed and added pairs of any origin are replaced; other sources stay, and so does the pair itself."""
    writer = MemoryWriter(memory, tiny)
    before = texts(writer.memory)
    sealed = before[0]
    writer.add_pair(sealed[0], "Another")
    writer.add_pair("Neu", "New")
    assert len(writer.memory.find(sealed[0])) == 2
    assert writer.memory.find(sealed[0][:-1]) == []
    (found,) = writer.correct([(f" {sealed[0]} ", "Corrected")], origin="desk")
    assert found.new
    assert [(pair.source, pair.target) for pair in found.replaced] == [sealed, (sealed[0], "Another")]
    assert writer.memory.find(sealed[0]) == [found.id]
    assert texts(writer.memory) == [*before[1:], ("Neu", "New"), (sealed[0], "Corrected")]
    assert writer.correct([(sealed[0], "Corrected")]) == [(found.id, False, [])]
    with pytest.raises(UsageError, match="target of the pair is empty"):
        writer.correct([("Neu", "Newer"), ("Leer", " ")])
    assert writer.memory.find("Neu", "New"), "all or none"
    assert Memory.open(memory).verify() == []


def test_a_pair_that_another_writer_removes_meanwhile_is_stored_again(
    tiny: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two concurrent corrections of one sentence, exactly one stays."""
    writer, other = MemoryWriter(tmp_path / "new", tiny), MemoryWriter(tmp_path / "new", tiny)
    writer.correct([("Eins", "One")])
    real = MemoryWriter._compute

    def interrupted(self: MemoryWriter, *given: Any) -> Any:
        monkeypatch.setattr(MemoryWriter, "_compute", real)
        other.correct([("Eins", "Two")])
        return real(self, *given)

    monkeypatch.setattr(MemoryWriter, "_compute", interrupted)
    (found,) = writer.correct([("Eins", "One")])
    assert found.new
    assert texts(Memory.open(tmp_path / "new")) == [("Eins", "One")]


def test_added_entries_equal_extracted_entries(tiny: BaseModel, tmp_path: Path, corpus_file: Path) -> None:
    """The same keys, values and log-probabilities, sealed or not, in the model's own space."""
    pairs = list(Corpus([corpus_file]))[:30]
    writer = MemoryWriter(tmp_path / "added", tiny)
    for pair in pairs[:10]:
        writer.add_pair(pair.source, pair.target, origin=pair.origin, location=pair.location)
    counts = Counts()
    assert [added.id for added in writer.add(pairs[5:], counts)] == list(range(5, 30))
    few = tmp_path / "few.tsv"
    few.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in pairs), "utf-8")
    extracted = extract(tiny, Corpus([few]), tmp_path / "extracted")
    for added in (writer.memory, writer.memory.sealed()):
        assert texts(added) == texts(extracted)
        np.testing.assert_array_equal(np.concatenate([added.values(), added.tail.values]), extracted.values())
        keys = np.concatenate([added.keys.read(0, added.entries), added.tail_keys()])
        expected = extracted.keys.read(0, extracted.entries)
        np.testing.assert_allclose(keys.astype(np.float32), expected.astype(np.float32), atol=2e-3, rtol=2e-3)
    np.testing.assert_allclose(added.log_probs(), extracted.log_probs(), atol=2e-5)
    assert [pair.location for pair in added.sentences()] == [pair.location for pair in pairs]
    assert added.complete


@pytest.mark.parametrize("compact", [False, True])
def test_a_pair_is_not_stored_twice(tiny: BaseModel, memory: Path, compact: bool) -> None:
    if compact:
        compact_memory(Memory.open(memory), CompactSettings(method="pca", dimension=8))
    writer = MemoryWriter(memory, tiny)
    first = next(iter(writer.memory.sentences()))
    before = writer.memory.active_pairs
    assert writer.add_pair(first.source, first.target) == (first.id, False)
    pair = Pair("Ganz neu", "Brand new", "x", 1)
    answers = writer.add([pair, Pair(first.source, first.target, "x", 2), pair])
    assert [(answer.id == first.id, answer.new) for answer in answers] == [(False, True), (True, False), (False, False)]
    assert writer.memory.active_pairs == before + 1
    # Replaced by a translation that is stored already, the old one is removed and nothing is stored.
    assert writer.add_pair("Ganz neu", "All new") == (answers[0].id + 1, True)
    assert writer.replace_pair("Ganz neu", "All new", "Brand new") == (answers[0].id, False)
    assert writer.memory.active_pairs == before + 1


def test_pairs_that_cannot_be_added_are_refused(tiny: BaseModel, tmp_path: Path) -> None:
    writer = MemoryWriter(tmp_path / "memory", tiny)
    for source, target, message in (
        ("", "x", "source of the pair is empty"),
        ("x", " \n", "target of the pair is empty"),
        ("\ud800", "x", "not valid Unicode"),
        ("x", "word " * 300, "longer than the limit of the model"),
    ):
        with pytest.raises(UsageError, match=message):
            writer.add_pair(source, target)
    counts = Counts(read=2, kept=2)
    answers = writer.add([Pair("wort " * 300, "x", "f", 1), Pair("Hallo", "Hello", "f", 2)], counts)
    assert answers == [(0, True)]
    assert counts.dropped == {"too long for the model": 1}
    for change in (
        lambda: writer.remove([5]),
        lambda: writer.remove_pair("Hallo", "Hullo"),
        lambda: writer.remove_origin("nowhere"),
        lambda: writer.replace(7, "x"),
        lambda: writer.replace_pair("Hallo", "Hullo", "x"),
        lambda: writer.replace(0, ""),
    ):
        with pytest.raises(UsageError):
            change()
    assert texts(writer.memory) == [("Hallo", "Hello")]
    assert writer.remove([]) == []


def test_another_model_and_an_unfinished_memory_are_refused(tiny: BaseModel, tiny_folder: Path, tmp_path: Path) -> None:
    create_memory(tmp_path / "other", tiny)
    changed = load_model(tiny_folder, device="cpu")
    with torch.no_grad():
        changed.projection.weight[0, 0] += 1
    with pytest.raises(MismatchError, match="another state of"):
        MemoryWriter(tmp_path / "other", changed)
    Memory.create(tmp_path / "unfinished", identify_model(tiny))
    with pytest.raises(UsageError, match="unfinished"):
        MemoryWriter(tmp_path / "unfinished", tiny).add_pair("Hallo", "Hello")


def test_removed_by_origin(tiny: BaseModel, memory: Path) -> None:
    writer = MemoryWriter(memory, tiny)
    learnt = texts(writer.memory)
    for number in range(3):
        writer.add_pair(f"Zusatz {number}", f"Extra {number}", origin="mail")
    assert writer.remove_origin("mail") == [len(learnt), len(learnt) + 1, len(learnt) + 2]
    assert texts(writer.memory) == learnt
    origin = next(iter(writer.memory.sentences())).origin
    assert len(writer.remove_origin(origin)) == len(learnt)
    assert texts(writer.memory) == texts(writer.memory.sealed()) == []
    assert Translator(tiny, memory).translate(["Hallo"]) == Translator(tiny).translate(["Hallo"])


SMALL = LearnSettings(
    tune=TuneSettings(metak=MetaKSettings(updates=20), contextual=ContextualSettings(updates=20), sampled_pairs=20)
)


def test_every_stage_uses_added_pairs_and_no_removed_ones(
    tiny: BaseModel, tmp_path: Path, sentences: list[Any]
) -> None:
    """Each stage runs after changes in the journal: none may lose a pair or restore a removed one."""
    few = tmp_path / "few.tsv"
    few.write_text("".join(f"{s.german}\t{s.english}\n" for s in sentences[:40]), "utf-8")
    memory = extract(tiny, Corpus([few]), tmp_path / "memory")
    writer = MemoryWriter(memory.path, tiny)
    expected = {pair.id: pair.source for pair in memory.sentences()}
    number = 0

    def disturb() -> None:
        nonlocal number
        added = writer.add_pair(f"Neuer Satz Nummer {number}", f"New sentence number {number}")
        expected[added.id] = f"Neuer Satz Nummer {number}"
        writer.remove([number * 2])
        del expected[number * 2]
        number += 1

    def check(memory: Memory) -> Memory:
        assert {pair.id: pair.source for pair in memory.sentences()} == expected
        assert not memory.tail
        assert memory.verify() == []
        return memory

    small = TuneSettings(
        k=2, sampled_pairs=20, metak=MetaKSettings(updates=10), contextual=ContextualSettings(updates=10)
    )
    for stage in (
        lambda m: cluster_memory(m, ClusterSettings()),
        lambda m: tune(m, tiny, settings=small),
        lambda m: index_memory(m, "IVF4,SQ8;nprobe=4")[0],
        lambda m: compact_memory(m, CompactSettings(method="pca", dimension=8), keep_keys=True),
        lambda m: tune(m, tiny, settings=small),
        lambda m: prune_memory(m, PruneSettings(rate=0.3, strategy="random")),
        lambda m: index_memory(m, "exact")[0],
        lambda m: restore_memory(m),
        lambda m: extract(tiny, Corpus([few]), m.path),
    ):
        disturb()
        memory = check(stage(Memory.open(memory.path)))
    assert memory.entries == memory.tokens  # restored, with what came after the pruning
    assert memory.layout.compact == 8


def test_learn_continues_after_pairs_were_added_and_removed(tiny: BaseModel, tmp_path: Path, corpus_file: Path) -> None:
    few = tmp_path / "few.tsv"
    few.write_text("".join(corpus_file.read_text("utf-8").splitlines(keepends=True)[:40]), "utf-8")
    memory = learn(tiny, Corpus([few]), tmp_path / "memory", settings=SMALL)
    writer = MemoryWriter(memory.path, tiny)
    writer.add_pair("Noch ein Satz", "One more sentence")
    writer.remove([3, 4])
    expected = texts(writer.memory)
    generation = memory.generation
    memory = learn(tiny, Corpus([few]), tmp_path / "memory", settings=SMALL)
    assert texts(memory) == expected
    assert memory.generation == generation + 1  # sealed, and nothing else was to be done
    other = tmp_path / "other.tsv"
    other.write_text("Etwas\tSomething\n", "utf-8")
    with pytest.raises(MismatchError, match="another corpus"):
        learn(tiny, Corpus([other]), tmp_path / "memory", settings=SMALL)
    writer = MemoryWriter(tmp_path / "by-hand", tiny)
    writer.add_pair("Hallo", "Hello")
    with pytest.raises(MismatchError, match="name another folder"):
        learn(tiny, Corpus([few]), tmp_path / "by-hand", settings=SMALL)
    assert texts(writer.memory) == [("Hallo", "Hello")]


def test_pairs_can_be_added_to_a_memory_of_compact_keys(tiny: BaseModel, memory: Path) -> None:
    compacted = compact_memory(Memory.open(memory), CompactSettings(method="pca", dimension=16), keep_keys=False)
    assert not compacted.layout.keys
    writer = MemoryWriter(memory, tiny)
    writer.add_pair("Ein ganz neuer Satz", "A wholly new sentence")
    translator = Translator(tiny, memory, combiner=CLOSE)
    assert translator.translate(["Ein ganz neuer Satz"]) == ["A wholly new sentence"]
    writer.memory.sealed()
    assert translator.translate(["Ein ganz neuer Satz"]) == ["A wholly new sentence"]
    assert Memory.open(memory).verify() == []


def test_many_concurrent_writers(tiny: BaseModel, tmp_path: Path, sentences: list[Any]) -> None:
    """Threads with a writer each, which also seal: every pair is stored once, with an id of its own."""
    create_memory(tmp_path / "memory", tiny)
    answers: list[Any] = []

    def write(part: list[Any]) -> None:
        writer = MemoryWriter(tmp_path / "memory", tiny)
        for sentence in part:
            answers.append((sentence.german, writer.add_pair(sentence.german, sentence.english)))
            if len(answers) % 5 == 0:
                with contextlib.suppress(LockedMemoryError):  # sealing does not wait for other writers
                    writer.memory.sealed()

    parts = [sentences[:12], sentences[6:18], sentences[12:24]]
    threads = [threading.Thread(target=write, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    memory = Memory.open(tmp_path / "memory")
    assert len(answers) == 36
    assert sorted(texts(memory)) == sorted((s.german, s.english) for s in sentences[:24])
    assert {pair.id: pair.source for pair in memory.sentences()} == {answer.id: text for text, answer in answers}
    assert sum(answer.new for _, answer in answers) == 24
    assert memory.verify() == []
