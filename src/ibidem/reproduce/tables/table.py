"""What a table is to the runner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ibidem.reproduce.grid import Grid, lay_out_grid

if TYPE_CHECKING:
    from ibidem.reproduce.data import Data
    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Results
    from ibidem.reproduce.rows.row import Row

Draw = Callable[["Plan", "Results", Path], list[Path]]


def nothing_tested(_plan: Plan, _results: Results) -> list[dict[str, Any]]:
    """No differences."""
    return []


def nothing_drawn(_plan: Plan, _results: Results, _folder: Path) -> list[Path]:
    """No figures."""
    return []


def nothing_aside(_plan: Plan, _results: Results, _data: Data) -> str:
    """Nothing more to print."""
    return ""


@dataclass(frozen=True)
class Table:
    """Rows of a plan, their layout as Markdown, the differences that were tested, and figures as files in a folder.

    aside: what is printed after the table and kept in no file, since it shows text that is not ours.
    """

    name: str
    title: str
    rows: Callable[[Plan], list[Row]]
    lay_out: Callable[[Plan, Results], str]
    differences: Callable[[Plan, Results], list[dict[str, Any]]] = nothing_tested
    draw: Draw = nothing_drawn
    aside: Callable[[Plan, Results, Data], str] = nothing_aside


def grid_table(
    name: str, title: str, grid: Callable[[Plan], Grid], *, note: str = "", draw: Draw = nothing_drawn
) -> Table:
    """A table that is one grid of BLEU scores."""

    def rows(plan: Plan) -> list[Row]:
        return list(grid(plan).rows)

    def lay_out(plan: Plan, results: Results) -> str:
        return "\n\n".join(part for part in (lay_out_grid(grid(plan), results), note) if part)

    def differences(plan: Plan, results: Results) -> list[dict[str, Any]]:
        return grid(plan).differences(results)

    return Table(name, title, rows, lay_out, differences, draw)
