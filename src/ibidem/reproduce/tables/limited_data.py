"""CKMT* with its compactor trained on less and less of the memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from ibidem.reproduce import paper
from ibidem.reproduce.grid import (
    NOT_RUN,
    Cell,
    Grid,
    format_count,
    format_number,
    format_spread,
    lay_out_pairs,
    markdown,
    spread_of,
)
from ibidem.reproduce.rows.translation import Translation
from ibidem.reproduce.tables.table import grid_table

if TYPE_CHECKING:
    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Result, Results

COLUMN, ADAPTIVE = "BLEU", "adaptive kNN-MT"


def build(plan: Plan) -> Grid:
    """A line for each share, and adaptive kNN-MT to compare with."""
    printed = {share: bleu for share, (_, bleu) in paper.LIMITED_DATA.items()}
    lines = {}
    for share in plan.shares:
        compact = replace(plan.star, share=share)
        systems = [plan.ckmt(plan.domain, seed, compact=compact) for seed in plan.seeds]
        rows = tuple(Translation(system, plan.domain) for system in systems)
        lines[name_share(share)] = {COLUMN: Cell(rows, printed.get(share))}
    adaptive = tuple(Translation(plan.adaptive(plan.domain, seed), plan.domain) for seed in plan.seeds)
    whole = name_share(plan.shares[0])
    steps = [*pairwise(lines), *((whole, label) for label in lines if label != whole)]
    pairs = dict.fromkeys([*steps, *((ADAPTIVE, label) for label in lines)])
    lines[ADAPTIVE] = {COLUMN: Cell(adaptive, paper.COMPACT[ADAPTIVE])}
    return Grid((COLUMN,), lines, tuple(pairs))


def name_share(share: float) -> str:
    return f"{share * 100:g} %"


def trained_entries(result: Result) -> float | None:
    """The entries that the compactor of a row was trained on."""
    entries = result.get("stages", {}).get("trained", {}).get("entries")
    return None if entries is None else float(entries)


def _lay_out(plan: Plan, results: Results) -> str:
    grid = build(plan)
    sizes = {name_share(share): size for share, (size, _) in paper.LIMITED_DATA.items()}
    lines = []
    for label, cells in grid.lines.items():
        cell = cells[COLUMN]
        entries = spread_of(cell.values(results, trained_entries))
        shown = "" if label == ADAPTIVE else NOT_RUN if entries is None else format_count(entries.mean)
        numbers = [format_spread(cell.spread(results)), format_number(cell.paper)]
        lines.append([label, shown, sizes.get(label, ""), *numbers])
    table = markdown(["share", "entries trained on", "paper", COLUMN, "paper"], lines)
    return f"{table}\n\n{lay_out_pairs(grid, results)}"


TABLE = grid_table(
    "limited-data",
    "CKMT* with the Compact Network trained on a share of the entries, drawn at random; IT, k = 4, exact search",
    build,
    _lay_out,
)
