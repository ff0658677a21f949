"""What a table is to the runner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ibidem.reproduce.data import Data
    from ibidem.reproduce.grid import Grid
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
    name: str,
    title: str,
    build: Callable[[Plan], Grid],
    lay_out: Callable[[Plan, Results], str],
    *,
    more_rows: Callable[[Plan], list[Row]] = lambda _: [],
    draw: Draw = nothing_drawn,
) -> Table:
    """A table whose rows and tested differences are those of a grid of BLEU scores, and `more_rows` of other kinds."""

    def rows(plan: Plan) -> list[Row]:
        return [*more_rows(plan), *build(plan).rows]

    def differences(plan: Plan, results: Results) -> list[dict[str, Any]]:
        return build(plan).differences(results)

    return Table(name, title, rows, lay_out, differences, draw)
