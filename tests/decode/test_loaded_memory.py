"""Loaded memories: which models, combiners and weights they take, and several memories at once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ibidem.combine import AdaptiveCombiner, FixedCombiner, load_combiner, store_adaptive, store_fixed
from ibidem.decode import EnsembleScorer, MemoryScorer, Translator, loaded_memory
from ibidem.errors import MismatchError, UsageError
from ibidem.learn import index_memory
from ibidem.memory import Memory, ModelIdentity, SegmentData, artefacts, check_identity
from ibidem.model import BaseModel, load_model

from .oracle import adaptive, limited, write_memory

COMBINER = FixedCombiner(4, 0.9, 1e-3)


@pytest.fixture(scope="session")
def stored(tiny: BaseModel, sentences: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Memory:
    return write_memory(tiny, sentences[:60], tmp_path_factory.mktemp("stored") / "memory")


def test_an_empty_memory_folder_is_the_base_model(tiny: BaseModel, short: list[Any], tmp_path: Path) -> None:
    memory = write_memory(tiny, [], tmp_path / "empty")
    lines = [s.german for s in short]
    assert Translator(tiny, memory).translate(lines) == Translator(tiny).translate(lines)


def test_a_weight_of_0_is_the_base_model(tiny: BaseModel, stored: Memory, short: list[Any]) -> None:
    lines = [s.german for s in short]
    mixed = Translator(tiny, stored, combiner=FixedCombiner(4, 0.0, 1.0))
    assert mixed.translate(lines) == Translator(tiny).translate(lines)


@pytest.mark.parametrize("weight", [0.99, 1.0])
def test_stored_sentences_are_translated_as_stored(
    tiny: BaseModel, stored: Memory, sentences: list[Any], weight: float
) -> None:
    """A random model with a high weight of its memory gives the stored translations; its states lie close together."""
    translator = Translator(tiny, stored, combiner=FixedCombiner(4, weight, 1e-5), index="exact")
    fitting = [s for s in sentences[:60] if len(tiny.tokens.encode_targets([s.english])[0]) < 100]
    expected = [tiny.tokens.decode(ids) for ids in tiny.tokens.encode_targets(s.english for s in fitting)]
    assert len(fitting) > 50
    assert translator.translate([s.german for s in fitting]) == expected
    assert Translator(tiny).translate([s.german for s in fitting]) != expected


def test_another_model_is_refused_by_name(
    tiny: BaseModel, model_of, stored: Memory, tiny_folder: Path, tmp_path: Path
) -> None:
    check_identity(stored, tiny)
    with pytest.raises(MismatchError, match="vocabulary size") as caught:
        check_identity(stored, model_of("marian"))
    assert tiny.name in str(caught.value)
    assert model_of("marian").name in str(caught.value)
    other = load_model(tiny_folder, device="cpu")
    with torch.no_grad():
        other.projection.weight[0, 0] += 1
    with pytest.raises(MismatchError, match=r"another state of.*\(model [0-9a-f]{12}, now [0-9a-f]{12}\)"):
        Translator(other, stored, combiner=FixedCombiner(4, 0.5, 1.0))
    assert tmp_path.exists()


def test_another_tokenizer_is_refused_by_name(stored: Memory, tiny_folder: Path, tmp_path: Path) -> None:
    import json
    import shutil

    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    pieces = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    first, second = list(pieces)[-2:]
    pieces[first], pieces[second] = pieces[second], pieces[first]
    (folder / "vocab.json").write_text(json.dumps(pieces), encoding="utf-8")
    with pytest.raises(MismatchError, match=r"\(tokenizer [0-9a-f]{12}\)") as caught:
        Translator(folder, stored, combiner=FixedCombiner(4, 0.5, 1.0), device="cpu")
    assert str(folder) in str(caught.value)
    assert "learn the memory again" in str(caught.value)


def test_a_rounded_model_opens_the_memory(stored: Memory, tiny_folder: Path) -> None:
    rounded = load_model(tiny_folder, device="cpu", dtype="bfloat16")
    assert isinstance(Translator(rounded, stored, combiner=FixedCombiner(4, 0.9, 1.0)).scorer, MemoryScorer)


def test_a_memory_without_a_combiner_uses_distance_decay(tiny: BaseModel, stored: Memory) -> None:
    assert load_combiner(stored) is None
    assert load_combiner(stored, "distance-decay") is None
    assert isinstance(Translator(tiny, stored).scorer, MemoryScorer)
    with pytest.raises(UsageError, match="ibidem tune"):
        Translator(tiny, stored, combiner="adaptive")
    with pytest.raises(UsageError, match="use one of contextual, adaptive, fixed, distance-decay"):
        load_combiner(stored, "magic")


def test_the_adaptive_combiner_comes_before_the_fixed_one(
    tiny: BaseModel, sentences: list[Any], tmp_path: Path
) -> None:
    memory = write_memory(tiny, sentences[:5], tmp_path / "memory")
    fixed, trained = store_fixed(FixedCombiner(4, 0.5, 10.0)), store_adaptive(adaptive())
    with memory.edit() as edit:
        edit.put_artefact("combiner_fixed", fixed.extension, fixed.payload, fixed.summary)
        memory = edit.commit()
    assert load_combiner(memory) == FixedCombiner(4, 0.5, 10.0)
    with memory.edit() as edit:
        edit.put_artefact("combiner_adaptive", trained.extension, trained.payload, trained.summary)
        memory = edit.commit()
    chosen = load_combiner(memory)
    assert isinstance(chosen, AdaptiveCombiner)
    assert (chosen.k, chosen.temperature) == (8, 10.0)
    assert load_combiner(memory, "fixed") == FixedCombiner(4, 0.5, 10.0)
    assert len(Translator(tiny, memory).translate(["Datei öffnen", ""])) == 2


def test_a_forced_word_that_no_neighbour_has(tiny: BaseModel, stored: Memory) -> None:
    translator = Translator(tiny, stored, combiner=FixedCombiner(4, 1.0, 1.0))
    assert translator.translate(["Datei öffnen"], prefixes=["Zebra"])[0].startswith("Zebra")


@pytest.fixture(scope="module")
def two(tiny: BaseModel, sentences: list[Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Memory, Memory]:
    """Two memories without a common sentence."""
    folder = tmp_path_factory.mktemp("two")
    return (
        write_memory(tiny, sentences[:20], folder / "one"),
        write_memory(tiny, sentences[20:40], folder / "other"),
    )


def test_neighbours_come_from_every_memory(tiny: BaseModel, two, sentences: list[Any]) -> None:
    translator = Translator(tiny, list(two), combiner=COMBINER)
    for explanation in translator.explain([s.german for s in sentences[:40:4]]):
        for token in explanation.tokens:
            assert [neighbour.pair.memory for neighbour in token.neighbours].count(str(two[0].path)) == 4
            assert [neighbour.pair.memory for neighbour in token.neighbours].count(str(two[1].path)) == 4
    assert translator.memories == list(two)


def test_weights_decide_between_memories(tiny: BaseModel, sentences: list[Any], tmp_path: Path) -> None:
    """Both memories hold the sentence, with different translations."""
    german = sentences[0]
    memories = [
        write_memory(tiny, [german._replace(english=english)], tmp_path / english)
        for english in ("Yes sir", "No madam")
    ]
    for weights, expected in (((3, 1), "Yes sir"), ((1, 3), "No madam")):
        given = list(zip(memories, weights, strict=True))
        assert Translator(tiny, given, combiner=COMBINER).translate([german.german]) == [expected]


def test_the_scores_are_explained(tiny: BaseModel, two, short: list[Any]) -> None:
    translator = Translator(
        tiny, [(two[0], 2.0), two[1].path], combiner=FixedCombiner(4, 0.5, 10.0), settings=limited(12)
    )
    assert isinstance(translator.scorer, EnsembleScorer)
    for explanation in translator.explain([s.german for s in short]):
        total = sum(token.log_probability for token in explanation.tokens) / len(explanation.tokens)
        assert total == pytest.approx(explanation.scores[0], abs=1e-5)


def test_an_empty_memory_changes_nothing(tiny: BaseModel, two, short: list[Any], tmp_path: Path) -> None:
    empty = write_memory(tiny, [], tmp_path / "empty")
    texts = [s.german for s in short]
    both = Translator(tiny, [empty, two[0]], combiner=COMBINER, settings=limited(12))
    assert both.translate(texts) == Translator(tiny, two[0], combiner=COMBINER, settings=limited(12)).translate(texts)
    assert Translator(tiny, empty, settings=limited(12)).translate(texts) == Translator(
        tiny, [], settings=limited(12)
    ).translate(texts)


def test_invalid_weights_and_memories_are_refused_by_name(tiny: BaseModel, model_of, two, tmp_path: Path) -> None:
    for weight in (0, -1, float("nan"), float("inf")):
        with pytest.raises(UsageError, match=r"Invalid weight .* of the memory .*one: give"):
            Translator(tiny, [(two[0], weight)], combiner=COMBINER)
    with pytest.raises(UsageError, match="given twice"):
        Translator(tiny, [two[0], str(two[0].path)], combiner=COMBINER)
    other = write_memory(model_of("marian"), [], tmp_path / "foreign")
    with other.edit() as edit:
        edit.set_complete(True)
        edit.commit()
    with pytest.raises(MismatchError, match="foreign"):
        Translator(tiny, [two[0], other.path], combiner=COMBINER)


def test_a_stored_index_is_verified_once(
    tiny_folder: Path, sentences: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is verified while the model is loaded, and a damaged one is still noticed."""
    memory = write_memory(load_model(tiny_folder, device="cpu"), sentences[:60], tmp_path / "memory")
    index_memory(memory, "IVF4,SQ8;nprobe=4")
    [file] = (tmp_path / "memory" / "artefacts").glob("index*")
    read: list[tuple[str, str]] = []
    check = artefacts.check_artefact

    def record(folder: Path, name: str, *given: Any) -> None:
        read.append((name, threading.current_thread().name))
        check(folder, name, *given)

    monkeypatch.setattr(artefacts, "check_artefact", record)
    Translator(tiny_folder, tmp_path / "memory", combiner=COMBINER, device="cpu")
    assert [thread for name, thread in read if name == "index"] == ["ibidem-verify"]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.warns(UserWarning, match="stores a new one"):
        Translator(tiny_folder, tmp_path / "memory", combiner=COMBINER, device="cpu")


def test_a_journal_of_more_entries_than_are_kept_free(tmp_path: Path) -> None:
    memory = Memory.create(tmp_path / "memory", ModelIdentity("tiny", "model", "tokens", 2, 100, "de", "en"))
    count = loaded_memory._SPARE + 2
    data = SegmentData(
        keys=np.zeros((count, 2), np.float16),
        values=np.arange(count, dtype=np.int32) % 100,
        log_probs=np.zeros(count, np.float32),
        lengths=np.array([count - 1, 1]),
        sources=["Haus", "Welt"],
        targets=["house", "world"],
        origins=["test", "test"],
        locations=[1, 2],
    )
    with memory.writing() as writer:
        memory = writer.record(data)
    table = loaded_memory.GrowingTable(torch.device("cpu"))
    table.update(memory)
    assert table.table.values.tolist() == data.values.tolist()
    assert table.table.sentences is not None
    assert table.table.sentences[-2:].tolist() == [0, 1]
