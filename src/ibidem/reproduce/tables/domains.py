"""Base model, adaptive kNN-MT, CKMT* and G-CKMT*, whose compactor was trained on general text, over the domains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.reproduce import paper
from ibidem.reproduce.grid import Cell, Grid, format_number, format_spread, lay_out_pairs, markdown, spread_of
from ibidem.reproduce.rows.translation import Translation
from ibidem.reproduce.tables.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Results
    from ibidem.reproduce.rows.row import Row
    from ibidem.reproduce.system import System

NMT, ADAPTIVE, CKMT, GENERAL = "NMT", "adaptive kNN-MT", "CKMT*", "G-CKMT*"
PAIRS = ((NMT, ADAPTIVE), (ADAPTIVE, CKMT), (CKMT, GENERAL), (ADAPTIVE, GENERAL))


def build(plan: Plan, index: str) -> Grid:
    """Four lines by the domains, with one kind of search."""

    def systems(label: str, domain: str) -> list[System]:
        if label == NMT:
            return [plan.base()]
        if label == ADAPTIVE:
            return [plan.adaptive(domain, seed, index=index) for seed in plan.seeds]
        corpus = plan.general if label == GENERAL else ()
        return [plan.ckmt(domain, seed, index=index, compact_corpus=corpus) for seed in plan.seeds]

    return grid_of_domains(plan, paper.DOMAINS, systems, PAIRS)


def grid_of_domains(
    plan: Plan,
    printed: Mapping[str, Mapping[str, float]],
    systems: Callable[[str, str], list[System]],
    pairs: tuple[tuple[str, str], ...],
) -> Grid:
    """A grid of the printed lines by the plan's domains; systems(label, domain) gives one system for each seed."""
    lines = {
        label: {
            domain: Cell(
                tuple(Translation(system, domain) for system in systems(label, domain)),
                printed[label].get(domain),
            )
            for domain in plan.domains
        }
        for label in printed
    }
    return Grid(plan.domains, lines, pairs)


def averages(grid: Grid, results: Results) -> dict[str, float | None]:
    """The mean of each line over the columns that every line was run in; None where there is no such column."""
    spreads = {label: {c: cell.spread(results) for c, cell in cells.items()} for label, cells in grid.lines.items()}
    shared = [column for column in grid.columns if all(found[column] is not None for found in spreads.values())]
    means: dict[str, float | None] = {}
    for label, found in spreads.items():
        spread = spread_of([here.mean for column in shared if (here := found[column]) is not None])
        means[label] = None if spread is None else spread.mean
    return means


def lay_out_domains(grid: Grid, results: Results, printed: Mapping[str, float]) -> str:
    """Ours by domain, with the average, and the paper's below, with its printed average; then the differences."""
    means = averages(grid, results)
    lines = []
    for label, cells in grid.lines.items():
        ours = [format_spread(cells[domain].spread(results)) for domain in grid.columns]
        lines.append([label, *ours, format_number(means[label]) or "not run"])
        numbers = [cells[domain].paper for domain in grid.columns]
        lines.append(["— paper", *map(format_number, numbers), format_number(printed[label])])
    table = markdown(["system", *grid.columns, "avg."], lines)
    return f"{table}\n\n{lay_out_pairs(grid, results)}"


def _rows(plan: Plan) -> list[Row]:
    return [row for index in plan.indexes for row in build(plan, index).rows]


def _lay_out(plan: Plan, results: Results) -> str:
    parts = []
    for index in plan.indexes:
        parts.append(f"### {'Exact search' if index == 'exact' else f'The {index} index'}")
        parts.append(lay_out_domains(build(plan, index), results, paper.DOMAINS_AVERAGE))
    parts.append("Our averages are over the domains that every line was run in, the paper's over its four.")
    return "\n\n".join(parts)


def _differences(plan: Plan, results: Results) -> list[dict[str, Any]]:
    return [
        {"index": index, **difference}
        for index in plan.indexes
        for difference in build(plan, index).differences(results)
    ]


TABLE = Table("domains", "Adaptation in different domains, k = 4 (BLEU)", _rows, _lay_out, _differences)
