"""The base model's recipe, end to end on a handful of sentences: paused, resumed, exported, packed, loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from ibidem.decode import Translator
from ibidem.model import load_model
from ibidem.model.loading import pack_folder

ROOT = Path(__file__).parents[2]
CONFIG = """
seed = 1
[vocabulary]
size = 400
sentences = 1000
character_coverage = 1.0
threads = 1
[[corpus]]
source = "train.de"
target = "train.en"
[dev]
source = "train.de"
target = "train.en"
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


def test_text_in_model_out(tmp_path: Path, sentences: list[Any]) -> None:
    (tmp_path / "config.toml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "train.de").write_text("".join(f"{s.german}\n" for s in sentences), encoding="utf-8")
    (tmp_path / "train.en").write_text("".join(f"{s.english}\n" for s in sentences), encoding="utf-8")
    assert "paused at step 1," in run(tmp_path, "--pause-after", "0")
    assert not (tmp_path / "run" / "model").exists()
    assert "resumed at step 1\n" in run(tmp_path)

    model = tmp_path / "run" / "model"
    pack_folder(model, tmp_path / "packed")
    plain, packed = load_model(model, device="cpu"), load_model(tmp_path / "packed", device="cpu")
    assert packed.tokenizer_fingerprint == plain.tokenizer_fingerprint
    assert plain.tokens.decode(plain.tokens.encode_targets(["The file is missing."])[0]) == "The file is missing."
    assert len(Translator(packed).translate(["Die Datei fehlt.", ""])) == 2
