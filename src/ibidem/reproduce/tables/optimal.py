"""Adaptive kNN-MT, CKMT* and PCKMT* on the large memory at their best: quality, speed and size."""

from __future__ import annotations

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
)
from ibidem.reproduce.rows.translation import Translation
from ibidem.reproduce.tables.large import PCKMT, Variant, optimal_rate, speeds, timing, variants
from ibidem.reproduce.tables.table import grid_table

if TYPE_CHECKING:
    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Results
    from ibidem.reproduce.rows.row import Row

COLUMN = "BLEU"
BATCH = 64


def lines_of(plan: Plan) -> list[Variant]:
    """The paper's lines for the plan's k, and adaptive kNN-MT for every k."""
    return [v for v in variants(plan) if v.kind != PCKMT or v.rate == optimal_rate(v.k)]


def build(plan: Plan) -> Grid:
    """A line for each system; neighbours of the same k are compared."""
    lines, pairs = {}, []
    for variant in lines_of(plan):
        rows = tuple(Translation(variant.system(plan, seed), plan.large_test) for seed in plan.seeds)
        printed = paper.OPTIMAL.get((variant.kind, variant.k))
        lines[variant.label] = {COLUMN: Cell(rows, None if printed is None else printed[0])}
    for k in plan.ks:
        pairs += list(pairwise(variant.label for variant in lines_of(plan) if variant.k == k))
    return Grid((COLUMN,), lines, tuple(pairs))


def _lay_out(plan: Plan, results: Results) -> str:
    grid, timed = build(plan), speeds(plan, results, BATCH)
    lines = []
    for variant in lines_of(plan):
        cell = grid.lines[variant.label][COLUMN]
        found = cell.results(results)
        entries = format_count(found[0]["memory"]["entries"]) if found else NOT_RUN
        speed = f"{timed[variant.label]['tokens_per_second']:.0f}" if timed else NOT_RUN
        _, _, tokens, size, _ = paper.OPTIMAL.get((variant.kind, variant.k), (None,) * 5)
        quality = [format_spread(cell.spread(results)), format_number(cell.paper)]
        lines.append([variant.label, *quality, speed, format_number(tokens, 0), entries, format_number(size)])
    table = markdown(["system", COLUMN, "paper", "tokens/s", "paper", "entries", "paper"], lines)
    note = f"Pruning rates are the paper's, not chosen on our test set. Batches of {BATCH}, timed as in `latency`."
    return f"{table}\n\n{lay_out_pairs(grid, results)}\n\n{note}"


def _timing(plan: Plan) -> list[Row]:
    return [timing(plan, BATCH)]


TABLE = grid_table("optimal", "CKMT* and PCKMT* on the large memory, exact search", build, _lay_out, more_rows=_timing)
