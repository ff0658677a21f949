"""Low-rank adapters of the tiny model: what they compute, what is trained, merging, resumption."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from ibidem import adapt
from ibidem.errors import ModelError, UsageError
from ibidem.learn import AdaptSettings, EncodedText, fine_tune, measure_text
from ibidem.learn.adapt.adapters import DOWN, UP, Adapters, adapted_layers
from ibidem.model import load_model
from ibidem.text import Corpus

if TYPE_CHECKING:
    from pathlib import Path

RANK = 4
SETTINGS = AdaptSettings(
    updates=20,
    passes=100,
    batch_tokens=512,
    forward_tokens=256,
    learning_rate=2e-2,
    measurements=4,
    bfloat16=False,
    lora_rank=RANK,
    seed=3,
)


@pytest.fixture
def fresh(tiny_folder):
    return load_model(tiny_folder, device="cpu")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory, sentences, tiny) -> EncodedText:
    file = tmp_path_factory.mktemp("text") / "text.tsv"
    chosen = [sentence for sentence in sentences if len(sentence.german) < 60][:30]
    file.write_text("".join(f"{s.german}\t{s.english}\n" for s in chosen), encoding="utf-8")
    return EncodedText.read(Corpus([file]), tiny.tokens)


def weights_of(model) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in model.network.named_parameters()}


def randomise(network: nn.Module) -> None:
    """Give adapters products that are not zero."""
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if name.endswith(UP):
                weight.normal_(0, 0.05, generator=draw)


def test_new_adapters_change_nothing(fresh, text) -> None:
    before, weights = measure_text(fresh, text, 512), weights_of(fresh)
    adapters = Adapters(fresh.network, RANK, 2.0, 1)
    assert measure_text(fresh, text, 512) == before
    adapters.merge()
    after = weights_of(fresh)
    assert after.keys() == weights.keys()
    assert all(torch.equal(after[name], weights[name]) for name in weights)


def test_only_adapters_have_gradients(fresh) -> None:
    Adapters(fresh.network, RANK, 2.0, 1)
    trained = {name for name, weight in fresh.network.named_parameters() if weight.requires_grad}
    layers = adapted_layers(fresh.network)
    assert len(trained) == 2 * len(layers)
    assert all(name.endswith((UP, DOWN)) for name in trained)
    assert fresh.network.get_output_embeddings() not in layers
    # encoder and decoder: four projections of each attention, and two layers of each feed-forward block
    settings = fresh.network.config
    assert len(layers) == settings.encoder_layers * (4 + 2) + settings.decoder_layers * (8 + 2)


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_merged_weights_compute_what_the_adapters_did(fresh, text, scale: float) -> None:
    plain = measure_text(fresh, text, 512)
    layer = adapted_layers(fresh.network)[0]
    weight = layer.weight.detach().clone()
    adapters = Adapters(fresh.network, RANK, scale, 1)
    randomise(fresh.network)
    product = scale * layer.get_parameter(UP).detach() @ layer.get_parameter(DOWN).detach()
    unmerged = measure_text(fresh, text, 512)
    adapters.merge()
    assert abs(unmerged - plain) > 1e-3
    assert measure_text(fresh, text, 512) == pytest.approx(unmerged, rel=1e-5)
    assert torch.allclose(layer.weight, weight + product, atol=1e-6)
    assert torch.linalg.matrix_rank(product) == RANK


def test_training_changes_the_adapted_layers_by_matrices_of_low_rank(fresh, text) -> None:
    before = weights_of(fresh)
    layers = adapted_layers(fresh.network)
    report = fine_tune(fresh, text, text, SETTINGS)
    assert report["dev_loss"] < report["dev_loss_before"] - 0.2
    assert report["trained_weights"] == sum(RANK * (layer.in_features + layer.out_features) for layer in layers)
    assert measure_text(fresh, text, SETTINGS.forward_tokens) == pytest.approx(report["dev_loss"], rel=1e-5)
    after = weights_of(fresh)
    assert after.keys() == before.keys()
    changed = {name: after[name] - before[name] for name in before if not torch.equal(after[name], before[name])}
    assert len(changed) == len(layers)
    assert all(torch.linalg.matrix_rank(change, rtol=1e-3) <= RANK for change in changed.values())


def test_rank_0_trains_all_weights(tiny_folder, text) -> None:
    found = []
    for settings in (replace(SETTINGS, lora_rank=0), replace(SETTINGS, lora_rank=0, lora_scale=7.0)):
        model = load_model(tiny_folder, device="cpu")
        report = fine_tune(model, text, text, replace(settings, updates=2, measurements=1, learning_rate=3e-3))
        assert report["trained_weights"] > SETTINGS.lora_rank * 10_000
        found.append(weights_of(model))
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    embeddings = "model.shared.weight"
    assert not torch.equal(found[0][embeddings], weights_of(load_model(tiny_folder, device="cpu"))[embeddings])


class KilledError(Exception):
    """Stands for the signal that ends the process."""


def test_a_killed_run_continues_to_the_same_weights(
    tiny_folder, text, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint is written after every update; the run ends without any warning in update 18, with an average."""
    monkeypatch.setattr("ibidem.learn.adapt.trainer._CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr("ibidem.learn.adapt.trainer._CHECKPOINT_SHARE", 1e9)
    whole = load_model(tiny_folder, device="cpu")
    expected = fine_tune(whole, text, text, SETTINGS)
    updates: list[int] = []

    def kill(_label: str, _share: float | None, _done: int, _unit: str) -> None:
        updates.append(1)
        if len(updates) == 18:
            raise KilledError

    with pytest.raises(KilledError):
        fine_tune(load_model(tiny_folder, device="cpu"), text, text, SETTINGS, workspace=tmp_path, progress=kill)
    done: list[int] = []
    second = load_model(tiny_folder, device="cpu")
    report = fine_tune(second, text, text, SETTINGS, workspace=tmp_path, progress=lambda *_: done.append(1))
    assert len(done) == 3
    assert report["history"] == expected["history"]
    first, again = weights_of(whole), weights_of(second)
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_the_folder_has_merged_weights_and_says_how_they_were_trained(
    tiny_folder: Path, corpus_file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "model"
    settings = replace(SETTINGS, updates=6, measurements=1, batch_tokens=1024, forward_tokens=None)
    adapted = adapt(tiny_folder, train=corpus_file, path=path, settings=settings)
    assert adapted.improved
    report = json.loads((path / "training.json").read_bytes())
    assert report["settings"]["lora_rank"] == RANK
    assert f"adapters of rank {RANK} (LoRA)" in (path / "README.md").read_text("utf-8")
    before, after = load_model(tiny_folder, device="cpu"), load_model(path, device="cpu")
    assert weights_of(after).keys() == weights_of(before).keys()
    assert after.fingerprint != before.fingerprint


def test_a_network_without_linear_layers_is_refused() -> None:
    with pytest.raises(ModelError, match="lora_rank=0"):
        Adapters(nn.Embedding(3, 4), RANK, 2.0, 0)


@pytest.mark.parametrize("wrong", [{"lora_rank": -1}, {"lora_scale": 0.0}, {"lora_scale": float("nan")}])
def test_invalid_settings(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        AdaptSettings(**wrong)  # type: ignore[arg-type]
