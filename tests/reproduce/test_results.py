from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from ibidem.errors import IbidemError, UsageError
from ibidem.learn import PruneSettings
from ibidem.reproduce import results as results_module
from ibidem.reproduce.plan import System
from ibidem.reproduce.results import ARCHIVE, Results, digest, pack_rows
from ibidem.reproduce.rows import Measured
from ibidem.reproduce.rows.translation import OwnTranslation, Translation

from .made_up import TRACE, make_counts, put_score

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


def test_packed_rows_are_found_as_before(results: Results) -> None:
    """Figures and arrays come back from the archive; of the translations only those of our own sentences."""
    own = OwnTranslation(ROW.system)
    arrays = {"bleu": make_counts(0.6), "plane": np.arange(6, dtype=np.float32).reshape(3, 2)}
    for row in (ROW, own):
        results.put(row, Measured({"name": row.name, **TRACE}, arrays, ["Grüße", "zwei"]))
    before = [Results(results.folder).find(row) for row in (ROW, own)]
    assert pack_rows(results.folder) == 2
    assert {path.name for path in results.rows.iterdir()} == {ARCHIVE, f"{digest(ROW)}.txt.gz"}
    (results.rows / f"{digest(ROW)}.txt.gz").unlink()
    packed = Results(results.folder)
    assert [packed.find(row) for row in (ROW, own)] == before
    for name, array in arrays.items():
        found = packed.array(ROW, name)
        assert found is not None
        assert found.dtype == array.dtype
        assert np.array_equal(found, array)
    assert packed.translations(own) == ["Grüße", "zwei"]
    assert packed.translations(ROW) is None
    assert packed.find(OTHER) is None


def test_rows_are_added_to_an_archive_and_replaced_in_it(results: Results) -> None:
    put_score(results, ROW, 0.5)
    pack_rows(results.folder)
    put_score(results, OTHER, 0.6)
    newer = put_score(results, ROW, 0.9)
    assert Results(results.folder).find(ROW)["scores"]["BLEU"] == newer  # before the rows are packed
    assert pack_rows(results.folder) == 2
    packed = Results(results.folder)
    assert packed.find(ROW)["scores"]["BLEU"] == newer
    assert packed.compare([OTHER], [ROW]).value > 0


def test_an_archive_that_cannot_be_read_is_named(results: Results) -> None:
    with pytest.raises(UsageError, match="holds no rows"):
        pack_rows(results.folder)
    results.rows.mkdir(parents=True)
    (results.rows / ARCHIVE).write_bytes(b"nothing")
    with pytest.raises(IbidemError, match=ARCHIVE):
        results.find(ROW)


def test_the_commit_is_stated_or_read_from_git(monkeypatch: pytest.MonkeyPatch) -> None:
    results_module.find_commit.cache_clear()
    monkeypatch.setenv(results_module.COMMIT, "cafe")
    assert results_module.find_commit() == "cafe"
    results_module.find_commit.cache_clear()
    monkeypatch.delenv(results_module.COMMIT)
    found = results_module.find_commit()
    assert found is None or re.fullmatch(r"[0-9a-f]{40}(-dirty)?", found)
    results_module.find_commit.cache_clear()
    monkeypatch.setenv("PATH", "")
    assert results_module.find_commit() is None
    results_module.find_commit.cache_clear()


def test_runs_that_share_a_stage_are_paired(results: Results) -> None:
    seeds = [replace(ROW, system=replace(ROW.system, seed=seed)) for seed in (1, 2, 3)]
    pruned = [replace(row, system=replace(row.system, prune=PruneSettings(rate=0.3))) for row in seeds]
    other = [replace(row, system=replace(row.system, k=8)) for row in seeds]
    for rows, shift in ((seeds, 0.0), (pruned, -0.02), (other, -0.02)):
        for row, quality in zip(rows, (0.4, 0.6, 0.8), strict=True):
            put_score(results, row, quality + shift)
    paired, alone = results.compare(seeds, pruned), results.compare(seeds, other)
    assert paired is not None
    assert alone is not None
    assert paired.value == pytest.approx(alone.value)
    assert paired.high - paired.low < 0.5 * (alone.high - alone.low)
    some = results.compare(seeds, pruned[:2])
    assert some is not None
    assert some.seeds == (3, 2)
