"""Fingerprints of models and tokenizers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from safetensors.torch import load_file, save_file

from ibidem.model import BaseModel, load_model

from .zoo import KINDS

if TYPE_CHECKING:
    from pathlib import Path


def test_fingerprints_are_stable(any_model: BaseModel, request: pytest.FixtureRequest) -> None:
    options = KINDS[request.node.callspec.params["any_model"]].options
    again = load_model(any_model.name, device="cpu", **options)
    assert again.fingerprint == any_model.fingerprint
    assert again.tokenizer_fingerprint == any_model.tokenizer_fingerprint


def test_fingerprints_differ(model_of) -> None:
    loaded = [model_of(kind) for kind in KINDS]
    assert len({model.fingerprint for model in loaded}) == len(KINDS)
    assert len({model.tokenizer_fingerprint for model in loaded}) == len(KINDS)


@pytest.mark.parametrize("name", ["model.decoder.layers.1.fc2.bias", "final_logits_bias", "model.shared.weight"])
def test_one_changed_weight_changes_the_fingerprint(tiny: BaseModel, copied: Path, name: str) -> None:
    weights = load_file(copied / "model.safetensors")
    key = next(key for key in weights if key in (name, name.replace("model.shared", "model.encoder.embed_tokens")))
    weights[key].view(-1)[3] += 0.25
    save_file(weights, copied / "model.safetensors", metadata={"format": "pt"})
    changed = load_model(copied, device="cpu")
    assert changed.fingerprint != tiny.fingerprint
    assert changed.tokenizer_fingerprint == tiny.tokenizer_fingerprint


def test_two_swapped_pieces_change_the_tokenizer_fingerprint(tiny: BaseModel, copied: Path) -> None:
    pieces = json.loads((copied / "vocab.json").read_text(encoding="utf-8"))
    first, second = list(pieces)[-2:]
    pieces[first], pieces[second] = pieces[second], pieces[first]
    (copied / "vocab.json").write_text(json.dumps(pieces), encoding="utf-8")
    changed = load_model(copied, device="cpu")
    assert changed.tokenizer_fingerprint != tiny.tokenizer_fingerprint
    assert changed.fingerprint == tiny.fingerprint


def test_another_target_language_changes_the_tokenizer_fingerprint(model_of) -> None:
    model = model_of("m2m100")
    french = load_model(model.name, device="cpu", source_language="de", target_language="fr")
    assert french.tokenizer_fingerprint != model.tokenizer_fingerprint
    assert french.fingerprint == model.fingerprint
