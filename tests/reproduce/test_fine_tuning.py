from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ibidem.model import load_model
from ibidem.reproduce.fine_tuning import Encoded, FineTuningSettings, fine_tune, measure_loss

SETTINGS = FineTuningSettings(updates=30, learning_rate=3e-3, warmup=5, judge_every=10, seed=3)


@pytest.fixture
def fresh(tiny_folder):
    return load_model(tiny_folder, device="cpu")


@pytest.fixture(scope="module")
def pairs(sentences) -> tuple[list[str], list[str]]:
    chosen = [sentence for sentence in sentences if len(sentence.german) < 60][:40]
    return [sentence.german for sentence in chosen], [sentence.english for sentence in chosen]


def test_the_loss_is_that_of_the_frozen_model(fresh, pairs) -> None:
    text = Encoded.of(fresh, *pairs, 4096)
    with torch.no_grad():
        losses = [measure_loss(fresh, text, rows) for rows in text.batches]
    states = fresh.states(text.sources, text.targets)
    assert float(sum(loss for loss, _ in losses)) == pytest.approx(float(-fresh.log_probs(states).sum()), rel=1e-4)
    assert sum(tokens for _, tokens in losses) == len(states.values)


def test_training_lowers_the_loss_and_keeps_the_best(fresh, pairs) -> None:
    text = Encoded.of(fresh, *pairs, 512)
    report = fine_tune(fresh, text, text, SETTINGS)
    losses = [loss for _, loss in report["history"]]
    assert report["loss"] == min(losses) < losses[0] - 0.5
    assert report["updates"] == 30
    with torch.no_grad():
        found = [measure_loss(fresh, text, rows) for rows in text.batches]
    kept = float(sum(loss for loss, _ in found)) / sum(tokens for _, tokens in found)
    assert kept == pytest.approx(report["loss"], rel=1e-5)
    assert not any(parameter.requires_grad for parameter in fresh.network.parameters())


def test_the_same_seed_gives_the_same_weights(tiny_folder, pairs) -> None:
    models = [load_model(tiny_folder, device="cpu") for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        text = Encoded.of(model, *pairs, 512)
        fine_tune(model, text, text, replace(SETTINGS, updates=6, judge_every=3, seed=seed))
    weights = [model.projection.weight for model in models]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_no_updates_leave_the_model_as_it_was(fresh, tiny, pairs) -> None:
    text = Encoded.of(fresh, *pairs, 512)
    report = fine_tune(fresh, text, text, replace(SETTINGS, updates=0))
    assert (report["updates"], report["best_update"]) == (0, 0)
    assert torch.equal(fresh.projection.weight, tiny.projection.weight)


def test_training_that_makes_it_worse_ends_early(fresh, pairs) -> None:
    text = Encoded.of(fresh, *pairs, 512)
    wild = replace(SETTINGS, updates=1000, learning_rate=3.0, warmup=1, judge_every=1, patience=3)
    report = fine_tune(fresh, text, text, wild)
    assert report["updates"] < 1000
    assert report["loss"] <= report["history"][0][1]
