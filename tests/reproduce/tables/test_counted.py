"""Tables that count instead of translating: datasets, parameters, redundancy, pictures."""

from __future__ import annotations

import numpy as np

from ibidem.reproduce.rows.row import Measured
from ibidem.reproduce.rows.statistics import Statistics
from ibidem.reproduce.tables import datasets, parameters, redundancy, visualise

from ..made_up import TRACE, cells_of, put_figures, put_score


def test_datasets_with_the_papers_rotated_columns(plan, results) -> None:
    put_figures(results, Statistics("it", "train"), pairs=280_509, target_tokens=4_334_365, target_words=1)
    text = datasets.TABLE.lay_out(plan, results)
    assert cells_of(text, "it")[:4] == ["280,509", "248K", "4,334,365", "3.6M"]
    assert cells_of(text, "medical")[0] == "not run"
    assert cells_of(text, "general")[4:] == [""] * 6  # it has no dev or test set
    assert "koran 18K, it 222K, medical 248K" in text


def test_parameters_add_up(plan, results) -> None:
    found = {"base": 1000, "metak": 10, "compactor": 90}
    assert parameters.totals(found) == {"MT": 1000, "Adaptive kNN-MT": 1010, "CKMT*": 1100}
    put_figures(results, parameters.build(plan), **found)
    assert cells_of(parameters.TABLE.lay_out(plan, results), "CKMT*") == ["1,100", "+10.000 %", "270.0M", "+0.111 %"]


def test_redundancy_by_length_of_the_ngram(plan, results, tmp_path) -> None:
    sizes = {"distinct": 400_000, "mean_occurrences": 9.04, "share_recurring": 0.5, "share_in_ten_or_more": 0.1}
    example = {"bigram": "the file", "occurrences": 1234, "shown": 4, "rate": 0.5}
    figures = {"ngrams": {str(n): sizes for n in redundancy.LENGTHS}, "entries": 1, "example": example}
    arrays = {
        "costs": np.array([0.1, 3.0, 0.2, 3.1]),
        "clusters": np.array([7, 2, 7, 2]),
        "kept": np.array([True, False, False, True]),
    }
    row = redundancy.counts_of(plan)
    results.put(row, Measured({"name": row.name, "seed": 0, **TRACE, **figures}, arrays))
    grid = redundancy.build(plan)
    bleu = put_score(results, grid.lines["n = 2"][redundancy.COLUMN].rows[0], 0.6)
    text = redundancy.TABLE.lay_out(plan, results)
    assert cells_of(text, "n = 2") == ["400,000", "9.0", "50.0%", f"{bleu:.2f}"]
    assert "1,234 occurrences of “the file”" in text
    assert [file.name for file in redundancy.TABLE.draw(plan, results, tmp_path)] == [
        "redundancy.png",
        "redundancy.svg",
    ]
    lengths = {label: cells[redundancy.COLUMN].rows[0].system.prune for label, cells in grid.lines.items()}
    assert (lengths["n = 3"].n, lengths["n = 3"].group_n, lengths["n = 3"].groups) == (3, 3, "ngram")
    assert lengths["unpruned"] is None


def test_pictures_from_kept_coordinates(plan, results, tmp_path) -> None:
    row = visualise.build(plan)
    assert visualise.TABLE.lay_out(plan, results) == "not run"
    assert visualise.TABLE.draw(plan, results, tmp_path) == []
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
    text = visualise.TABLE.lay_out(plan, results)
    assert cells_of(text, "after") == ["75.0%"]
    assert "file, menu" in text
    first = [file.read_bytes() for file in visualise.TABLE.draw(plan, results, tmp_path / "1")]
    again = [file.read_bytes() for file in visualise.TABLE.draw(plan, results, tmp_path / "2")]
    assert len(first) == 4
    assert first == again  # the same figures give the same files
