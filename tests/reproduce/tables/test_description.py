"""Tables that describe texts, parameters, the space of keys and single sentences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ibidem.reproduce.data import Data, own_sentences
from ibidem.reproduce.rows import Measured
from ibidem.reproduce.rows.statistics import Statistics
from ibidem.reproduce.rows.translation import OwnTranslation, Translation
from ibidem.reproduce.tables import description, open_table

from ..made_up import TRACE, cells_of, put_figures

DATASETS, PARAMETERS, VISUALISE, CASES = map(open_table, ("datasets", "parameters", "visualise", "cases"))


def test_datasets_with_the_papers_rotated_columns(plan, results) -> None:
    put_figures(results, Statistics("it", "train"), pairs=280_509, target_tokens=4_334_365, target_words=1)
    text = DATASETS.lay_out(plan, results)
    assert cells_of(text, "it")[:4] == ["280,509", "248K", "4,334,365", "3.6M"]
    assert cells_of(text, "medical")[0] == "not run"
    assert cells_of(text, "general")[4:] == [""] * 6  # it has no dev or test set
    assert "koran 18K, it 222K, medical 248K" in text


def test_parameters_add_up(plan, results) -> None:
    found = {"base": 1000, "metak": 10, "compactor": 90}
    assert description.sum_parameters(found) == {"MT": 1000, "Adaptive kNN-MT": 1010, "CKMT*": 1100}
    put_figures(results, description.parameter_count(plan), **found)
    assert cells_of(PARAMETERS.lay_out(plan, results), "CKMT*") == ["1,100", "+10.000 %", "270.0M", "+0.111 %"]


def test_figures_are_drawn_from_stored_coordinates(plan, results, tmp_path) -> None:
    row = description.tsne_projection(plan)
    assert VISUALISE.lay_out(plan, results) == "not run"
    assert VISUALISE.draw(plan, results, tmp_path) == []
    random = np.random.default_rng(1)
    arrays = {
        "tokens": np.repeat([3, 5], 20),
        "before": random.normal(size=(40, 2)),
        "after": random.normal(size=(40, 2)),
        "whole": random.normal(size=(40, 2)),
        "frequencies": np.arange(1, 41),
    }
    figures = {"tokens": {"3": "file", "5": "menu"}, "points": 40, "neighbours": 10}
    figures |= {"purity_before": 0.5, "purity_after": 0.75}
    results.put(row, Measured({"name": row.name, "seed": 1, **TRACE, **figures}, arrays))
    text = VISUALISE.lay_out(plan, results)
    assert cells_of(text, "after") == ["75.0%"]
    assert "file, menu" in text
    first = [file.read_bytes() for file in VISUALISE.draw(plan, results, tmp_path / "1")]
    again = [file.read_bytes() for file in VISUALISE.draw(plan, results, tmp_path / "2")]
    assert len(first) == 4
    assert first == again  # the same figures give the same files


def test_the_most_different_short_ones_come_first() -> None:
    sources = ["eins", "zwei", "drei " * 13, "vier", "fünf"]
    translations = {
        "base": ["one", "two", "a", "four", "five"],
        "memory": ["one", "too", "b", "vier", "five"],
        "pruned": ["one", "two", "c", "4", "five"],
    }
    chosen = description.choose_cases(sources, sources, translations)
    assert [case.source for case in chosen] == ["vier", "zwei"]
    assert chosen[0].translations == {"base": "four", "memory": "vier", "pruned": "4"}
    assert [case.source for case in description.choose_cases(sources, sources, translations, 1)] == ["vier"]


def test_only_our_own_sentences_are_written_and_the_test_set_is_printed(plan, results, tmp_path) -> None:
    plan = replace(plan, domain="it")
    own = [sentence for sentence in own_sentences() if sentence.domain == "software"]
    (tmp_path / "data" / "it").mkdir(parents=True)
    (tmp_path / "data" / "it" / "test.tsv").write_text("geheimes Deutsch\tsecret English\n", encoding="utf-8")
    assert CASES.lay_out(plan, results) == "not run"
    for label, system in description.case_systems(plan).items():
        for row, lines in (
            (OwnTranslation(system), [f"{label} {number}" for number in range(len(own))]),
            (Translation(system, "it"), [f"hidden {label}"]),
        ):
            results.put(row, Measured({"name": row.name, "seed": row.seed, **TRACE}, {}, lines))
    written = CASES.lay_out(plan, results)
    assert own[0].german in written
    assert "CKMT* 0" in written
    assert "hidden" not in written
    assert "Deutsch" not in written
    printed = CASES.aside(plan, results, Data(tmp_path / "data"))
    assert "geheimes Deutsch" in printed
    assert "hidden PCKMT*" in printed
