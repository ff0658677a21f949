"""After every change of its memory, an open translator gives the results of a newly opened one."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ibidem.combine import FixedCombiner, Sources, StepContext, mix
from ibidem.decode import BaseScorer, MemoryScorer, OverlayScorer, Retrieved, SearchSettings, Translator
from ibidem.errors import UsageError
from ibidem.evaluate import evaluate_systems
from ibidem.learn import (
    CompactSettings,
    MemoryWriter,
    PruneSettings,
    compact_memory,
    create_memory,
    index_memory,
    maintenance,
    prune_memory,
    restore_memory,
)
from ibidem.memory import Memory

if TYPE_CHECKING:
    from ibidem.model import BaseModel, States

BY_HAND = FixedCombiner(4, 0.7, 0.5)
CLOSE = FixedCombiner(4, 0.99, 1e-5)


@pytest.fixture
def memory(tmp_path: Path, learnt: Memory) -> Path:
    """A copy of the learnt memory that may be changed."""
    return Path(shutil.copytree(learnt.path, tmp_path / "memory"))


@pytest.fixture(scope="module")
def step(tiny: BaseModel, sentences: list[Any]) -> States:
    """States of some sentences."""
    chosen = [s for s in sentences if len(s.german) < 60 and len(s.english) < 60][::8]
    return tiny.states(
        tiny.tokens.encode_sources(s.german for s in chosen), tiny.tokens.encode_targets(s.english for s in chosen)
    )


def retrieve(translator: Translator, step: States) -> Retrieved:
    """The neighbours of the states, weighted with all that a combiner may see."""
    logits = translator.model.project(step.keys)
    rows = torch.arange(len(step.lengths)).repeat_interleave(torch.tensor(step.lengths))
    return translator.scorer.retrieve(step.keys, 1, StepContext(logits, Sources(step.source_means), rows))


def mixture(translator: Translator, step: States) -> Tensor:
    """Log-probabilities [rows, V] of the next token."""
    retrieved = retrieve(translator, step)
    return mix(translator.model.project(step.keys).log_softmax(dim=1), retrieved.weights, retrieved.values)


def check_against_new(translator: Translator, path: Path, step: States, **options: Any) -> None:
    """Check that the open translator and a new one compute the same from the same entries."""
    translator.refresh()
    new = Translator(translator.model, path, **options)
    torch.testing.assert_close(mixture(translator, step), mixture(new, step), atol=1e-5, rtol=1e-4)
    followed, fresh = retrieve(translator, step), retrieve(new, step)
    torch.testing.assert_close(followed.distances, fresh.distances, atol=1e-4, rtol=1e-4)
    ids = [
        {memory.sentence(memory.locate(entry)[0]).id for entry in retrieved.entries.unique().tolist() if entry >= 0}
        for retrieved, memory in ((followed, translator.memories[0]), (fresh, new.memories[0]))
    ]
    assert ids[0] == ids[1]


@pytest.mark.parametrize(
    ("setting", "options"),
    [
        ("exact", {"combiner": BY_HAND}),
        ("exact", {}),
        ("IVF8,SQfp16;nprobe=8", {}),
        ("IVF8,PQ4;nprobe=8", {"combiner": BY_HAND}),
    ],
    ids=["exact-by-hand", "exact-tuned", "codes-tuned", "coarse-codes-by-hand"],
)
def test_any_order_of_changes(
    tiny: BaseModel, memory: Path, sentences: list[Any], step: States, setting: str, options: Any
) -> None:
    index_memory(Memory.open(memory), setting)
    translator = Translator(tiny, memory, **options)
    writer = MemoryWriter(memory, tiny)
    random = Random(4)
    new = iter([(f"{s.german} Und {i}.", f"{s.english} And {i}.") for i, s in enumerate(sentences)])
    for change in (
        "add",
        "remove",
        "seal",
        "add",
        "add",
        "remove",
        "index",
        "remove",
        "seal",
        "reload",
        "add",
        "remove",
    ):
        if change == "add":
            for _ in range(3):
                writer.add_pair(*next(new))
        elif change == "remove":
            ids = [pair.id for pair in writer.memory.sentences()]
            writer.remove(random.sample(ids, 20))
        elif change == "seal":
            writer.memory.sealed()
        elif change == "index":
            index_memory(writer.memory, setting)
            translator.loaded_memories[0].reload()  # since the codes of a new index are other ones
        else:
            translator.loaded_memories[0].reload()
        check_against_new(translator, memory, step, **options)


def test_removed_entries_are_never_neighbours_again(
    tiny: BaseModel, memory: Path, sentences: list[Any], step: States
) -> None:
    index_memory(Memory.open(memory), "IVF8,SQfp16;nprobe=8")
    translator = Translator(tiny, memory, combiner=CLOSE)
    writer = MemoryWriter(memory, tiny)
    removed: set[int] = set()

    def check() -> None:
        translator.refresh()
        opened = translator.memories[0]
        entries = retrieve(translator, step).entries
        assert not {opened.sentence(opened.locate(e)[0]).id for e in entries.unique().tolist()} & removed
        for explanation in translator.explain([s.german for s in sentences[:3]]):
            cited = {n.pair.id for token in explanation.tokens for n in token.neighbours}
            assert not cited & removed

    for ids in ([0, 2], [5, 12, 24], list(range(30, 60))):
        removed |= set(writer.remove(ids))
        check()
        writer.memory.sealed()
        check()
        translator.loaded_memories[0].reload()
        check()
    index_memory(writer.memory, "exact")
    check()


def test_a_correction_overlays_the_tuned_memory(
    tiny: BaseModel, memory: Path, sentences: list[Any], step: States
) -> None:
    """Entries added since tuning get a weight of their own; states far from them are unaffected."""
    index_memory(Memory.open(memory), "exact")  # an approximate one may miss a neighbour that a later one finds
    translator = Translator(tiny, memory)
    assert isinstance(translator.scorer, MemoryScorer)
    before = mixture(translator, step)
    writer = MemoryWriter(memory, tiny)
    writer.add_pair(sentences[0].german, "Quite another translation")
    translator.refresh()
    assert isinstance(translator.scorer, OverlayScorer)
    tokens = tiny.tokens
    own = tiny.states(
        tokens.encode_sources([sentences[0].german]), tokens.encode_targets(["Quite another translation"])
    )
    near = retrieve(translator, own)
    added = near.sources == 1
    assert float(near.distances[:, added].amin(dim=1).max()) < 1e-2
    # The states of a random model lie so close together that all eight disagree: a weight of 0.9 / 8**3 is left.
    assert float(near.weights.neighbours[:, added].sum(dim=1).min()) > 1e-3
    explained = translator.explain([sentences[0].german])[0]
    for token in explained.tokens:  # which may weigh an entry twice, and show it once
        shown = [neighbour.entry for neighbour in token.neighbours]
        assert len(set(shown)) == len(shown)
        assert token.base_weight + sum(neighbour.weight for neighbour in token.neighbours) == pytest.approx(1, abs=1e-4)
    retrieved = retrieve(translator, step)
    untouched = retrieved.weights.neighbours[:, retrieved.sources == 1].sum(dim=1) < 1e-7
    assert untouched.any()
    torch.testing.assert_close(mixture(translator, step)[untouched], before[untouched], atol=1e-4, rtol=1e-4)
    # Sealed, it still lies over the rest; merged, it is one entry among others.
    writer.memory.sealed()
    translator.refresh()
    assert isinstance(translator.scorer, OverlayScorer)
    check_against_new(translator, memory, step)
    index_memory(Memory.open(memory), "exact")
    translator.refresh()
    assert isinstance(translator.scorer, MemoryScorer)
    check_against_new(translator, memory, step)


def test_pairs_are_added_and_removed_while_an_index_is_built(
    tiny: BaseModel, memory: Path, step: States, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index is stored nevertheless, and finds what an exact index of the remaining entries finds."""
    translator = Translator(tiny, memory, combiner=BY_HAND)
    writer = MemoryWriter(memory, tiny)
    build = maintenance.build_index

    def disturbed(*given: Any, **options: Any) -> Any:
        index = build(*given, **options)
        for number in range(3):
            writer.add_pair(f"Zusatz {number}", f"Extra {number}")
            writer.remove([number, 10 * number + 11])
            if number < 2:
                writer.memory.sealed()
        return index

    monkeypatch.setattr(maintenance, "build_index", disturbed)
    built, _ = index_memory(Memory.open(memory), "IVF8,SQfp16;nprobe=8")
    assert built.fitted_entries < built.entries
    assert len(built.removed_entries) > 0
    translator.loaded_memories[0].reload()
    check_against_new(translator, memory, step, combiner=BY_HAND)
    exact = Translator(tiny, memory, combiner=BY_HAND, index="exact").scorer.retrieve(step.keys)
    found = retrieve(translator, step)
    torch.testing.assert_close(found.distances, exact.distances, atol=1e-3, rtol=1e-3)


def test_an_index_of_another_space_is_not_used(
    tiny: BaseModel, memory: Path, step: States, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pruning, during which another thread opens the index of the memory as it was before."""
    translator = Translator(tiny, memory, combiner=BY_HAND)
    loaded = translator.loaded_memories[0]
    opened = loaded._open_base

    def disturbed(state: Memory) -> Any:
        base = opened(state)
        monkeypatch.setattr(loaded, "_open_base", opened)
        prune_memory(Memory.open(memory), PruneSettings(rate=0.5, strategy="random"))
        translator.refresh()
        return base

    monkeypatch.setattr(loaded, "_open_base", disturbed)
    loaded.reload()
    check_against_new(translator, memory, step, combiner=BY_HAND)


def test_another_space_is_loaded_again(tiny: BaseModel, memory: Path, step: States) -> None:
    translator = Translator(tiny, memory, combiner=BY_HAND)
    MemoryWriter(memory, tiny).add_pair("Ein neuer Satz", "A new sentence")
    for stage in (
        lambda m: prune_memory(m, PruneSettings(rate=0.5, strategy="random")),
        lambda m: restore_memory(m),
        lambda m: compact_memory(m, CompactSettings(method="pca", dimension=8), keep_keys=False),
    ):
        stage(Memory.open(memory))
        check_against_new(translator, memory, step, combiner=BY_HAND)
    MemoryWriter(memory, tiny).add_pair("Noch ein Satz", "One more sentence")
    check_against_new(translator, memory, step, combiner=BY_HAND)
    assert translator.memories[0].dimension == 8


def test_a_missing_named_combiner_is_an_error(tiny: BaseModel, memory: Path) -> None:
    translator = Translator(tiny, memory, combiner="adaptive")
    compact_memory(Memory.open(memory), CompactSettings(method="pca", dimension=8), keep_keys=True)
    with pytest.raises(UsageError, match="no adaptive combiner"):
        translator.translate(["Hallo"])


def test_a_replaced_scorer_stays(tiny: BaseModel, memory: Path, sentences: list[Any]) -> None:
    translator = Translator(tiny, memory, combiner=CLOSE, settings=SearchSettings(beam=1))
    texts = [s.german for s in sentences[:4]]
    base = Translator(tiny, settings=SearchSettings(beam=1)).translate(texts)
    MemoryWriter(memory, tiny).remove([0])
    results = evaluate_systems(translator, {"base": BaseScorer()}, texts, texts, samples=2)
    assert results[0].translations == base


def test_an_unchanged_memory_is_not_loaded_again(tiny: BaseModel, memory: Path) -> None:
    translator = Translator(tiny, memory)
    scorer = translator.scorer
    translator.translate(["Hallo", "Welt"])
    assert translator.scorer is scorer
    assert not translator.loaded_memories[0].refresh()


def test_additions_share_the_unchanged_parts(tiny: BaseModel, memory: Path) -> None:
    translator = Translator(tiny, memory)
    writer = MemoryWriter(memory, tiny)
    writer.add_pair("Eins", "One")
    translator.refresh()
    shelves, table = translator.loaded_memories[0]._index_parts, translator.loaded_memories[0]._table.table
    writer.add_pair("Zwei", "Two")
    translator.refresh()
    assert translator.loaded_memories[0]._index_parts is shelves
    grown = translator.loaded_memories[0]._table.table
    for array, before in ((grown.values, table.values), (grown.source_vectors, table.source_vectors)):
        assert array is not None
        assert before is not None
        assert array.data_ptr() == before.data_ptr()
    opened = translator.memories[0]
    expected = np.concatenate([opened.values(), opened.tail.values])
    np.testing.assert_array_equal(grown.values.numpy(), expected)


def test_translating_during_writes(tiny: BaseModel, memory: Path, sentences: list[Any]) -> None:
    """One thread translates and explains, two add and remove, one seals and rebuilds: each result is consistent."""
    translator = Translator(tiny, memory, settings=SearchSettings(beam=2, max_length_ratio=0, max_length_extra=8))
    done = threading.Event()
    failures: list[BaseException] = []

    def watched(work: Any) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)

        return threading.Thread(target=run)

    def write(first: int) -> None:
        writer = MemoryWriter(memory, tiny)
        for number in range(first, first + 12):
            added = writer.add_pair(f"Satz {number}", f"Sentence {number}")
            if number % 3 == 0:
                writer.remove([added.id])

    def keep() -> None:
        while not done.is_set():
            Memory.open(memory).sealed()
            index_memory(Memory.open(memory), "exact")
            translator.loaded_memories[0].reload()

    def read() -> None:
        while not done.is_set():
            for explanation in translator.explain([s.german for s in sentences[:2]]):
                assert all(token.neighbours for token in explanation.tokens)

    writers = [watched(lambda: write(0)), watched(lambda: write(100))]
    others = [watched(read)]
    keeper = watched(lambda: _tolerating_changes(keep))
    for thread in (*writers, *others, keeper):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in (*others, keeper):
        thread.join()
    assert not failures, failures
    left = {pair.source for pair in Memory.open(memory).sentences() if pair.source.startswith("Satz ")}
    assert left == {f"Satz {first + i}" for first in (0, 100) for i in range(12) if (first + i) % 3}
    translator.refresh()
    assert {pair.id for pair in translator.memories[0].sentences()} == {
        pair.id for pair in Memory.open(memory).sentences()
    }


def _tolerating_changes(work: Any) -> None:
    """Repeat work that fails because pairs were removed or the lock is held meanwhile."""
    from ibidem.errors import LockedMemoryError, MismatchError

    while True:
        try:
            return work()
        except (LockedMemoryError, MismatchError):
            continue


def test_an_empty_memory_is_updated_too(tiny: BaseModel, tmp_path: Path) -> None:
    create_memory(tmp_path / "empty", tiny)
    translator = Translator(tiny, [tmp_path / "empty"], combiner=CLOSE)
    MemoryWriter(tmp_path / "empty", tiny).add_pair("Hallo Welt", "Hello world")
    assert translator.translate(["Hallo Welt"]) == ["Hello world"]
    fading = Translator(tiny, tmp_path / "empty")
    assert isinstance(fading.scorer, MemoryScorer)
    MemoryWriter(tmp_path / "empty", tiny).remove([0])
    bare = Translator(tiny).translate(["Hallo Welt"])
    assert translator.translate(["Hallo Welt"]) == fading.translate(["Hallo Welt"]) == bare
