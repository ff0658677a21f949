"""The evidence that a search records, the features made of it, and the models of confidence."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ibidem.decode import (
    FEATURES,
    GENERAL_CONFIDENCE,
    BaseScorer,
    ConfidenceEstimator,
    ConfidenceModel,
    LoadedMemory,
    SearchSettings,
    Translator,
    combine_scorers,
    load_confidence,
    load_general_confidence,
)
from ibidem.decode.confidence import NearestPair, describe_translation
from ibidem.decode.explain import force_evidence
from ibidem.errors import DamagedMemoryError, ModelError
from ibidem.learn import MemoryWriter
from ibidem.memory import CONFIDENCE_ARTEFACT, Memory, back_up
from ibidem.native import Evidence, native

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.decode import Scorer
    from ibidem.model import BaseModel

COLUMNS = ("log_probs", "base_log_probs", "weights", "distances")
ZEROS = ConfidenceModel((0.0,) * len(FEATURES), 0.0, {})

needs_native = pytest.mark.skipif(native() is None, reason="only native beams record evidence")


@pytest.fixture(scope="module")
def scorers(learnt: Memory, tiny: BaseModel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Scorer]:
    """Scorers of all kinds: one native step, several parts, several memories, none."""
    loaded = LoadedMemory(learnt, tiny)
    grown = Path(shutil.copytree(learnt.path, tmp_path_factory.mktemp("grown") / "memory"))
    MemoryWriter(grown, tiny).add_pair("Die Datei fehlt noch.", "The file is still missing.")
    overlay = LoadedMemory(Memory.open(grown), tiny)
    return {
        "base": BaseScorer(),
        "memory": loaded.scorer,
        "distance-decay": loaded.scorer_with("distance-decay"),
        "overlay": overlay.scorer,
        "two": combine_scorers([loaded.scorer, overlay.scorer], [1.0, 2.0]),
    }


@needs_native
@pytest.mark.parametrize("kind", ["base", "memory", "distance-decay", "overlay", "two"])
@pytest.mark.parametrize("beam", [1, 4])
def test_recorded_evidence_is_that_of_a_forced_pass(
    scorers: dict[str, Scorer], tiny: BaseModel, short: Sequence, kind: str, beam: int
) -> None:
    """The forced pass computes all from the states of the model, once the translation is known."""
    settings = SearchSettings(beam=beam, max_length_extra=12, retrieval_margin=1.0)
    translator = Translator(tiny, settings=settings, split="off")
    layouts = translator.split([s.german for s in short], memories=())
    best = [parts[0][0] for parts in translator.search(layouts, scorer=scorers[kind])]
    forced = force_evidence(
        tiny, scorers[kind], [(layout.pieces[0].ids, one) for layout, one in zip(layouts, best, strict=True)]
    )
    assert len(best) > 5
    assert any(one.cut for one in best)
    for one, expected in zip(best, forced, strict=True):
        assert one.evidence is not None
        assert len(one.evidence.log_probs) == len(expected.log_probs) == len(one.tokens) + 1
        for name in COLUMNS:
            np.testing.assert_allclose(getattr(one.evidence, name), getattr(expected, name), atol=2e-3, rtol=2e-3)
        same = one.evidence.entries == expected.entries
        assert same.mean() > 0.9  # entries of equal distance may change places
        assert set(one.skipped) <= set(np.flatnonzero(one.evidence.entries == -1).tolist())


@needs_native
def test_recorded_evidence_of_forced_prefixes(scorers: dict[str, Scorer], tiny: BaseModel) -> None:
    translator = Translator(tiny, settings=SearchSettings(max_length_extra=12), split="off")
    texts, prefixes = ["Die Datei fehlt.", "Bitte warten."], ["The file", ""]
    layouts = translator.split(texts, prefixes=prefixes, memories=())
    found = translator.search(layouts, prefixes=prefixes, scorer=scorers["memory"])
    best = [parts[0][0] for parts in found]
    pieces = [(layout.pieces[0].ids, one) for layout, one in zip(layouts, best, strict=True)]
    for one, expected in zip(best, force_evidence(tiny, scorers["memory"], pieces), strict=True):
        assert one.evidence is not None
        for name in COLUMNS[:2]:
            np.testing.assert_allclose(getattr(one.evidence, name), getattr(expected, name), atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("kind", ["base", "memory", "overlay"])
def test_confidence_does_not_depend_on_the_batch(
    scorers: dict[str, Scorer], tiny: BaseModel, short: Sequence, kind: str
) -> None:
    texts = [s.german for s in short]
    found = []
    for size in (64, 1):
        translator = Translator(tiny, batch_size=size, settings=SearchSettings(max_length_extra=12), split="off")
        layouts = translator.split(texts, memories=())
        results = translator.search(layouts, scorer=scorers[kind])
        found.append(translator.estimator.estimate(scorers[kind], layouts, results))
    batched, alone = (np.array(rows, float).ravel() for rows in found)
    np.testing.assert_allclose(batched, alone, atol=1e-4)
    assert ((batched > 0) & (batched < 1)).all()


def test_searches_without_evidence_have_the_same_confidence(
    scorers: dict[str, Scorer], tiny: BaseModel, short: Sequence
) -> None:
    """As on a GPU, and with a glossary."""
    translator = Translator(tiny, settings=SearchSettings(max_length_extra=12), split="off")
    layouts = translator.split([s.german for s in short], memories=())
    found = translator.search(layouts, scorer=scorers["memory"])
    bare = [[[one._replace(evidence=None) for one in best] for best in parts] for parts in found]
    first, second = (
        np.array(translator.estimator.describe(scorers["memory"], layouts, given)) for given in (found, bare)
    )
    assert any(parts[0][0].cut for parts in found)
    np.testing.assert_allclose(first, second, atol=5e-3)


def evidence(*columns: Sequence[float]) -> Evidence:
    parts = [np.array(column, np.float32) for column in columns]
    return Evidence(parts[0], parts[1], parts[2], parts[3], np.full(len(parts[0]), -1))


def test_features_by_hand() -> None:
    """Two tokens: the memory agrees with the first and not with the second."""
    half = float(np.log(0.5))
    given = evidence([np.log(0.75), np.log(0.25)], [half, half], [0.5, 0.5], [0.0, np.inf])
    row = describe_translation("eine Datei", "a file", given, NearestPair(75, "a"), 10.0, cut=True)
    named = dict(zip(FEATURES, row, strict=True))
    assert named["log_prob"] == pytest.approx((np.log(0.75) + np.log(0.25)) / 2)
    assert named["worst_log_prob"] == pytest.approx(np.log(0.25))
    assert named["total_log_prob"] == pytest.approx(np.log(0.75) + np.log(0.25))
    assert named["base_log_prob"] == named["worst_base_log_prob"] == pytest.approx(half)
    assert named["agreement"] == pytest.approx(0.25)
    assert named["disagreement"] == pytest.approx(0.25)
    assert named["closeness"] == pytest.approx(0.5)
    assert named["tokens"] == pytest.approx(np.log(2))
    assert (named["match"], named["stored"], named["suspicious"], named["cut"]) == (0.5, 0.0, 0.0, 1.0)
    equal = describe_translation("x", "a  b", given, NearestPair(100, "a b"), 10.0, cut=False)
    assert dict(zip(FEATURES, equal, strict=True))["stored"] == 1.0


def test_features_are_finite_whatever_the_model_returns() -> None:
    odd = [np.nan, -np.inf, 0.5, 0.0]
    row = describe_translation(
        "a", "", evidence(odd, odd, [0, 1, np.float32(1.0000001), 0], odd), NearestPair(), 1.0, cut=False
    )
    assert np.isfinite(row).all()


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        ZEROS.store().replace(b"0.0", b"1e999"),
        ZEROS.store().replace(b"0.0", b"null"),
        ZEROS.store().replace(b'"log_prob": 0.0', b'"log_prob": -1.0'),
        ZEROS.store().replace(b'"ratio"', b'"other"'),
    ],
)
def test_other_files_are_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        ConfidenceModel.restore(payload)


def put(memory: Memory, payload: bytes) -> Memory:
    with memory.edit() as edit:
        edit.put_artefact(CONFIDENCE_ARTEFACT, "json", payload, {})
        return edit.commit()


@pytest.fixture
def copied(tmp_path: Path, learnt: Memory) -> Memory:
    return Memory.open(shutil.copytree(learnt.path, tmp_path / "memory"))


def test_a_memory_has_its_own_confidence_and_others_the_general_one(
    copied: Memory, tiny: BaseModel, tmp_path: Path
) -> None:
    translator = Translator(tiny, copied)
    general = load_general_confidence(tiny)
    assert general is not None
    assert translator.estimator.model_for(translator.scorer) == general
    own = put(copied, ZEROS.store())
    translator.refresh()
    assert translator.estimator.model_for(translator.scorer) == ZEROS
    assert translator.estimator.model_for(BaseScorer()) == general
    # It survives additions, removals, sealing and backups.
    writer = MemoryWriter(own.path, tiny)
    writer.add_pair("Noch zwei Sätze.", "Two more sentences.")
    writer.remove([writer.add_pair("Noch ein Satz.", "Another sentence.").id])
    assert load_confidence(Memory.open(own.path).sealed()) == ZEROS
    back_up(own.path, tmp_path / "copy")
    assert load_confidence(Memory.open(tmp_path / "copy")) == ZEROS


def test_several_memories_use_the_general_confidence(scorers: dict[str, Scorer], tiny: BaseModel) -> None:
    assert ConfidenceEstimator(tiny).model_for(scorers["two"]) == load_general_confidence(tiny)


def test_typical_distances_of_several_memories_are_estimated_once(
    scorers: dict[str, Scorer], tiny: BaseModel, short: Sequence, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(
        "ibidem.decode.confidence.estimate_typical_distance", lambda memory: asked.append(memory.path) or 1.0
    )
    translator = Translator(tiny, settings=SearchSettings(max_length_extra=12), split="off")
    for kind in ("memory", "overlay", "memory", "overlay"):
        layouts = translator.split([s.german for s in short[:3]], memories=())
        translator.estimator.describe(scorers[kind], layouts, translator.search(layouts, scorer=scorers[kind]))
    assert len(asked) == len(set(asked)) == 2


def test_damage_is_told(copied: Memory, tiny: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = put(copied, b"{}")
    with pytest.raises(DamagedMemoryError, match="ibidem tune"):
        load_confidence(damaged)
    (tmp_path / GENERAL_CONFIDENCE).write_bytes(b"{}")
    monkeypatch.setattr(tiny, "general", tmp_path)
    with pytest.raises(ModelError, match="install the model again"):
        load_general_confidence(tiny)


def test_without_any_model_there_is_no_confidence(
    tiny: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ibidem.decode.confidence.find_folder", lambda _: tmp_path)
    translator = Translator(tiny)
    layouts = translator.split(["Hallo", ""])
    assert translator.estimator.estimate(BaseScorer(), layouts, translator.search(layouts)) == [[None], []]
