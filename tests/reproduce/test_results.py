from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ibidem.errors import IbidemError
from ibidem.reproduce.declaration import digest
from ibidem.reproduce.results import Results
from ibidem.reproduce.rows.row import Measured
from ibidem.reproduce.rows.translation import Translation
from ibidem.reproduce.system import System

from .made_up import TRACE, put_score

ROW = Translation(System(("it",), "it", seed=1), "it")
OTHER = replace(ROW, system=replace(ROW.system, seed=2))


def test_a_result_comes_back(results: Results) -> None:
    assert results.find(ROW) is None
    arrays = {"bleu": np.arange(20).reshape(2, 10)}
    results.put(ROW, Measured({"name": "x", **TRACE}, arrays, ["Grüße", "zwei"]))
    fresh = Results(results.folder)
    found = fresh.find(ROW)
    assert found is not None
    assert found["digest"] == digest(ROW)
    assert np.array_equal(fresh.array(ROW, "bleu"), arrays["bleu"])
    assert fresh.translations(ROW) == ["Grüße", "zwei"]
    assert fresh.find(OTHER) is None
    assert fresh.array(OTHER, "bleu") is None
    assert fresh.translations(OTHER) is None


def test_a_result_of_other_settings_does_not_count(results: Results) -> None:
    put_score(results, ROW, 0.5)
    file = results.rows / f"{digest(ROW)}.json"
    file.write_text(file.read_text("utf-8").replace('"beam": 4', '"beam": 5'), encoding="utf-8")
    assert Results(results.folder).find(ROW) is None


def test_a_result_that_cannot_be_read_is_named(results: Results) -> None:
    put_score(results, ROW, 0.5)
    (results.rows / f"{digest(ROW)}.npz").write_bytes(b"nothing")
    with pytest.raises(IbidemError, match=digest(ROW)):
        results.array(ROW, "bleu")
    (results.rows / f"{digest(ROW)}.json").write_text("{", encoding="utf-8")
    with pytest.raises(IbidemError, match=digest(ROW)):
        Results(results.folder).find(ROW)


def test_comparisons_need_counts_of_both(results: Results) -> None:
    put_score(results, ROW, 0.5)
    assert results.compare([ROW], [OTHER]) is None
    put_score(results, OTHER, 0.7)
    fresh = Results(results.folder)
    found = fresh.compare([ROW], [OTHER])
    assert found is not None
    assert found.value > 0
    (results.rows / f"{digest(OTHER)}.npz").unlink()  # the score alone is not enough
    assert Results(results.folder).compare([ROW], [OTHER]) is None
