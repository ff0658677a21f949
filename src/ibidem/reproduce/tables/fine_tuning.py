"""What users will ask: a memory against full fine-tuning of the base model, in the domain and elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ibidem.reproduce.grid import NOT_RUN, Cell, Grid, lay_out_grid, spread_of
from ibidem.reproduce.rows.fine_tuned import FineTunedTranslation
from ibidem.reproduce.rows.translation import Translation
from ibidem.reproduce.stages import FineTuned
from ibidem.reproduce.tables.table import grid_table

if TYPE_CHECKING:
    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Result, Results

NMT, ADAPTIVE, CKMT, TUNED = "NMT", "adaptive kNN-MT", "CKMT*", "fine-tuned"


def build(plan: Plan) -> Grid:
    """Four systems, adapted to one domain, on its test set and on others."""
    columns = tuple(dict.fromkeys((plan.domain, *plan.elsewhere)))
    lines: dict[str, dict[str, Cell]] = {label: {} for label in (NMT, ADAPTIVE, CKMT, TUNED)}
    for test in columns:
        memories = {
            ADAPTIVE: [plan.adaptive(plan.domain, seed) for seed in plan.seeds],
            CKMT: [plan.ckmt(plan.domain, seed) for seed in plan.seeds],
        }
        lines[NMT][test] = Cell((Translation(plan.base(), test),))
        for label, systems in memories.items():
            lines[label][test] = Cell(tuple(Translation(system, test) for system in systems))
        lines[TUNED][test] = Cell(tuple(FineTunedTranslation(model_of(plan, seed), test) for seed in plan.seeds))
    pairs = ((NMT, TUNED), (ADAPTIVE, TUNED), (CKMT, TUNED), (NMT, ADAPTIVE), (NMT, CKMT))
    return Grid(columns, lines, pairs)


def model_of(plan: Plan, seed: int) -> FineTuned:
    """The fine-tuned model of a seed."""
    return FineTuned((plan.domain,), plan.domain, replace(plan.fine_tuning, seed=seed))


def learning_seconds(result: Result) -> float | None:
    """The seconds of all stages of a row's system, or of fine-tuning."""
    stages = result.get("stages")
    return sum(notes["seconds"] for notes in stages.values()) if stages else None


def _lay_out(plan: Plan, results: Results) -> str:
    grid = build(plan)
    times = []
    for label in (ADAPTIVE, CKMT, TUNED):
        spread = spread_of(grid.lines[label][plan.domain].values(results, learning_seconds))
        times.append(f"{label} {NOT_RUN if spread is None else f'{spread.mean / 60:.1f} minutes'}")
    note = (
        f"The memory and the fine-tuned model learn from the training text of {plan.domain} and are tuned on its dev "
        f"set; other columns show what that does to other text. Learning took: {', '.join(times)} (side by side where "
        f"the rows were; fine-tuning was given {plan.fine_tuning.updates:,} updates, and ends earlier when its dev "
        "loss no longer falls)."
    )
    return f"{lay_out_grid(grid, results)}\n\n{note}"


TABLE = grid_table(
    "fine-tuning",
    "A memory against full fine-tuning, in the domain and elsewhere (BLEU, k = 4, exact search)",
    build,
    _lay_out,
)
