from __future__ import annotations

from dataclasses import replace

import pytest

from ibidem.reproduce import paper
from ibidem.reproduce.plan import Plan
from ibidem.reproduce.stages import Clustered
from ibidem.reproduce.system import assemble
from ibidem.reproduce.tables import pruning, pruning_curve

from ..made_up import cells_of, put_all, put_score


def test_all_strategies_prune_the_same_memory(plan) -> None:
    grid = pruning.build(plan)
    parts = {label: assemble(cells["it"].rows[0].system) for label, cells in grid.lines.items()}
    assert len({found.tuned for found in parts.values()}) == 1
    memories = {found.memory.sources for label, found in parts.items() if label != pruning.WHOLE}
    assert len(memories) == 1
    assert isinstance(memories.pop()[0].memory, Clustered)  # spatial pruning needs the clusters


def test_the_paper_cannot_add() -> None:
    numbers = paper.PRUNING["CKMT*+RP"].values()
    assert sum(numbers) / 4 == pytest.approx(45.945)
    assert paper.PRUNING_AVERAGE["CKMT*+RP"] == 45.85
    for label, average in paper.PRUNING_AVERAGE.items():
        if label != "CKMT*+RP":
            assert sum(paper.PRUNING[label].values()) / 4 == pytest.approx(average, abs=0.0051), label
    for label, average in paper.DOMAINS_AVERAGE.items():
        assert sum(paper.DOMAINS[label].values()) / 4 == pytest.approx(average, abs=0.0051), label


def test_a_pruned_memory_is_shared_over_k(plan) -> None:
    grid = pruning_curve.build(plan)
    cells = grid.lines[pruning_curve.name_point("PCKMT*+Ours", 0.3)]
    parts = [assemble(cells[column].rows[0].system) for column in grid.columns]
    assert len({found.memory for found in parts}) == 1
    assert len({found.tuned for found in parts}) == len(plan.ks)


def test_curves_begin_with_the_unpruned_memory(plan, results) -> None:
    grid = pruning_curve.build(plan)
    whole = [put_score(results, row, 0.8) for row in grid.lines[pruning_curve.WHOLE]["k = 8"].rows]
    point = grid.lines[pruning_curve.name_point("PCKMT*+RP", 0.5)]["k = 8"].rows[0]
    pruned = put_score(results, point, 0.6)
    curves = pruning_curve.curves(plan, results)
    assert curves["k = 8"]["PCKMT*+RP"] == [(0.0, pytest.approx(sum(whole) / 2)), (0.5, pytest.approx(pruned))]
    assert curves["k = 8"]["PCKMT*+Ours"] == [(0.0, pytest.approx(sum(whole) / 2))]
    assert curves["k = 4"]["PCKMT*+RP"] == []


def test_the_curve_as_a_table(plan, results) -> None:
    plan = replace(plan, seeds=(1,), rates=(0.5, 0.9))
    grid = pruning_curve.build(plan)
    put_all(results, grid.rows, lambda row: 0.5 if row.system.prune and row.system.prune.strategy == "random" else 0.7)
    line = cells_of(pruning_curve.TABLE.lay_out(plan, results), "50 %")
    assert len(line) == 8
    assert line[2].startswith("+")
    assert "not run" not in line
    base = cells_of(pruning_curve.TABLE.lay_out(plan, results), pruning_curve.NMT)
    assert len(set(base)) == 1


def test_what_is_covered_is_told_by_the_tuned_memory(plan) -> None:
    row = pruning_curve.build(plan).lines[pruning_curve.name_point("PCKMT*+covered", 0.3)]["k = 8"].rows[0]
    parts = assemble(row.system)
    assert parts is not None
    assert parts.memory.sources[0] == parts.tuned
    # The neighbours of every entry are found once for every k and rate.
    agreeing = pruning_curve.build(plan).lines[pruning_curve.name_point("PCKMT*+agreeing", 0.3)]["k = 8"].rows[0]
    systems = [replace(row.system, k=k) for k in (4, 8, 16)]
    assert len({assemble(system).memory.sources[1] for system in (*systems, agreeing.system)}) == 1


def test_all_seeds_where_most_is_said_of_a_point() -> None:
    plan = Plan(seeds=(1, 2, 3))
    lines = pruning_curve.build(plan).lines

    def seeds(label: str, rate: float, k: int) -> int:
        return len(lines[pruning_curve.name_point(label, rate)][pruning_curve.name_k(k)].rows)

    assert [seeds(pruning_curve.OURS, rate, 8) for rate in plan.rates] == [3, 1, 3, 1, 3, 1, 3, 1, 3]
    assert [seeds(pruning_curve.RANDOM, rate, 4) for rate in plan.rates] == [1, 1, 3, 1, 1, 1, 1, 1, 1]
    assert [seeds(pruning_curve.COVERED, 0.3, k) for k in plan.ks] == [1, 3, 1]
    assert [seeds(pruning_curve.AGREEING, 0.3, k) for k in plan.ks] == [3, 3, 3]
