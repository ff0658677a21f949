"""Extraction: what is stored is what the model computes, and an interruption leaves no trace."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save

from ibidem.compact import LinearCompactor, read_notes, store_compactor
from ibidem.errors import MemoryFolderError, MismatchError, ModelError, TextError, UsageError
from ibidem.learn import (
    CompactSettings,
    ExtractSettings,
    compact_memory,
    extract,
    extraction,
)
from ibidem.memory import Edit, KeyCoding, Layout, Memory, SourceProjection
from ibidem.model import load_model
from ibidem.text import Corpus, Counts, Pair

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ibidem.model import BaseModel

FORK_SERVER = Path(__file__).with_name("extraction_process.py")
# About twelve commits over the first sixty sentences.
SMALL = ExtractSettings(segment_bytes=2 * 32 * 150)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory, sentences) -> Path:
    """The first sixty sentences as a TSV."""
    file = tmp_path_factory.mktemp("few") / "few.tsv"
    file.write_text("".join(f"{s.german}\t{s.english}\n" for s in sentences[:60]), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, tiny: BaseModel, few: Path) -> Memory:
    """The few sentences, extracted at once in small segments; read only."""
    return extract(tiny, Corpus([few]), tmp_path_factory.mktemp("whole") / "memory", settings=SMALL)


def segment_files(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted((path / "segments").rglob("*"))
        if file.is_file()
    }


def test_entries_equal_teacher_forcing_one_by_one(tiny: BaseModel, whole: Memory) -> None:
    """The oracle: transformers' own forward pass over one pair, its hidden state and its logits."""
    place = 0
    for pair in list(whole.sentences())[:12]:
        source = tiny.tokens.encode_sources([pair.source])
        target = tiny.tokens.encode_targets([pair.target])[0]
        assert pair.entries == range(place, place + len(target))
        with torch.inference_mode():
            output = tiny.network(
                input_ids=torch.tensor(source),
                decoder_input_ids=torch.tensor([[*tiny.tokens.start, *target[:-1]]]),
                output_hidden_states=True,
            )
        rows = slice(place, place + len(target))
        np.testing.assert_array_equal(whole.values()[rows], target)
        expected = output.logits[0].log_softmax(dim=1)[torch.arange(len(target)), torch.tensor(target)]
        np.testing.assert_allclose(whole.log_probs()[rows], expected, atol=2e-5, rtol=1e-3)
        states = output.decoder_hidden_states[-1][0]
        keys = whole.keys.gather(np.arange(rows.start, rows.stop))
        np.testing.assert_allclose(np.asarray(keys, np.float32), states, atol=2e-3, rtol=2e-3)
        place += len(target)


def test_source_vectors_are_projected_mean_encoder_states(tiny: BaseModel, whole: Memory) -> None:
    """The oracle: transformers' own encoder over one source."""
    for number, pair in enumerate(list(whole.sentences())[:12]):
        (source,) = tiny.tokens.encode_sources([pair.source])
        with torch.inference_mode():
            states = tiny.network.get_encoder()(input_ids=torch.tensor([source])).last_hidden_state[0]
        expected = whole.source_projection.vectors(states.mean(dim=0)[None].numpy())[0]
        np.testing.assert_allclose(whole.source_vectors()[number], expected, atol=1)
        assert (whole.sentence_of_entries()[pair.entries.start : pair.entries.stop] == number).all()


def test_the_projection_that_ships_with_the_model_is_used(
    tmp_path: Path, tiny: BaseModel, few: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(5)
    shipped = SourceProjection(
        random.standard_normal(tiny.dimension).astype(np.float32),
        random.standard_normal((tiny.dimension, 64)).astype(np.float32),
    )
    folder = tmp_path / "general"
    folder.mkdir()
    (folder / "source_projection.safetensors").write_bytes(save(shipped.tensors()))
    monkeypatch.setattr(tiny, "general", folder)
    memory = extract(tiny, Corpus([few]), tmp_path / "memory", settings=SMALL)
    np.testing.assert_array_equal(memory.source_projection.projection, shipped.projection)
    (folder / "source_projection.safetensors").write_bytes(b"damaged")
    with pytest.raises(ModelError, match="install the model again"):
        extract(tiny, Corpus([few]), tmp_path / "other", settings=SMALL)


def test_int8_stores_nearly_the_same_entries(tmp_path: Path, tiny: BaseModel, few: Path, whole: Memory) -> None:
    coarse = load_model(tiny.name, device="cpu", dtype="auto")
    found = extract(coarse, Corpus([few]), tmp_path / "memory", settings=SMALL)
    assert found.manifest.stages["extract"]["dtype"] == coarse.arithmetic
    np.testing.assert_array_equal(found.values(), whole.values())
    every = np.arange(whole.entries)
    keys, expected = (np.asarray(memory.keys.gather(every), np.float32) for memory in (found, whole))
    assert np.linalg.norm(keys - expected) < 0.1 * np.linalg.norm(expected)
    assert np.abs(found.log_probs() - whole.log_probs()).mean() < 0.1
    if coarse.arithmetic == "int8":  # it then cannot continue in another arithmetic
        with found.edit() as edit:
            edit.set_complete(False)
            edit.commit()
        with pytest.raises(MismatchError, match="started with the dtype int8, not float32"):
            extract(tiny, Corpus([few]), tmp_path / "memory", settings=SMALL)


def test_pairs_keep_corpus_order_and_location(whole: Memory, few: Path) -> None:
    corpus = Corpus([few])
    expected = [(pair.source, pair.target, pair.origin, pair.location) for pair in corpus]
    stored = [(pair.source, pair.target, pair.origin, pair.location) for pair in whole.sentences()]
    assert stored == expected
    ends = [pair.entries.stop for pair in whole.sentences()]
    assert ends[-1] == whole.entries == len(whole.values()) == len(whole.log_probs())
    assert whole.complete
    assert whole.verify() == []


def test_segments_of_any_size_hold_the_same_entries(tmp_path: Path, tiny: BaseModel, few: Path, whole: Memory) -> None:
    one = extract(tiny, Corpus([few]), tmp_path / "one")
    assert len(one.manifest.segments) == 1
    assert len(whole.manifest.segments) > 8
    np.testing.assert_array_equal(one.values(), whole.values())
    np.testing.assert_allclose(one.log_probs(), whole.log_probs(), atol=2e-5)
    all_entries = np.arange(one.entries)
    np.testing.assert_allclose(
        np.asarray(one.keys.gather(all_entries), np.float32),
        np.asarray(whole.keys.gather(all_entries), np.float32),
        atol=2e-3,
        rtol=2e-3,
    )
    assert list(one.sentences()) == list(whole.sentences())


def test_long_pairs_are_encoded_in_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are limited in characters: two thousand pairs of a MiB a side would be 4 GB."""
    monkeypatch.setattr(extraction, "_CHARACTERS_PER_ENCODING", 1_000)
    encoded: list[int] = []

    def encode(texts: Iterable[str]) -> list[list[int]]:
        found = list(texts)
        encoded.append(sum(map(len, found)))
        return [[len(text)] for text in found]

    tokens: Any = SimpleNamespace(
        encode_sources=encode, encode_targets=encode, max_source_length=9, max_target_length=9
    )
    lengths = [10] * 300 + [900] * 7
    pairs = [Pair("x" * length, str(number), "a", number) for number, length in enumerate(lengths)]
    found = [pair for chunk in extraction.cut_chunks(pairs, tokens, 50, Counts()) for pair in chunk.pairs]
    assert found == pairs
    assert max(encoded) < 2_000
    assert len(encoded) < 40


def test_too_long_pairs_are_dropped_and_counted(tmp_path: Path, tiny: BaseModel) -> None:
    file = tmp_path / "long.tsv"
    long = "Wort " * 200
    file.write_text(f"Hallo.\tHello.\n{long}\tHello.\nHallo.\t{long}\n\tempty\nDatei\tFile\n", "utf-8")
    corpus = Corpus([file])
    memory = extract(tiny, corpus, tmp_path / "memory")
    assert [pair.source for pair in memory.sentences()] == ["Hallo.", "Datei"]
    dropped = {"too long for the model": 2, "empty source": 1}
    assert (corpus.counts.read, corpus.counts.kept, corpus.counts.dropped) == (5, 2, dropped)
    notes = memory.manifest.stages["extract"]
    assert (notes["read"], notes["kept"], notes["dropped"]) == (5, 2, dropped)


def test_interrupted_at_every_segment(
    tmp_path: Path, tiny: BaseModel, few: Path, whole: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before each commit in turn, the same call continues, and the bytes are those of one run."""
    commit, append = Edit.commit, Edit.append_segment
    stops = 0

    class StopError(Exception):
        pass

    def stop_before_commit(*_: object) -> Memory:
        raise StopError

    def append_then_stop_next(self: Edit, data: object) -> None:
        append(self, data)  # type: ignore[arg-type]
        if len(self.memory.manifest.segments) == stops:
            monkeypatch.setattr(Edit, "commit", stop_before_commit)

    path = tmp_path / "memory"
    monkeypatch.setattr(Edit, "append_segment", append_then_stop_next)
    while True:
        monkeypatch.setattr(Edit, "commit", commit)
        try:
            memory = extract(tiny, Corpus([few]), path, settings=SMALL)
        except StopError:
            stops += 1
            assert len(Memory.open(path).manifest.segments) == stops - 1
            assert not Memory.open(path).complete
            continue
        break
    assert stops == len(whole.manifest.segments)
    assert memory.complete
    assert segment_files(path) == segment_files(whole.path)
    assert memory.manifest.stages == whole.manifest.stages


@pytest.mark.parametrize("wanted", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_killed_at_random_moments(tmp_path: Path, tiny_folder: Path, few: Path, whole: Memory, wanted: int) -> None:
    """SIGKILL at seeded random moments, and the same again until it ends: the bytes of an unbroken run.

    A fork server that has loaded the model forks each extraction, so that a kill costs no import.
    """
    random = Random(7)
    settings = ["--segment-bytes", str(SMALL.segment_bytes)]
    command = [sys.executable, str(FORK_SERVER), str(tiny_folder), str(few), *settings]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None

        def begin(path: Path) -> int:
            server.stdin.write(f"{path}\n")
            server.stdin.flush()
            return int(server.stdout.readline())

        def end() -> int:
            return int(server.stdout.readline())

        assert server.stdout.readline() == "ready\n"
        begun = time.monotonic()
        begin(tmp_path / "unbroken")
        assert end() == 0
        duration = time.monotonic() - begun
        expected = segment_files(tmp_path / "unbroken")
        assert expected.keys() == segment_files(whole.path).keys()
        rounds, kills, path = 0, 0, tmp_path / "broken0"
        while True:
            child = begin(path)
            if kills < wanted:
                time.sleep(random.uniform(0, duration / 2))
                # The stopped server has not reaped the child: the process number is still its own.
                server.send_signal(signal.SIGSTOP)
                killed = alive(child)
                if killed:
                    os.kill(child, signal.SIGKILL)
                server.send_signal(signal.SIGCONT)
                kills += killed
            status = end()
            if Memory.exists(path):
                Memory.open(path)  # never half-open, whatever the moment
            if status == -signal.SIGKILL:
                continue
            assert status == 0
            assert segment_files(path) == expected
            assert Memory.open(path).verify() == []
            if kills == wanted:
                break
            rounds += 1
            path = tmp_path / f"broken{rounds}"
        server.stdin.close()
    np.testing.assert_array_equal(Memory.open(path).values(), whole.values())


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_another_corpus_is_refused(tmp_path: Path, tiny: BaseModel, few: Path) -> None:
    path = tmp_path / "memory"
    extract(tiny, Corpus([few]), path, settings=SMALL)
    before = segment_files(path)
    lines = few.read_text("utf-8").splitlines(keepends=True)
    other = tmp_path / "other.tsv"
    for changed in (
        [*lines[:30], "Etwas anderes.\tSomething else.\n", *lines[31:]],
        lines[:-1],
        [*lines, "Noch eins.\tOne more.\n"],
        lines[1:],
    ):
        other.write_text("".join(changed), "utf-8")
        with pytest.raises(MismatchError, match="name another folder"):
            extract(tiny, Corpus([other]), path, settings=SMALL)
        assert segment_files(path) == before


def test_another_model_or_tokenizer_is_refused(tmp_path: Path, tiny: BaseModel, few: Path, tiny_folder: Path) -> None:
    path = tmp_path / "memory"
    extract(tiny, Corpus([few]), path, settings=SMALL)
    other = load_model(tiny_folder, device="cpu")
    with torch.no_grad():
        other.projection.weight[5, 5] += 1e-3
    with pytest.raises(MismatchError, match=rf"learnt with another state of '{tiny_folder}' \(model \w+"):
        extract(other, Corpus([few]), path, settings=SMALL)
    shutil.copytree(tiny_folder, tmp_path / "swapped")
    pieces = json.loads((tiny_folder / "vocab.json").read_text("utf-8"))
    pieces["▁the"], pieces["▁and"] = pieces["▁and"], pieces["▁the"]
    (tmp_path / "swapped" / "vocab.json").write_text(json.dumps(pieces), "utf-8")
    swapped = load_model(tmp_path / "swapped", device="cpu")
    with pytest.raises(MismatchError, match=r"\(tokenizer \w+\), not with"):
        extract(swapped, Corpus([few]), path, settings=SMALL)


def test_the_same_model_under_another_name_is_accepted(
    tmp_path: Path, tiny: BaseModel, few: Path, tiny_folder: Path
) -> None:
    """A model is identified by its fingerprint, not by its folder."""
    extract(tiny, Corpus([few]), tmp_path / "memory", settings=SMALL)
    twin = load_model(shutil.copytree(tiny_folder, tmp_path / "twin"), device="cpu")
    assert twin.name != tiny.name
    assert extract(twin, Corpus([few]), tmp_path / "memory", settings=SMALL).complete


def test_a_corpus_without_a_pair_writes_nothing(tmp_path: Path, tiny: BaseModel) -> None:
    for number, text in enumerate(["", "\tempty source\n", f"{'Wort ' * 200}\tWord\n"]):
        file = tmp_path / f"{number}.tsv"
        file.write_text(text, "utf-8")
        with pytest.raises(TextError, match=f"No pair could be used of tsv from {file}.*read"):
            extract(tiny, Corpus([file]), tmp_path / "memory")
        assert not (tmp_path / "memory").exists()


def test_bad_text_before_the_first_commit_writes_nothing(tmp_path: Path, tiny: BaseModel) -> None:
    file = tmp_path / "bad.tsv"
    file.write_bytes(b"Hallo\tHello\nGr\xfc\xdfe\tGreetings\n")
    with pytest.raises(TextError, match="line 2"):
        extract(tiny, Corpus([file]), tmp_path / "memory")
    assert not (tmp_path / "memory").exists()


def test_invalid_seeds_are_refused(tmp_path: Path, tiny: BaseModel, few: Path) -> None:
    for seed in (-1, 1 << 31):
        with pytest.raises(UsageError, match="give one from 0"):
            extract(tiny, Corpus([few]), tmp_path / "memory", seed=seed)
    assert not (tmp_path / "memory").exists()


def test_a_folder_with_other_files_is_not_changed(tmp_path: Path, tiny: BaseModel, few: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(MemoryFolderError, match=r"not empty.*new folder"):
        extract(tiny, Corpus([few]), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_continuing_with_other_settings_is_refused(tmp_path: Path, tiny: BaseModel, few: Path) -> None:
    path = tmp_path / "memory"
    extract(tiny, Corpus([few]), path, settings=SMALL)
    with Memory.open(path).edit() as edit:
        edit.set_complete(False)
        edit.commit()
    other = ExtractSettings(segment_bytes=SMALL.segment_bytes, batch_tokens=SMALL.batch_tokens + 1)
    with pytest.raises(MismatchError, match="was started with the settings"):
        extract(tiny, Corpus([few]), path, settings=other)
    assert extract(tiny, Corpus([few]), path, settings=SMALL).complete


@pytest.fixture(scope="module")
def compactor(tmp_path_factory: pytest.TempPathFactory, whole: Memory) -> Path:
    """The file of a compactor that was trained on another memory."""
    memory = Memory.open(shutil.copytree(whole.path, tmp_path_factory.mktemp("compactor") / "memory"))
    artefact = compact_memory(memory, CompactSettings(method="pca", dimension=6, seed=2)).artefact("compactor")
    assert artefact is not None
    return artefact.path


def test_keys_compacted_while_extracting_are_those_compacted_afterwards(
    tmp_path: Path, tiny: BaseModel, few: Path, whole: Memory, compactor: Path
) -> None:
    """And the model's own keys are never written."""
    memory = extract(tiny, Corpus([few]), tmp_path / "memory", settings=SMALL, compactor=compactor)
    copied = Memory.open(shutil.copytree(whole.path, tmp_path / "later"))
    later = compact_memory(copied, CompactSettings(), compactor=compactor)
    assert memory.layout == later.layout == Layout(keys=False, compact=6)
    assert len(memory.manifest.segments) > 8
    assert not list(memory.path.rglob("keys.bin"))
    assert memory.manifest.stages == later.manifest.stages
    assert memory.manifest.artefacts["compactor"].sha256 == later.manifest.artefacts["compactor"].sha256
    every = np.arange(memory.entries)
    found, expected = (each.search_keys.gather(every).astype(np.float32) for each in (memory, later))
    np.testing.assert_allclose(found, expected, atol=2e-3, rtol=2e-3)
    np.testing.assert_array_equal(memory.values(), later.values())
    assert memory.verify() == []


def test_compaction_while_extracting_is_interrupted_at_every_commit(
    tmp_path: Path, tiny: BaseModel, few: Path, compactor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(name: str, given: Path | None = compactor) -> Memory:
        return extract(tiny, Corpus([few]), tmp_path / name, settings=SMALL, compactor=given)

    unbroken, commit, left = run("unbroken"), Edit.commit, 1

    class StopError(Exception):
        pass

    def commit_then_stop(self: Edit) -> Memory:
        nonlocal left
        committed = commit(self)
        left -= 1
        if not left:
            raise StopError
        return committed

    other = tmp_path / "other.safetensors"
    coding = KeyCoding(np.zeros(6, np.float32), np.ones(6, np.float32))
    notes = read_notes(compactor.read_bytes())
    other.write_bytes(store_compactor(LinearCompactor("svd", torch.ones(6, 32)), notes, coding))
    monkeypatch.setattr(Edit, "commit", commit_then_stop)
    stops = 0
    while True:
        left = 2 if stops > len(unbroken.manifest.segments) else 1  # the last two commits come in one call
        try:
            memory = run("memory")
        except StopError:
            stops += 1
            if stops == 3:
                for wrong in (None, other):
                    with pytest.raises(MismatchError, match="started with a compactor"):
                        run("memory", wrong)
            continue
        break
    assert stops == len(unbroken.manifest.segments) + 2
    assert segment_files(memory.path) == segment_files(unbroken.path)
    assert memory.manifest.stages == unbroken.manifest.stages


def test_an_extraction_started_with_the_models_own_keys_continues_with_them(
    tmp_path: Path, tiny: BaseModel, few: Path, whole: Memory, compactor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Edit, "set_complete", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            extract(tiny, Corpus([few]), tmp_path / "memory", settings=SMALL)
    memory = extract(tiny, Corpus([few]), tmp_path / "memory", settings=SMALL, compactor=compactor)
    assert memory.layout == Layout()
    assert segment_files(memory.path) == segment_files(whole.path)
