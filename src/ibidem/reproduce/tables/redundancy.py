"""Redundancy of a memory: how often n-grams recur, and what pruning by n-grams of each length costs on the dev set."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ibidem.learn import PAPER_SETTINGS
from ibidem.reproduce import paper
from ibidem.reproduce.grid import NOT_RUN, Cell, Grid, format_spread, lay_out_pairs, markdown
from ibidem.reproduce.rows.redundancy import Redundancy
from ibidem.reproduce.rows.translation import Translation
from ibidem.reproduce.tables.table import grid_table

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.learn import PruneSettings
    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Results
    from ibidem.reproduce.rows.row import Row

LENGTHS = (1, 2, 3, 4)
RATE = 0.1
COLUMN, WHOLE = "dev BLEU", "unpruned"


def build(plan: Plan) -> Grid:
    """CKMT* on the dev set, unpruned, and pruned by cost clusters of n-grams of each length."""

    def cell(prune: PruneSettings | None) -> dict[str, Cell]:
        systems = [plan.ckmt(plan.domain, seed, prune=prune) for seed in plan.seeds]
        return {COLUMN: Cell(tuple(Translation(system, plan.domain, "dev") for system in systems))}

    lines = {WHOLE: cell(None)}
    for n in LENGTHS:
        lines[_name(n)] = cell(replace(PAPER_SETTINGS, rate=RATE, n=n, groups="ngram", group_n=n))
    pairs = [(WHOLE, _name(n)) for n in LENGTHS] + [(_name(n), _name(2)) for n in LENGTHS if n != 2]
    return Grid((COLUMN,), lines, tuple(pairs))


def counts_of(plan: Plan) -> Redundancy:
    return Redundancy((plan.domain,), longest=max(LENGTHS))


def _name(n: int) -> str:
    return f"n = {n}"


def _counts(plan: Plan) -> list[Row]:
    return [counts_of(plan)]


def _lay_out(plan: Plan, results: Results) -> str:
    grid, found = build(plan), results.find(counts_of(plan))
    whole = format_spread(grid.lines[WHOLE][COLUMN].spread(results))
    lines = [[WHOLE, "", "", "", whole]]
    for n in LENGTHS:
        shown = [NOT_RUN] * 3
        if found is not None:
            sizes = found["ngrams"][str(n)]
            shown = [f"{sizes['distinct']:,}", f"{sizes['mean_occurrences']:.1f}", f"{sizes['share_recurring']:.1%}"]
        lines.append([_name(n), *shown, format_spread(grid.lines[_name(n)][COLUMN].spread(results))])
    header = ["n-grams", "distinct", "mean occurrences", "entries whose n-gram recurs", f"{COLUMN}, 10 % pruned"]
    note = (
        "n is the length of the n-grams that are compared and of the longest one in a cost. The paper counts more than "
        f"{paper.REDUNDANCY['bigrams']} distinct bigrams in {paper.REDUNDANCY['entries']} entries of IT, no more than "
        f"{paper.REDUNDANCY['occurrences']} occurrences each on average; it chose bigrams by grid search and prints no "
        "figures of it."
    )
    if found is not None and "example" in found:
        example = found["example"]
        note += (
            f" The figure shows {example['shown']} of the {example['occurrences']:,} occurrences of "
            f"“{example['bigram']}” by cost, with what the authors' rule removes of them at {example['rate']:.0%}."
        )
    return f"{markdown(header, lines)}\n\n{lay_out_pairs(grid, results)}\n\n{note}"


def _draw(plan: Plan, results: Results, folder: Path) -> list[Path]:
    from ibidem.reproduce.plots.costs import draw_costs

    row = counts_of(plan)
    found = results.find(row)
    arrays = [results.array(row, name) for name in ("costs", "clusters", "kept")] if found else []
    if found is None or "example" not in found or any(array is None for array in arrays):
        return []
    costs, clusters, kept = (array for array in arrays if array is not None)
    bigram = found["example"]["bigram"]
    return draw_costs(costs, clusters, kept, bigram, folder / "redundancy", smoke=plan.smoke)


TABLE = grid_table(
    "redundancy",
    "n-grams in the IT memory, and pruning by them, k = 4",
    build,
    _lay_out,
    more_rows=_counts,
    draw=_draw,
)
