"""The introduction's table: speed and quality of the base model and of adaptive kNN-MT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.reproduce import paper
from ibidem.reproduce.grid import NOT_RUN, Cell, format_number, format_spread, markdown
from ibidem.reproduce.rows.timing import Timing
from ibidem.reproduce.rows.translation import Translation
from ibidem.reproduce.tables.table import Table

if TYPE_CHECKING:
    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Results
    from ibidem.reproduce.rows.row import Row

BATCH = 64


def timing(plan: Plan) -> Timing:
    """Both systems in turn."""
    systems = (plan.base(), plan.adaptive(plan.domain, plan.seeds[0]))
    return Timing(systems, plan.domain, BATCH, plan.timed_batches, plan.rounds)


def cells(plan: Plan) -> dict[str, Cell]:
    """The quality of both systems."""
    adaptive = [plan.adaptive(plan.domain, seed) for seed in plan.seeds]
    return {
        "base": Cell((Translation(plan.base(), plan.domain),), paper.INTRO_SPEED["base"][1]),
        "adaptive": Cell(
            tuple(Translation(system, plan.domain) for system in adaptive), paper.INTRO_SPEED["adaptive"][1]
        ),
    }


def _rows(plan: Plan) -> list[Row]:
    return [timing(plan), *(row for cell in cells(plan).values() for row in cell.rows)]


def _lay_out(plan: Plan, results: Results) -> str:
    found = results.find(timing(plan))
    lines = []
    for number, (label, cell) in enumerate(cells(plan).items()):
        speed = NOT_RUN if found is None else f"{found['speeds'][number]['tokens_per_second']:.0f}"
        tokens, bleu = paper.INTRO_SPEED[label]
        name = "MT" if label == "base" else "AK-MT (k = 4)"
        lines.append([name, speed, format_number(tokens), format_spread(cell.spread(results)), format_number(bleu)])
    note = (
        f"Batches of {BATCH} sentences, exact search, both systems in turn in one process, the median of {plan.rounds} "
        "rounds; the paper gives no batch size and measured on a P100. Its later tables print 38.35 and 47.20 BLEU for "
        "the same systems."
    )
    return f"{markdown(['system', 'tokens/s', 'paper', 'BLEU', 'paper'], lines)}\n\n{note}"


TABLE = Table("intro-speed", "Speed and quality of the base model and of adaptive kNN-MT on IT", _rows, _lay_out)
