"""Fine-tuning of the tiny model: losses, schedule, choice of weights, resumption."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from ibidem.errors import ModelError, UsageError
from ibidem.learn import AdaptSettings, EncodedText, fine_tune, measure_loss, measure_text
from ibidem.learn.adapt.trainer import CHECKPOINT, trained_weights
from ibidem.model import load_model
from ibidem.text import Corpus

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = AdaptSettings(
    updates=30,
    passes=100,
    batch_tokens=512,
    forward_tokens=256,
    learning_rate=3e-3,
    measurements=5,
    bfloat16=False,
    seed=3,
)


@pytest.fixture
def fresh(tiny_folder):
    return load_model(tiny_folder, device="cpu")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory, sentences, tiny) -> EncodedText:
    file = tmp_path_factory.mktemp("text") / "text.tsv"
    chosen = [sentence for sentence in sentences if len(sentence.german) < 60][:40]
    file.write_text("".join(f"{s.german}\t{s.english}\n" for s in chosen), encoding="utf-8")
    return EncodedText.read(Corpus([file]), tiny.tokens)


def weights_of(model) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in model.network.named_parameters()}


def same_weights(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


def test_the_loss_is_that_of_the_frozen_model(fresh, text) -> None:
    with torch.no_grad():
        losses = [float(measure_loss(fresh, text, rows)) for rows in text.batches(512)]
    sources, targets = ([ids.tolist() for ids in side] for side in (text.sources, text.targets))
    states = fresh.states(sources, targets)
    assert sum(losses) == pytest.approx(float(-fresh.log_probs(states).sum()), rel=1e-4)
    assert text.target_tokens == len(states.values)
    assert measure_text(fresh, text, 512) == pytest.approx(sum(losses) / text.target_tokens, rel=1e-6)


def test_the_gradient_of_an_update_does_not_depend_on_its_forward_passes(tiny_folder, text) -> None:
    """Without dropout, one large forward pass and several small ones give the same weights."""
    found = []
    for forward in (100, 4000):
        model = load_model(tiny_folder, device="cpu")
        for module in model.network.modules():
            if hasattr(module, "dropout"):
                module.dropout = 0.0
        settings = replace(SETTINGS, updates=1, warmup=0.0, batch_tokens=4000, forward_tokens=forward, measurements=1)
        train = text.select(range(10))
        fine_tune(model, train, train, settings)
        found.append(weights_of(model))
    changes = {name: float((found[0][name] - found[1][name]).abs().max()) for name in found[0]}
    # The bias of attention keys has no influence; Adam enlarges the rounding errors that are its gradient.
    assert [name for name, change in changes.items() if change > 1e-4 and not name.endswith("k_proj.bias")] == []


def test_training_lowers_the_loss_and_keeps_the_best(fresh, text) -> None:
    seen = []
    report = fine_tune(fresh, text, text, SETTINGS, report=seen.append)
    losses = [loss for point in report["history"] for loss in (point["dev_loss"], point["average_loss"]) if loss]
    assert report["dev_loss"] == min(losses) < report["dev_loss_before"] - 0.5
    assert (report["updates"], [point.update for point in seen]) == (30, [0, 6, 12, 18, 24, 30])
    assert [point.average_loss is None for point in seen] == [True, True, True, True, False, False]
    assert seen[-1].seconds_left == 0
    assert seen[-1].loss < seen[1].loss
    assert measure_text(fresh, text, SETTINGS.forward_tokens) == pytest.approx(report["dev_loss"], rel=1e-6)
    assert not any(weight.requires_grad for weight in fresh.network.parameters())


def test_position_embeddings_are_not_trained(fresh) -> None:
    names = {name for name, _ in fresh.network.named_parameters() if "embed_positions" in name}
    assert names
    assert not names & trained_weights(fresh.network).keys()


def test_the_same_seed_gives_the_same_weights(tiny_folder, text) -> None:
    found = []
    for seed in (1, 1, 2):
        model = load_model(tiny_folder, device="cpu")
        torch.manual_seed(len(found))  # what the caller draws plays no part
        fine_tune(model, text, text, replace(SETTINGS, updates=6, measurements=2, seed=seed))
        found.append(weights_of(model))
    assert same_weights(found[0], found[1])
    assert not same_weights(found[0], found[2])


def test_the_callers_random_numbers_are_untouched(fresh, text) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fine_tune(fresh, text, text, replace(SETTINGS, updates=2, measurements=1))
    assert torch.equal(torch.rand(3), expected)


def test_no_updates_leave_the_model_as_it_was(fresh, tiny, text) -> None:
    report = fine_tune(fresh, text, text, replace(SETTINGS, updates=0))
    assert (report["updates"], report["best_update"]) == (0, 0)
    assert same_weights(weights_of(fresh), weights_of(tiny))


def test_training_that_makes_it_worse_ends_early_with_the_base_weights(fresh, tiny, text) -> None:
    wild = replace(SETTINGS, updates=100, learning_rate=3.0, warmup=0.01, measurements=100, patience=3)
    report = fine_tune(fresh, text, text, wild)
    assert report["updates"] < 100
    assert len(report["history"]) >= 4
    assert report["dev_loss"] <= report["dev_loss_before"]
    if report["best_update"] == 0:
        assert same_weights(weights_of(fresh), weights_of(tiny))


def test_a_model_without_a_finite_loss_is_refused(fresh, text) -> None:
    with torch.no_grad():
        fresh.projection.weight.fill_(float("nan"))
    with pytest.raises(ModelError, match="not a finite number before the training"):
        fine_tune(fresh, text, text, SETTINGS)


def test_passes_limit_the_updates(fresh, text) -> None:
    report = fine_tune(fresh, text, text, replace(SETTINGS, passes=2.0, measurements=1))
    assert report["updates"] == report["scheduled_updates"] < 30
    assert report["passes"] == pytest.approx(2.0, abs=0.1)


class KilledError(Exception):
    """Stands for the signal that ends the process."""


@pytest.mark.parametrize("killed_at", [7, 13, 25])
def test_a_killed_run_continues_to_the_same_weights(
    tiny_folder, text, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: int
) -> None:
    """Checkpoints are written after every update here; the run ends without any warning in the next one."""
    monkeypatch.setattr("ibidem.learn.adapt.trainer._CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr("ibidem.learn.adapt.trainer._CHECKPOINT_SHARE", 1e9)
    whole = load_model(tiny_folder, device="cpu")
    expected = fine_tune(whole, text, text, SETTINGS, general=text.select(range(9)))

    def kill(_label: str, _share: float | None, _done: int, _unit: str) -> None:
        nonlocal updates
        updates += 1
        if updates == killed_at:
            raise KilledError

    updates = 0
    first = load_model(tiny_folder, device="cpu")
    with pytest.raises(KilledError):
        fine_tune(first, text, text, SETTINGS, general=text.select(range(9)), workspace=tmp_path, progress=kill)
    second = load_model(tiny_folder, device="cpu")
    done = []
    report = fine_tune(
        second,
        text,
        text,
        SETTINGS,
        general=text.select(range(9)),
        workspace=tmp_path,
        progress=lambda *_: done.append(1),
    )
    assert len(done) == 30 - (killed_at - 1)
    assert same_weights(weights_of(whole), weights_of(second))
    assert report["history"] == expected["history"]


@pytest.mark.gpu
def test_a_run_on_a_gpu_resumes(tiny_folder, text, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU sums are not repeated bit for bit, so only the losses are compared."""
    monkeypatch.setattr("ibidem.learn.adapt.trainer._CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr("ibidem.learn.adapt.trainer._CHECKPOINT_SHARE", 1e9)
    settings = replace(SETTINGS, bfloat16=None)
    whole = fine_tune(load_model(tiny_folder, device="cuda"), text, text, settings)
    assert whole["bfloat16"]
    assert whole["dev_loss"] < whole["dev_loss_before"] - 0.5

    def kill(_label: str, share: float | None, _done: int, _unit: str) -> None:
        if share is not None and share >= 0.5:
            raise KilledError

    with pytest.raises(KilledError):
        fine_tune(load_model(tiny_folder, device="cuda"), text, text, settings, workspace=tmp_path, progress=kill)
    resumed = fine_tune(load_model(tiny_folder, device="cuda"), text, text, settings, workspace=tmp_path)
    assert resumed["dev_loss"] == pytest.approx(whole["dev_loss"], rel=0.05)


@pytest.mark.parametrize("damage", ["other settings", "truncated", "no checkpoint", "no weights", "other state"])
def test_a_checkpoint_that_does_not_fit_is_not_used(tiny_folder, text, tmp_path: Path, damage: str) -> None:
    short = replace(SETTINGS, updates=4, measurements=2)
    model = load_model(tiny_folder, device="cpu")
    fine_tune(model, text, text, replace(short, seed=9) if damage == "other settings" else short, workspace=tmp_path)
    file = tmp_path / CHECKPOINT
    if damage == "truncated":
        file.write_bytes(file.read_bytes()[:-5000])
    elif damage == "no checkpoint":
        file.write_bytes(b"hello")
    elif damage in ("no weights", "other state"):
        with safe_open(file, "pt") as opened:
            notes = opened.metadata()
            tensors = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118 (not a mapping)
        if damage == "no weights":
            del tensors["weights/model.shared.weight"]
        else:
            notes["state"] = '{"updates": "many"}'
        save_file(tensors, file, metadata=notes)
    done = []
    again = load_model(tiny_folder, device="cpu")
    fine_tune(again, text, text, short, workspace=tmp_path, progress=lambda *_: done.append(1))
    assert len(done) == 4


@given(total=st.integers(1, 5000), warmup=st.floats(0, 1))
def test_the_learning_rate_rises_then_falls(total: int, warmup: float) -> None:
    settings = AdaptSettings(learning_rate=2.0, warmup=warmup)
    checked = sorted({1, 2, total // 3, total // 2, total - 1, total} - {0})
    rates = [settings.rate(update, total) for update in checked if update <= total]
    assert all(0 < rate <= 2.0 for rate in rates)
    peak = rates.index(max(rates))
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"updates": -1},
        {"passes": 0.0},
        {"batch_tokens": 0},
        {"forward_tokens": 0},
        {"learning_rate": float("nan")},
        {"learning_rate": float("inf")},
        {"warmup": 1.5},
        {"averaged": -0.1},
        {"label_smoothing": 2.0},
        {"measurements": 0},
        {"patience": 0},
        {"general_ratio": -1.0},
        {"seed": -1},
    ],
)
def test_invalid_settings(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        AdaptSettings(**wrong)  # type: ignore[arg-type]
