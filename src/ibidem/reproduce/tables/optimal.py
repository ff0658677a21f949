"""Adaptive kNN-MT, CKMT* and PCKMT* on the large memory at their best: quality, speed and size."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from ibidem.reproduce import paper
from ibidem.reproduce.grid import NOT_RUN, Cell, Grid, format_number, format_spread, lay_out_pairs, markdown
from ibidem.reproduce.rows.translation import Translation
from ibidem.reproduce.tables.table import Table

if TYPE_CHECKING:
    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Results
    from ibidem.reproduce.rows.row import Row
    from ibidem.reproduce.system import System

COLUMN = "BLEU"
BATCH = 64


class Variant(NamedTuple):
    """A line of the table: "adaptive", "CKMT*" or "PCKMT*" with its k and pruning rate."""

    kind: str
    k: int
    rate: float = 0.0

    @property
    def label(self) -> str:
        pruned = f", {self.rate * 100:g} % pruned" if self.rate else ""
        return f"{self.kind}, k = {self.k}{pruned}"

    def system(self, plan: Plan, seed: int) -> System:
        """Its system with the large memory."""
        domain = plan.large_test
        if self.kind == "adaptive":
            return plan.on_large(plan.adaptive(domain, seed, k=self.k))
        if self.kind == "CKMT*":
            return plan.on_large(plan.ckmt(domain, seed, k=self.k))
        return plan.on_large(plan.pruned(domain, seed, self.rate, k=self.k))


def variants(plan: Plan) -> list[Variant]:
    """The paper's lines for the plan's k, with its pruning rates, and adaptive kNN-MT for every k."""
    found = []
    for k in sorted(plan.ks, reverse=True):
        found += [Variant("adaptive", k), Variant("CKMT*", k)]
        if ("PCKMT*", k) in paper.OPTIMAL:
            found.append(Variant("PCKMT*", k, paper.OPTIMAL["PCKMT*", k][4]))
    return found


def build(plan: Plan) -> Grid:
    """A line for each variant; neighbours of the same k are compared."""
    lines, pairs = {}, []
    for variant in variants(plan):
        rows = tuple(Translation(variant.system(plan, seed), plan.large_test) for seed in plan.seeds)
        printed = paper.OPTIMAL.get((variant.kind, variant.k))
        lines[variant.label] = {COLUMN: Cell(rows, None if printed is None else printed[0])}
    for k in plan.ks:
        pairs += list(pairwise(variant.label for variant in variants(plan) if variant.k == k))
    return Grid((COLUMN,), lines, tuple(pairs))


def _lay_out(plan: Plan, results: Results) -> str:
    grid = build(plan)
    lines = []
    for variant in variants(plan):
        cell = grid.lines[variant.label][COLUMN]
        found = cell.results(results)
        entries = f"{found[0]['memory']['entries'] / 1e6:.2f}M" if found else NOT_RUN
        _, sentences, tokens, size, _ = paper.OPTIMAL.get((variant.kind, variant.k), (None,) * 5)
        printed = [format_number(sentences, 0), format_number(tokens, 0), format_number(size)]
        lines.append([variant.label, format_spread(cell.spread(results)), format_number(cell.paper), entries, *printed])
    header = ["system", COLUMN, "paper", "entries", "paper: sentences/s", "paper: tokens/s", "paper: entries"]
    table = markdown(header, lines)
    note = "Pruning rates are the paper's, not chosen on our test set. Our speeds are in the table `latency`."
    return f"{table}\n\n{lay_out_pairs(grid, results)}\n\n{note}"


def _rows(plan: Plan) -> list[Row]:
    return list(build(plan).rows)


def _differences(plan: Plan, results: Results) -> list[dict[str, Any]]:
    return build(plan).differences(results)


TABLE = Table("optimal", "CKMT* and PCKMT* on the large memory, exact search", _rows, _lay_out, _differences)
