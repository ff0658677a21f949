"""The base model's recipe, end to end on a handful of sentences: paused, resumed, exported, packed, loaded."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.decode import Translator
from ibidem.model import load_model, registry
from ibidem.model.loading import pack_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
CONFIG = """
seed = 1
[languages]
source = "en"
target = "de"
[vocabulary]
size = 400
sentences = 1000
character_coverage = 1.0
threads = 1
[[corpus]]
source = "train.en"
target = "train.de"
[dev]
source = "train.en"
target = "train.de"
sentences = 4
[model]
encoder_layers = 1
decoder_layers = 1
d_model = 16
heads = 2
ffn = 32
dropout = 0.1
attention_dropout = 0.0
max_positions = 128
[training]
max_tokens = 400
max_length = 60
minutes = 10
steps = 12
learning_rate = 1e-3
warmup_steps = 4
final_learning_rate = 1e-4
label_smoothing = 0.1
clip = 1.0
average_from = 0.5
evaluate_every_minutes = 5
checkpoint_every_minutes = 5
"""


def run(folder: Path, *options: str) -> str:
    command = [sys.executable, str(ROOT / "recipes" / "base_model"), str(folder / "config.toml")]
    command += ["--data", str(folder), "--output", str(folder / "run"), "--device", "cpu", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_text_in_model_out(tmp_path: Path, sentences: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.toml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "train.de").write_text("".join(f"{s.german}\n" for s in sentences), encoding="utf-8")
    (tmp_path / "train.en").write_text("".join(f"{s.english}\n" for s in sentences), encoding="utf-8")
    assert "paused at step 1," in run(tmp_path, "--pause-after", "0")
    assert not (tmp_path / "run" / "model").exists()
    in_time = ("--end-at", str(time.time() + 900), "--snapshot-at", "0.5")
    assert "resumed at step 1\n" in run(tmp_path, *in_time)
    snapshot = json.loads((tmp_path / "run" / "snapshot" / "config.json").read_text(encoding="utf-8"))

    model, shipped = tmp_path / "run" / "model", tmp_path / "shipped" / "ibidem-base-en-de"
    assert snapshot == json.loads((model / "config.json").read_text(encoding="utf-8"))
    pack_folder(model, shipped)
    monkeypatch.setattr(registry, "_SHIPPED_FOLDER", shipped.parent)
    plain, packed = load_model(model, device="cpu"), load_model(source_language="en", device="cpu")
    assert packed.name == shipped.name
    assert (packed.tokens.source_language, packed.tokens.target_language) == ("en", "de")
    assert packed.tokenizer_fingerprint == plain.tokenizer_fingerprint
    assert plain.tokens.decode(plain.tokens.encode_targets(["The file is missing."])[0]) == "The file is missing."
    assert len(Translator(packed).translate(["The file is missing.", ""])) == 2
    write_card(tmp_path, shipped)


@pytest.fixture
def recipe(tmp_path: Path, sentences: list[Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The main module of the recipe, and its configuration and text in the folder of the test."""
    (tmp_path / "config.toml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "train.de").write_text("".join(f"{s.german}\n" for s in sentences), encoding="utf-8")
    (tmp_path / "train.en").write_text("".join(f"{s.english}\n" for s in sentences), encoding="utf-8")
    folder = ROOT / "recipes" / "base_model"
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(folder))
    spec = importlib.util.spec_from_file_location("base_model_recipe", folder / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    yield module
    for name in {file.stem for file in folder.glob("*.py")} - before:
        sys.modules.pop(name, None)


def test_a_collapsed_run_starts_again_and_an_ended_one_goes_on(
    recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    rates = []
    plain = recipe.Trainer.run

    def collapse_once(trainer: Any, *texts: Any) -> bool:
        rates.append(trainer.settings.training.learning_rate)
        if len(rates) == 1:
            raise recipe.CollapsedError("collapsed")
        return bool(plain(trainer, *texts))

    monkeypatch.setattr(recipe.Trainer, "run", collapse_once)
    settings = recipe.read_settings(tmp_path / "config.toml")
    folder = tmp_path / "run"

    def train(steps: int) -> list[dict[str, float]]:
        longer = recipe.replace(settings, training=recipe.replace(settings.training, steps=steps))
        folder.mkdir(exist_ok=True)
        recipe.train(longer, tmp_path, folder, torch.device("cpu"), recipe.Limits(end_at=time.time() + 900))
        return list(json.loads((folder / "model" / "training.json").read_text(encoding="utf-8")))

    assert [entry["step"] for entry in train(4)] == [4]
    assert rates == [1e-3, 5e-4]
    weights = (folder / "model" / "model.safetensors").read_bytes()
    monkeypatch.setattr(recipe.Trainer, "dev_bleu", lambda *_: 100.0)
    assert [entry["step"] for entry in train(8)] == [4, 8]
    assert (folder / "model" / "model.safetensors").read_bytes() != weights
    monkeypatch.setattr(recipe.Trainer, "dev_bleu", lambda *_: 99.0)
    assert [entry["step"] for entry in train(12)] == [4, 8], "the better model is kept"


def test_the_end_of_a_run_moves_its_average(recipe: Any, tmp_path: Path) -> None:
    import torch

    settings = recipe.read_settings(tmp_path / "config.toml")
    trainer = recipe.Trainer(settings, recipe.build_model(settings.model, 400), tmp_path, torch.device("cpu"))
    trainer.state.elapsed, trainer.state.averaged = 120.0, 5
    trainer.end_in(1.0)
    assert trainer.settings.training.minutes == 3.0
    assert trainer.state.averaged == 5, "two thirds are done, and the second half is averaged"
    trainer.end_in(-1.0)
    assert trainer.progress() > 0.999
    trainer = recipe.Trainer(settings, trainer.weights, tmp_path, torch.device("cpu"))
    trainer.state.elapsed, trainer.state.averaged = 120.0, 5
    trainer.end_in(30.0)
    assert trainer.settings.training.minutes == settings.training.minutes
    assert trainer.state.averaged == 0


def write_card(folder: Path, shipped: Path) -> None:
    """Check that the card has the scores of a report and the last line of the log."""
    report = {
        "beam": 4,
        "length_penalty": 1.0,
        "sentences": 1_012,
        "signatures": {"BLEU": "nrefs:1"},
        "systems": {"base": {"scores": {"BLEU": 24.68}}},
    }
    (folder / "flores.json").write_text(json.dumps(report), encoding="utf-8")
    command = [sys.executable, str(ROOT / "recipes" / "base_model" / "card.py"), str(shipped)]
    command += ["--config", str(folder / "config.toml"), "--scores", f"flores={folder / 'flores.json'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    card = (shipped / "README.md").read_text(encoding="utf-8")
    assert "A English-German" not in card
    assert "An English-German base model" in card
    assert "| flores | 1,012 | 24.7 |" in card
    assert "12 steps of 400 padded tokens" in card
    assert "general parts | no" in card
