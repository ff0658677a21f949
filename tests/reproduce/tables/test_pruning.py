from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ibidem.reproduce import paper
from ibidem.reproduce.plan import Plan, assemble, full_plan
from ibidem.reproduce.rows import Measured
from ibidem.reproduce.stages import Clustered
from ibidem.reproduce.tables import open_table, pruning, quality

from ..made_up import TRACE, cells_of, put_all, put_score

CURVE, REDUNDANCY = open_table("pruning-curve"), open_table("redundancy")


def test_all_strategies_prune_the_same_memory(plan) -> None:
    grid = pruning.build_pruning(plan)
    parts = {label: assemble(cells["it"].rows[0].system) for label, cells in grid.lines.items()}
    assert len({found.tuned for found in parts.values()}) == 1
    memories = {found.memory.sources for label, found in parts.items() if label != pruning.CKMT}
    assert len(memories) == 1
    assert isinstance(memories.pop()[0].memory, Clustered)  # spatial pruning needs the clusters


def test_the_paper_stands_beside_its_own_settings(plan, results) -> None:
    lines = pruning.build_pruning(plan).lines
    settings = {label: lines[label]["it"].rows[0].system.prune for label in (pruning.PRINTED, pruning.OURS)}
    assert (settings[pruning.PRINTED].n, settings[pruning.PRINTED].groups) == (2, "token")
    assert (settings[pruning.OURS].n, settings[pruning.OURS].grouping) == (1, "ngram")
    assert lines[pruning.PRINTED]["it"].paper == 47.06
    assert lines[pruning.OURS]["it"].paper is None
    for domain in ("it", "law"):
        for label in (pruning.CKMT, pruning.OURS):
            put_score(results, lines[label][domain].rows[0], 0.6)
    text = open_table("pruning").lay_out(plan, results)
    assert set(cells_of(text, pruning.PRINTED)) == {"not run"}
    assert cells_of(text, pruning.OURS)[-1] != "not run"  # a line without any result does not prevent averages


def test_the_papers_averages_are_those_of_its_numbers_but_one() -> None:
    numbers = paper.PRUNING["CKMT*+RP"].values()
    assert sum(numbers) / 4 == pytest.approx(45.945)
    assert paper.PRUNING_AVERAGE["CKMT*+RP"] == 45.85
    for label, average in paper.PRUNING_AVERAGE.items():
        if label != "CKMT*+RP":
            assert sum(paper.PRUNING[label].values()) / 4 == pytest.approx(average, abs=0.0051), label
    for label, average in paper.DOMAINS_AVERAGE.items():
        assert sum(paper.DOMAINS[label].values()) / 4 == pytest.approx(average, abs=0.0051), label


def test_a_pruned_memory_is_shared_over_k(plan) -> None:
    grid = pruning.build_curve(plan)
    cells = grid.lines[pruning.name_point(pruning.CURVE_OURS, 0.3)]
    parts = [assemble(cells[column].rows[0].system) for column in grid.columns]
    assert len({found.memory for found in parts}) == 1
    assert len({found.tuned for found in parts}) == len(plan.ks)


def test_curves_begin_with_the_unpruned_memory(plan, results) -> None:
    grid = pruning.build_curve(plan)
    whole = [put_score(results, row, 0.8) for row in grid.lines[pruning.CKMT]["k = 8"].rows]
    point = grid.lines[pruning.name_point("PCKMT*+RP", 0.5)]["k = 8"].rows[0]
    pruned = put_score(results, point, 0.6)
    curves = pruning.curves(plan, results)
    assert curves["k = 8"]["PCKMT*+RP"] == [(0.0, pytest.approx(sum(whole) / 2)), (0.5, pytest.approx(pruned))]
    assert curves["k = 8"][pruning.CURVE_OURS] == [(0.0, pytest.approx(sum(whole) / 2))]
    assert curves["k = 4"]["PCKMT*+RP"] == []


def test_the_curve_as_a_table(plan, results) -> None:
    plan = replace(plan, seeds=(1,), rates=(0.5, 0.9))
    grid = pruning.build_curve(plan)
    put_all(results, grid.rows, lambda row: 0.5 if row.system.prune and row.system.prune.strategy == "random" else 0.7)
    text = CURVE.lay_out(plan, results)
    line = cells_of(text, "50 %")
    assert len(line) == len(pruning.CURVE_STRATEGIES)
    assert "not run" not in line
    differences = cells_of(text[text.index("| difference in BLEU") :], "50 %")
    assert len(differences) == 6
    assert [cell[0] for cell in differences[:2]] == ["+", "+"]
    assert all("p < 0.001*" in cell for cell in differences[:2])
    base = cells_of(CURVE.lay_out(plan, results), pruning.NMT)
    assert len(set(base)) == 1


def test_covered_pruning_uses_the_tuned_memory(plan) -> None:
    row = pruning.build_curve(plan).lines[pruning.name_point("PCKMT*+redundant", 0.3)]["k = 8"].rows[0]
    parts = assemble(row.system)
    assert parts is not None
    assert parts.memory.sources[0] == parts.tuned
    # The neighbours of every entry are found once for every k and rate.
    consistent = pruning.build_curve(plan).lines[pruning.name_point("PCKMT*+consistent", 0.3)]["k = 8"].rows[0]
    systems = [replace(row.system, k=k) for k in (4, 8, 16)]
    assert len({assemble(system).memory.sources[1] for system in (*systems, consistent.system)}) == 1


def test_all_seeds_are_run_at_the_discussed_rates() -> None:
    plan = Plan(seeds=(1, 2, 3))
    lines = pruning.build_curve(plan).lines

    def seeds(label: str, rate: float, k: int) -> int:
        return len(lines[pruning.name_point(label, rate)][pruning.name_k(k)].rows)

    assert [seeds(pruning.CURVE_OURS, rate, 8) for rate in plan.rates] == [3, 1, 3, 1, 3, 1, 3, 1, 3]
    assert [seeds(pruning.CURVE_OURS, rate, 4) for rate in plan.rates] == [3, 1, 3, 3, 1, 1, 1, 1, 1]
    assert [seeds(pruning.CURVE_OURS, rate, 16) for rate in plan.rates] == [1, 3, 3, 1, 1, 1, 1, 1, 1]
    assert [seeds(pruning.CURVE_RANDOM, rate, 4) for rate in plan.rates] == [1, 1, 3, 1, 1, 1, 1, 1, 1]
    assert [seeds(pruning.REDUNDANT, 0.3, k) for k in plan.ks] == [1, 3, 1]
    assert [seeds(pruning.CONSISTENT, 0.3, k) for k in plan.ks] == [3, 3, 3]


def test_redundancy_by_length_of_the_ngram(plan, results, tmp_path) -> None:
    sizes = {"distinct": 400_000, "mean_occurrences": 9.04, "share_recurring": 0.5, "share_in_ten_or_more": 0.1}
    example = {"bigram": "the file", "occurrences": 1234, "shown": 4, "rate": 0.5}
    figures = {"ngrams": {str(n): sizes for n in pruning.LENGTHS}, "entries": 1, "example": example}
    arrays = {
        "costs": np.array([0.1, 3.0, 0.2, 3.1]),
        "clusters": np.array([7, 2, 7, 2]),
        "kept": np.array([True, False, False, True]),
    }
    row = pruning.ngram_counts(plan)
    results.put(row, Measured({"name": row.name, "seed": 0, **TRACE, **figures}, arrays))
    grid = pruning.build_redundancy(plan)
    bleu = put_score(results, grid.lines["n = 2"][pruning.DEV].rows[0], 0.6)
    text = REDUNDANCY.lay_out(plan, results)
    assert cells_of(text, "n = 2") == ["400,000", "9.0", "50.0%", f"{bleu:.2f}"]
    assert "1,234 occurrences of “the file”" in text
    assert [file.name for file in REDUNDANCY.draw(plan, results, tmp_path)] == [
        "redundancy.png",
        "redundancy.svg",
    ]
    lengths = {label: cells[pruning.DEV].rows[0].system.prune for label, cells in grid.lines.items()}
    assert (lengths["n = 3"].n, lengths["n = 3"].group_n, lengths["n = 3"].groups) == (3, 3, "ngram")
    assert lengths["unpruned"] is None


def test_the_curve_has_the_rows_that_other_tables_have_of_a_system() -> None:
    plan = full_plan(None)
    curve, compared = pruning.build_curve(plan), 0
    for variant in quality.add_printed(quality.variants(plan)):
        if variant.rate:
            label = pruning.CURVE_PRINTED if variant.as_printed else pruning.CURVE_OURS
            cell = curve.lines[pruning.name_point(label, variant.rate)][pruning.name_k(variant.k)]
            systems = [row.system for row in cell.rows]
            assert systems == [variant.system(plan, seed) for seed in plan.seeds], variant.label
            compared += 1
    assert compared == 10
