"""The number of parameters of the base model and of what the methods add."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.reproduce import paper
from ibidem.reproduce.grid import NOT_RUN, markdown
from ibidem.reproduce.rows.parameters import ParameterCount
from ibidem.reproduce.tables.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Results
    from ibidem.reproduce.rows.row import Row

K = 4


def build(plan: Plan) -> ParameterCount:
    return ParameterCount(K, plan.star, plan.metak)


def totals(found: Mapping[str, int]) -> dict[str, int]:
    """The parameters of each system of the paper's table."""
    adaptive = found["base"] + found["metak"]
    return {"MT": found["base"], "Adaptive kNN-MT": adaptive, "CKMT*": adaptive + found["compactor"]}


def _rows(plan: Plan) -> list[Row]:
    return [build(plan)]


def _lay_out(plan: Plan, results: Results) -> str:
    found = results.find(build(plan))
    counts = {} if found is None else totals(found)
    lines = []
    for label, printed in paper.PARAMETERS.items():
        number = counts.get(label)
        added = f"+{100 * (number / counts['MT'] - 1):.3f} %" if number is not None else NOT_RUN
        shown = NOT_RUN if number is None else f"{number:,}"
        lines.append([label, shown, added, f"{printed:.1f}M", f"+{100 * (printed / paper.PARAMETERS['MT'] - 1):.3f} %"])
    return markdown(["system", "parameters", "added", "paper", "added"], lines)


TABLE = Table("parameters", "Number of parameters, k = 4", _rows, _lay_out)
