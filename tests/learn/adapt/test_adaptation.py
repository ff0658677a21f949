"""The folder of an adapted model: what it holds, when it appears, and what it is refused for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.numpy import save
from safetensors.torch import load_file

from ibidem import IbidemError, Memory, Translator, adapt
from ibidem.compact import GENERAL_COMPACTOR, LinearCompactor, load_compactor, store_compactor
from ibidem.errors import LockedMemoryError, TextError, UsageError
from ibidem.learn import (
    AdaptSettings,
    ContextualSettings,
    LearnSettings,
    MetaKSettings,
    TuneSettings,
    adapt_model,
    create_memory,
)
from ibidem.memory import KeyCoding, SourceProjection, writer_lock
from ibidem.model import GENERAL_FOLDER, load_model
from ibidem.text import Corpus

SETTINGS = AdaptSettings(updates=12, batch_tokens=1024, learning_rate=3e-3, measurements=3, bfloat16=False, seed=1)


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path, corpus_file: Path) -> Path:
    """The tiny model, adapted to the project's sentences; read only."""
    path = tmp_path_factory.mktemp("adapted") / "model"
    assert adapt(tiny_folder, train=corpus_file, path=path, settings=SETTINGS).improved
    return path


def run(folder: Path, corpus_file: Path, path: Path, settings: AdaptSettings = SETTINGS, **options):
    model = load_model(folder, device="cpu")
    return adapt_model(model, Corpus([corpus_file]), path, settings=settings, **options)


def test_the_folder_holds_the_chosen_weights(adapted: Path, tiny_folder: Path) -> None:
    report = json.loads((adapted / "training.json").read_bytes())
    assert report["dev_loss"] < report["dev_loss_before"]
    before, after = load_model(tiny_folder, device="cpu"), load_model(adapted, device="cpu")
    assert after.fingerprint != before.fingerprint
    assert after.tokenizer_fingerprint == before.tokenizer_fingerprint
    assert after.name == str(adapted)
    assert not adapted.with_name("model.training").exists()
    card = (adapted / "README.md").read_text("utf-8")
    assert f"{report['dev_loss']:.3g}" in card
    assert "| learning rate | 0.003 |" in card
    assert str(report["pairs"]) in card
    assert len(report["history"]) == 4


def test_a_memory_of_the_adapted_model(adapted: Path, corpus_file: Path, tmp_path: Path) -> None:
    settings = LearnSettings(
        tune=TuneSettings(metak=MetaKSettings(updates=20), contextual=ContextualSettings(updates=20))
    )
    memory = Memory.learn(adapted, train=corpus_file, path=tmp_path / "memory", device="cpu", settings=settings)
    translator = Translator(memory=memory, device="cpu")
    assert translator.model.name == str(adapted)
    assert len(translator.translate(["Guten Morgen!", "Die Datei ist leer."])) == 2
    explanation = translator.explain(["Die Datei ist leer."])[0]
    assert explanation.translation == translator.translate(["Die Datei ist leer."])[0]
    assert any(token.neighbours for token in explanation.tokens)


def test_the_same_call_again_does_nothing(adapted: Path, tiny_folder: Path, corpus_file: Path, tmp_path: Path) -> None:
    path = shutil.copytree(adapted, tmp_path / "model")
    files = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    (tmp_path / "model.training").mkdir()  # as if the process was killed before it could remove it
    run(tiny_folder, corpus_file, path, report=lambda _: pytest.fail("trained again"))
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == files
    assert not (tmp_path / "model.training").exists()
    for changed in (replace(SETTINGS, seed=2), replace(SETTINGS, learning_rate=1e-3)):
        with pytest.raises(UsageError, match="other text or settings"):
            run(tiny_folder, corpus_file, path, changed)


def test_other_content_is_never_touched(tiny_folder: Path, corpus_file: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("mine", "utf-8")
    (tmp_path / "file").write_text("mine", "utf-8")
    for name in ("notes", "file", "."):
        with pytest.raises(UsageError, match="exists and is not a model of `ibidem adapt`"):
            run(tiny_folder, corpus_file, tmp_path / name)
    with pytest.raises(UsageError, match="exists and is not"):
        run(tiny_folder, corpus_file, tiny_folder)
    assert (tmp_path / "notes" / "thesis.txt").read_text("utf-8") == "mine"
    (tmp_path / "empty").mkdir()
    assert run(tiny_folder, corpus_file, tmp_path / "empty", replace(SETTINGS, updates=1)).path.is_dir()


def test_an_unfinished_run_of_other_settings_is_kept(tiny_folder: Path, corpus_file: Path, tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(_: object) -> None:
        raise StopError

    path = tmp_path / "model"
    with pytest.raises(StopError):
        run(tiny_folder, corpus_file, path, report=stop)
    assert not path.exists()
    with pytest.raises(UsageError, match=r"model\.training holds an unfinished run"):
        run(tiny_folder, corpus_file, path, replace(SETTINGS, updates=11))
    with writer_lock(tmp_path / "model.training"), pytest.raises(LockedMemoryError):
        run(tiny_folder, corpus_file, path)
    assert run(tiny_folder, corpus_file, path).improved


PROCESS = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from ibidem.learn import AdaptSettings, adapt_model
from ibidem.learn.adapt import trainer
from ibidem.model import load_model
from ibidem.text import Corpus
trainer._CHECKPOINT_SECONDS, trainer._CHECKPOINT_SHARE = -1.0, 1e9
settings = AdaptSettings(updates=12, batch_tokens=1024, learning_rate=3e-3, measurements=3, bfloat16=False, seed=1)
model, corpus, path, slow = sys.argv[1:]
def wait(label, share, done, unit):
    print(round(share * 12), flush=True)
    if slow == "slow" and share > 0.5:
        sys.stdin.read()
adapt_model(load_model(model, device="cpu"), Corpus([corpus]), Path(path), settings=settings, progress=wait)
"""


@pytest.mark.slow
def test_a_killed_process_continues_to_the_same_bytes(tiny_folder: Path, corpus_file: Path, tmp_path: Path) -> None:
    def start(path: Path, mode: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PROCESS, str(tiny_folder), str(corpus_file), str(path), mode]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    whole = start(tmp_path / "whole", "fast")
    killed = start(tmp_path / "killed", "slow")
    assert killed.stdout is not None
    for line in killed.stdout:
        if int(line) == 7:
            break
    time.sleep(0.2)
    killed.kill()
    killed.communicate()
    assert whole.wait(timeout=120) == 0
    whole.communicate()
    assert not (tmp_path / "killed").exists()
    again = start(tmp_path / "killed", "fast")
    shown, _ = again.communicate(timeout=120)
    assert again.returncode == 0
    assert 0 < len(shown.split()) < 12
    assert sorted(file.name for file in tmp_path.iterdir()) == ["killed", "whole"]
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert weights[0] == weights[1]


def test_general_text_is_mixed_in_and_measured(tiny_folder: Path, sentences, corpus_file: Path, tmp_path: Path) -> None:
    domain = tmp_path / "domain.tsv"
    domain.write_text("".join(f"{s.german}\t{s.english}\n" for s in sentences[:40]), "utf-8")
    settings = replace(SETTINGS, updates=4, measurements=2)
    dev, general = (Corpus([corpus_file]) for _ in range(2))
    mixed = run(tiny_folder, domain, tmp_path / "mixed", settings, dev=dev, general=general).report
    plain = run(tiny_folder, domain, tmp_path / "plain", settings, dev=dev).report
    assert mixed["general_pairs"] > 40
    assert mixed["general_loss"] != mixed["general_loss_before"]
    assert "general_loss" not in plain
    assert mixed["passes"] < plain["passes"]
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("mixed", "plain")]
    assert any(not torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_text_that_cannot_be_used(tiny_folder: Path, tmp_path: Path) -> None:
    few = tmp_path / "few.tsv"
    few.write_text("Hallo\thello\nTag\tday\n", "utf-8")
    with pytest.raises(UsageError, match="too few different pairs to hold some out: give a dev set"):
        run(tiny_folder, few, tmp_path / "model")
    empty = tmp_path / "empty.tsv"
    empty.write_text("\n", "utf-8")
    for options in ({"dev": Corpus([empty])}, {"dev": Corpus([few]), "general": Corpus([empty])}):
        with pytest.raises(TextError, match=r"No pair could be used of .*empty\.tsv"):
            run(tiny_folder, few, tmp_path / "model", **options)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["empty.tsv", "few.tsv"]
    assert run(tiny_folder, few, tmp_path / "model", dev=Corpus([few])).path.is_dir()


def test_rounded_weights_are_refused(tiny_folder: Path, corpus_file: Path, tmp_path: Path) -> None:
    model = load_model(tiny_folder, device="cpu", dtype="bfloat16")
    with pytest.raises(UsageError, match="dtype float32"):
        adapt_model(model, Corpus([corpus_file]), tmp_path / "model")


def test_a_quantised_model_is_refused(tiny_folder: Path, corpus_file: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_folder, tmp_path / "quantised")
    config = json.loads((folder / "config.json").read_bytes())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(IbidemError, match="is quantised"):
        adapt(folder, train=corpus_file, path=tmp_path / "model")


def test_the_general_parts_belong_to_the_adapted_model(
    tiny_folder: Path, tiny, corpus_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(tiny_folder, tmp_path / "base")
    (folder / GENERAL_FOLDER).mkdir()
    matrix = torch.eye(32)[:8].contiguous()
    keys = torch.randn(100, 8, generator=torch.Generator().manual_seed(1))
    notes = {"model": "tiny", "model_fingerprint": tiny.fingerprint}
    stored = store_compactor(LinearCompactor("pca", matrix, torch.zeros(32)), notes, KeyCoding.fit(keys.numpy()))
    (folder / GENERAL_FOLDER / GENERAL_COMPACTOR).write_bytes(stored)
    projection = save(SourceProjection.random(32).tensors())
    (folder / GENERAL_FOLDER / "source_projection.safetensors").write_bytes(projection)
    (folder / GENERAL_FOLDER / "combiner.safetensors").write_bytes(b"copied unread")
    synced: list[str] = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real_fsync(descriptor)

    def rename(source: Path, target: Path) -> None:
        if target == tmp_path / "model":  # a power cut must not leave a part of it
            assert {str(place) for place in (source, *source.rglob("*"))} <= {*synced}
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", rename)
    path = run(folder, corpus_file, tmp_path / "model", replace(SETTINGS, updates=2)).path
    adapted = load_model(path, device="cpu")
    assert adapted.general == path / GENERAL_FOLDER
    memory = create_memory(tmp_path / "memory", adapted)  # raises MismatchError for a compactor of another model
    assert memory.dimension == 8
    carried = load_compactor(path / GENERAL_FOLDER / GENERAL_COMPACTOR)
    assert torch.equal(carried.state_dict()["projection"], matrix)
    (folder / GENERAL_FOLDER / GENERAL_COMPACTOR).write_bytes(b"damaged")
    with pytest.raises(IbidemError, match="compactor"):
        run(folder, corpus_file, tmp_path / "other", report=lambda _: pytest.fail("trained before it was read"))
