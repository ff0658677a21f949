"""Fitting of the confidence: calibrated on made-up data, monotone, deterministic, stored at tuning."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.decode import FEATURES, BaseScorer, ConfidenceModel, load_confidence
from ibidem.errors import UsageError
from ibidem.learn import ContextualSettings, MetaKSettings, TuneSettings, tune
from ibidem.learn.confidence import (
    collect_confidence_examples,
    fit_confidence,
    needs_no_edit,
    tune_confidence,
)
from ibidem.learn.tuning import DevSet, sample_dev
from ibidem.memory import CONFIDENCE_ARTEFACT, Memory, repair_folder, verify_folder

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from ibidem.model import BaseModel

SIGNS = np.array(list(FEATURES.values()))
QUICK = TuneSettings(
    k=4,
    confidence_sentences=60,
    metak=MetaKSettings(updates=10, validate_every=10, validation="same"),
    contextual=ContextualSettings(updates=10, validate_every=10),
)


def make(seed: int, count: int, weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Features, and labels drawn with the probabilities of known weights: the oracle of the calibration."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(count, len(FEATURES)))
    return features, random.random(count) < 1 / (1 + np.exp(-(features @ weights - 1)))


def test_known_weights_are_found_and_calibrated() -> None:
    weights = np.where(SIGNS == 0, 0.5, 0.6 * SIGNS)
    features, labels = make(0, 20_000, weights)
    model = fit_confidence(features, labels)
    np.testing.assert_allclose(model.weights, weights, atol=0.08)
    assert model.bias == pytest.approx(-1, abs=0.08)
    fresh, fresh_labels = make(1, 20_000, weights)
    found = model.probabilities(fresh)
    for part in np.array_split(np.argsort(found), 10):
        assert found[part].mean() == pytest.approx(fresh_labels[part].mean(), abs=0.04)


def test_weights_never_have_the_wrong_sign() -> None:
    features, labels = make(2, 2_000, np.where(SIGNS == 0, 0.5, -SIGNS))
    model = fit_confidence(features, labels, strength=0.1)
    assert all(weight * sign >= 0 for weight, sign in zip(model.weights, SIGNS, strict=True))
    assert sum(weight == 0 for weight in model.weights) == int((SIGNS != 0).sum())


def test_a_strong_start_keeps_its_weights_but_not_its_rate() -> None:
    weights = np.where(SIGNS == 0, 0.5, 0.6 * SIGNS)
    start = ConfidenceModel(tuple(weights.tolist()), 0.0, {})
    features, labels = make(3, 3_000, np.zeros(len(FEATURES)))
    model = fit_confidence(features, labels, start=start, strength=1e7)
    np.testing.assert_allclose(model.weights, weights, atol=0.02)
    free = fit_confidence(features, labels, start=start, strength=1.0)
    assert np.abs(free.weights).max() < 0.2
    assert free.probabilities(features).mean() == pytest.approx(labels.mean(), abs=0.01)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_labels_that_are_all_the_same_give_probabilities_inside(rate: float) -> None:
    features, _ = make(4, 50, np.zeros(len(FEATURES)))
    labels = np.full(50, bool(rate))
    found = fit_confidence(features, labels).probabilities(features)
    assert ((found > 0) & (found < 1)).all()
    assert abs(found.mean() - rate) < 0.1


def test_fitting_is_deterministic_and_survives_storing() -> None:
    features, labels = make(5, 300, np.where(SIGNS == 0, 0.5, 0.6 * SIGNS))
    first, second = (fit_confidence(features, labels, info={"sentences": 300}) for _ in range(2))
    assert first.store() == second.store()
    assert ConfidenceModel.restore(first.store()) == first


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1000), st.sampled_from([name for name, sign in FEATURES.items() if sign]), st.floats(0, 50))
def test_probabilities_are_monotone(seed: int, name: str, change: float) -> None:
    features, labels = make(6, 200, np.where(SIGNS == 0, 0.5, 0.6 * SIGNS))
    model = fit_confidence(features, labels)
    row = np.random.default_rng(seed).normal(size=(1, len(FEATURES)))
    better = row.copy()
    place = list(FEATURES).index(name)
    better[0, place] += change * FEATURES[name]
    assert model.probabilities(better)[0] >= model.probabilities(row)[0]


@pytest.mark.parametrize(
    ("translation", "reference", "same"),
    [
        ("The file.", "The file .", True),
        ("„The“  file", '"The" file', True),
        ("a – b…", "a - b...", True),
        ("The file.", "the file.", False),
        ("The file", "The file.", False),
        ("", "x", False),
    ],
)
def test_labels(translation: str, reference: str, same: bool) -> None:
    assert needs_no_edit(translation, reference) is same


def test_examples_keep_their_references(tiny: BaseModel, sentences) -> None:
    texts = [s.german for s in sentences[:9]]
    translations = collect_confidence_examples(tiny, BaseScorer(), texts, texts).translations
    paired = dict(
        zip(collect_confidence_examples(tiny, BaseScorer(), texts, texts).references, translations, strict=True)
    )
    references = [paired[text] for text in texts]
    examples = collect_confidence_examples(tiny, BaseScorer(), texts, references)
    assert examples.unedited.all()
    assert examples.features.shape == (9, len(FEATURES))


@pytest.fixture
def memory(tmp_path: Path, learnt: Memory) -> Memory:
    return Memory.open(shutil.copytree(learnt.path, tmp_path / "memory"))


def test_tuning_stores_the_confidence(memory: Memory, tiny: BaseModel, sentences) -> None:
    rows = [s for s in sentences if len(s.german) < 60][:60]
    dev = DevSet([s.german for s in rows], [s.english for s in rows], "dev", None)
    tuned = tune(memory, tiny, dev, settings=QUICK)
    stored = load_confidence(tuned)
    assert stored is not None
    assert stored.info["sentences"] == tuned.manifest.stages["tune"]["confidence"]["sentences"] == len(rows)
    assert tune(tuned, tiny, dev, settings=QUICK).generation == tuned.generation
    assert verify_folder(tuned.path)[1] == []
    file = tuned.artefact(CONFIDENCE_ARTEFACT).path  # type: ignore[union-attr]
    file.write_bytes(file.read_bytes().replace(b"bias", b"bear"))
    assert [damage.file for damage in verify_folder(tuned.path)[1]] == [f"artefacts/{file.name}"]
    repair_folder(tuned.path)
    repaired = Memory.open(tuned.path)
    assert load_confidence(repaired) is None
    assert verify_folder(repaired.path)[1] == []
    assert load_confidence(tune(repaired, tiny, dev, settings=QUICK)) is not None
    none = tune(Memory.open(tuned.path), tiny, dev, settings=TuneSettings(**{**vars(QUICK), "confidence_sentences": 0}))
    assert load_confidence(none) is None


def test_own_pairs_are_hidden(memory: Memory, tiny: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their entries are never among the nearest neighbours."""
    from ibidem.combine import load_combiner
    from ibidem.learn import confidence as module
    from ibidem.retrieve import open_index

    seen: list[tuple[set[int], bool]] = []
    sampled = sample_dev(memory, 40)
    assert sampled.hidden is not None
    own = {entry for entries in sampled.hidden for entry in entries}

    def spy(model: BaseModel, scorer, sources, references, **_: object):
        examples = collect_confidence_examples(model, scorer, sources, references)
        layouts = module.Translator(model, split="off").split(sources, memories=())
        for ((best, *_),) in module.Translator(model, split="off").search(layouts, scorer=scorer):
            seen.append((set(best.evidence.entries.tolist()) & own, bool((best.evidence.entries >= 0).any())))
        return examples

    monkeypatch.setattr(module, "collect_confidence_examples", spy)
    monkeypatch.setattr(module, "LEAST_SENTENCES", 5)
    combiner = load_combiner(memory)
    assert combiner is not None
    fitted = tune_confidence(
        memory,
        tiny,
        open_index(memory, None, tiny.device),
        combiner,
        sampled.sources,
        sampled.targets,
        hidden=sampled.hidden,
        sentences=40,
    )
    assert fitted is not None
    # At most a tenth of the pairs is hidden.
    assert fitted.info["sentences"] == len(seen) <= memory.active_pairs // 10
    assert any(some for _, some in seen)
    hidden_of_chosen = [entries for entries, _ in seen]
    assert sum(map(len, hidden_of_chosen)) < len(own)


def test_negative_counts_are_refused() -> None:
    with pytest.raises(UsageError, match="confidence_sentences"):
        TuneSettings(confidence_sentences=-1)
