"""The paper's tables: which rows each has, and how they are laid out with the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from ibidem.reproduce.data import Data
    from ibidem.reproduce.grid import Grid
    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Results
    from ibidem.reproduce.rows import Row

# The module of each table, in the paper's order.
_MODULES = {
    "datasets": "description",
    "redundancy": "pruning",
    "intro-speed": "speed",
    "compact": "compact",
    "domains": "quality",
    "limited-data": "quality",
    "pruning": "pruning",
    "pruning-curve": "pruning",
    "latency": "speed",
    "optimal": "quality",
    "dimensions": "compact",
    "parameters": "description",
    "visualise": "description",
    "cases": "description",
    "default": "default",
    "fine-tuning": "quality",
    "orderings": "orderings",
}
TABLES = tuple(_MODULES)

Draw = Callable[["Plan", "Results", Path], list[Path]]


def _no_differences(_plan: Plan, _results: Results) -> list[dict[str, Any]]:
    return []


def _no_figures(_plan: Plan, _results: Results, _folder: Path) -> list[Path]:
    return []


def _no_aside(_plan: Plan, _results: Results, _data: Data) -> str:
    return ""


@dataclass(frozen=True)
class Table:
    """Declare a table.

    Attributes:
        name: Name on the command line.
        title: Heading, without the final stop.
        rows: Returns the rows of a plan.
        lay_out: Returns the Markdown of the results.
        differences: Returns the tested differences, for the JSON.
        figures: Names of its figures.
        draw: Draws the figures into a folder and returns the files.
        aside: Returns text that is printed and not stored, since it shows sentences that are not ours.
    """

    name: str
    title: str
    rows: Callable[[Plan], list[Row]]
    lay_out: Callable[[Plan, Results], str]
    differences: Callable[[Plan, Results], list[dict[str, Any]]] = _no_differences
    figures: tuple[str, ...] = ()
    draw: Draw = _no_figures
    aside: Callable[[Plan, Results, Data], str] = _no_aside


def grid_table(
    name: str,
    title: str,
    build: Callable[[Plan], Grid],
    lay_out: Callable[[Plan, Results], str],
    *,
    more_rows: Callable[[Plan], list[Row]] = lambda _: [],
    figures: tuple[str, ...] = (),
    draw: Draw = _no_figures,
) -> Table:
    """Declare a table whose rows and tested differences are those of a grid, and `more_rows` of other kinds.

    Args:
        name: Name on the command line.
        title: Heading, without the final stop.
        build: Returns the grid of a plan.
        lay_out: Returns the Markdown of the results.
        more_rows: Returns rows of a plan that are not in the grid.
        figures: Names of its figures.
        draw: Draws the figures into a folder and returns the files.
    """

    def rows(plan: Plan) -> list[Row]:
        return [*more_rows(plan), *build(plan).rows]

    def differences(plan: Plan, results: Results) -> list[dict[str, Any]]:
        return build(plan).differences(results)

    return Table(name, title, rows, lay_out, differences, figures, draw)


def open_table(name: str) -> Table:
    """Return the table of a name.

    Args:
        name: One of TABLES.

    Raises:
        UsageError: There is no such table.
    """
    if name not in TABLES:
        raise UsageError(f"There is no table '{name}': use one of {', '.join(TABLES)}, or all.")
    tables: dict[str, Table] = import_module(f"ibidem.reproduce.tables.{_MODULES[name]}").BY_NAME
    return tables[name]
