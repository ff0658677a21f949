"""Every architecture that ibidem loads can be adapted, and its folder loads again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ibidem.learn import AdaptSettings, adapt_model
from ibidem.model import load_model
from ibidem.text import Corpus

from .zoo import KINDS

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = AdaptSettings(updates=6, batch_tokens=2048, learning_rate=3e-3, measurements=2, bfloat16=False)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_falls_and_the_folder_loads(kind: str, model_of, sentences, tmp_path: Path) -> None:
    shared = model_of(kind)
    model = load_model(shared.name, device="cpu", **KINDS[kind].options)  # the shared one must not be trained
    file = tmp_path / "text.tsv"
    file.write_text("".join(f"{s.german}\t{s.english}\n" for s in sentences[:30]), "utf-8")
    adapted = adapt_model(model, Corpus([file]), tmp_path / "model", dev=Corpus([file]), settings=SETTINGS)
    assert adapted.report["dev_loss"] < adapted.report["dev_loss_before"]
    loaded = load_model(adapted.path, device="cpu", **KINDS[kind].options)
    assert loaded.fingerprint != shared.fingerprint
    assert loaded.tokenizer_fingerprint == shared.tokenizer_fingerprint
