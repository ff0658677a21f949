"""The base model's recipe, end to end on a handful of sentences: paused, resumed, exported, packed, loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ibidem.decode import Translator
from ibidem.model import load_model, registry
from ibidem.model.loading import pack_folder

if TYPE_CHECKING:
    import pytest

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
    assert "resumed at step 1\n" in run(tmp_path)

    model, shipped = tmp_path / "run" / "model", tmp_path / "shipped" / "ibidem-base-en-de"
    pack_folder(model, shipped)
    monkeypatch.setattr(registry, "_SHIPPED_FOLDER", shipped.parent)
    plain, packed = load_model(model, device="cpu"), load_model(source_language="en", device="cpu")
    assert packed.name == shipped.name
    assert (packed.tokens.source_language, packed.tokens.target_language) == ("en", "de")
    assert packed.tokenizer_fingerprint == plain.tokenizer_fingerprint
    assert plain.tokens.decode(plain.tokens.encode_targets(["The file is missing."])[0]) == "The file is missing."
    assert len(Translator(packed).translate(["The file is missing.", ""])) == 2
    write_card(tmp_path, shipped)


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
