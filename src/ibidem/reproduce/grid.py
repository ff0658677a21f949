"""Grids: lines of systems by columns of domains or indexes, each cell some runs of one row with different seeds."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ibidem.reproduce.declaration import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ibidem.reproduce.bootstrap import Difference
    from ibidem.reproduce.results import Result, Results
    from ibidem.reproduce.rows.row import Row

NOT_RUN = "not run"
NONE = ""


class Spread(NamedTuple):
    """Mean and standard deviation (None for one run) of some runs."""

    mean: float
    deviation: float | None
    runs: int


def spread_of(values: Sequence[float]) -> Spread | None:
    """The spread of the values; None where there are none."""
    if not values:
        return None
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class Cell:
    """The rows of a cell, one for each seed, and the paper's number."""

    rows: tuple[Row, ...]
    paper: float | None = None

    def results(self, results: Results) -> list[Result]:
        """The results that are there."""
        return [found for row in self.rows if (found := results.find(row)) is not None]

    def values(self, results: Results, figure: Callable[[Result], float | None] | None = None) -> list[float]:
        """BLEU, or another figure, of every run that is there."""
        found = [(figure or bleu)(result) for result in self.results(results)]
        return [value for value in found if value is not None]

    def spread(self, results: Results) -> Spread | None:
        """BLEU over the seeds."""
        return spread_of(self.values(results))


@dataclass(frozen=True)
class Grid:
    """Lines of cells by column, and pairs of lines (baseline, system) whose difference is tested."""

    columns: tuple[str, ...]
    lines: Mapping[str, Mapping[str, Cell]]
    pairs: tuple[tuple[str, str], ...] = field(default=())

    @property
    def rows(self) -> list[Row]:
        """All rows of all cells, each once."""
        found = (row for cells in self.lines.values() for cell in cells.values() for row in cell.rows)
        return list({digest(row): row for row in found}.values())

    def compare(self, results: Results, baseline: str, system: str, column: str) -> Difference | None:
        """By how much a line is above another in a column; None where one of them was not run."""
        cells = [self.lines[label].get(column) for label in (baseline, system)]
        return results.compare(*(() if cell is None else cell.rows for cell in cells))

    def differences(self, results: Results) -> list[dict[str, Any]]:
        """Every tested pair in every column, for the JSON."""
        found = []
        for baseline, system in self.pairs:
            for column in self.columns:
                difference = self.compare(results, baseline, system, column)
                if difference is not None:
                    pair = {"baseline": baseline, "system": system, "column": column}
                    found.append({**pair, "test": "paired bootstrap", **difference._asdict()})
        return found


def bleu(result: Result) -> float:
    return float(result["scores"]["BLEU"])


def format_spread(spread: Spread | None, digits: int = 2) -> str:
    """47.94, or 47.94 ± 0.12 where there were several runs."""
    if spread is None:
        return NOT_RUN
    text = f"{spread.mean:.{digits}f}"
    return text if spread.deviation is None else f"{text} ± {spread.deviation:.{digits}f}"


def format_number(value: float | str | None, digits: int = 2) -> str:
    """A number of the paper; nothing where it printed none."""
    return NONE if value is None else value if isinstance(value, str) else f"{value:.{digits}f}"


def format_count(count: float) -> str:
    """4.33M, or 2,449 where there are few."""
    return f"{count / 1e6:.2f}M" if count >= 1e5 else f"{count:,.0f}"


def format_difference(difference: Difference | None) -> str:
    """-0.64 (p = 0.012)."""
    if difference is None:
        return NOT_RUN
    return f"{difference.value:+.2f} (p = {difference.p_value:.3f})"


def markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are numbers."""
    rule = ["---", *("---:" for _ in header[1:])]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in (header, rule, *lines))


def lay_out_grid(grid: Grid, results: Results, first: str = "system") -> str:
    """Ours by column and the paper's number of each line, then the tested differences."""
    printed = {cell.paper for cells in grid.lines.values() for cell in cells.values()} != {None}
    header, lines = [first, *grid.columns], []
    for label, cells in grid.lines.items():
        ours = [format_spread(cells[column].spread(results)) for column in grid.columns]
        lines.append([label, *ours, *([format_number(next(iter(cells.values())).paper)] if printed else [])])
    parts = [markdown([*header, *(["paper"] if printed else [])], lines)]
    if grid.pairs:
        parts.append(lay_out_pairs(grid, results))
    return "\n\n".join(parts)


def lay_out_pairs(grid: Grid, results: Results) -> str:
    """The tested differences, a line each."""
    lines = [
        [
            f"{system} − {baseline}",
            *(format_difference(grid.compare(results, baseline, system, column)) for column in grid.columns),
        ]
        for baseline, system in grid.pairs
    ]
    return markdown(["difference in BLEU", *grid.columns], lines)
