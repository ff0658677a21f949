"""Grids of BLEU scores: lines of systems by columns of domains or indexes, several seeds in each cell."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ibidem.evaluate import SIGNIFICANCE_LEVEL, adjust_p_values, format_p_value
from ibidem.reproduce.results import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ibidem.evaluate import Difference
    from ibidem.reproduce.results import Result, Results
    from ibidem.reproduce.rows import Row

NOT_RUN = "not run"
NONE = ""
HOLM = "*"
TEST_NOTE = (
    "± is the standard deviation over seeds. Differences have their 95 % interval and the two-sided p of a paired "
    "bootstrap of 10,000 samples over sentences and seeds (over sentences only for a system with one seed; seeds are "
    "paired where both systems share compactor and combiner); "
    f"{HOLM} is below 0.05 after Holm's correction for all differences of the same table."
)


class Spread(NamedTuple):
    """Mean and deviation over some runs.

    Attributes:
        mean: Mean.
        deviation: Sample standard deviation; None for one run.
        runs: Number of runs.
    """

    mean: float
    deviation: float | None
    runs: int


def spread_of(values: Sequence[float]) -> Spread | None:
    """Return mean and standard deviation of values; None where there are none.

    Args:
        values: One value of each run.

    Examples:
        >>> spread_of([47.0, 48.0, 49.0])
        Spread(mean=48.0, deviation=1.0, runs=3)
    """
    if not values:
        return None
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class Cell:
    """A cell of a grid.

    Attributes:
        rows: Rows of the cell, one for each seed.
        paper: The paper's number; None where it printed none.
    """

    rows: tuple[Row, ...]
    paper: float | None = None

    def results(self, results: Results) -> list[Result]:
        """Return the results that are stored.

        Args:
            results: Results folder to read.
        """
        return [found for row in self.rows if (found := results.find(row)) is not None]

    def values(self, results: Results, figure: Callable[[Result], float | None] | None = None) -> list[float]:
        """Return BLEU, or another figure, of every stored run.

        Args:
            results: Results folder to read.
            figure: Reads a figure from a result, None where it has none; BLEU by default.
        """
        found = [(figure or bleu)(result) for result in self.results(results)]
        return [value for value in found if value is not None]

    def spread(self, results: Results) -> Spread | None:
        """Return mean and deviation of BLEU over the seeds.

        Args:
            results: Results folder to read.

        Returns:
            None where no row was run.
        """
        return spread_of(self.values(results))


@dataclass(frozen=True)
class Grid:
    """Cells by line and column.

    Attributes:
        columns: Columns, in their order.
        lines: Cells by line and column; a line may lack columns.
        pairs: Pairs of lines (baseline, system) whose difference is tested.
    """

    columns: tuple[str, ...]
    lines: Mapping[str, Mapping[str, Cell]]
    pairs: tuple[tuple[str, str], ...] = field(default=())

    @property
    def rows(self) -> list[Row]:
        """Return the rows of all cells, each once."""
        found = (row for cells in self.lines.values() for cell in cells.values() for row in cell.rows)
        return list({digest(row): row for row in found}.values())

    def compare(self, results: Results, baseline: str, system: str, column: str) -> Difference | None:
        """Compare two lines in a column; None where one of them was not run.

        Args:
            results: Results folder to read.
            baseline: Line of the baseline.
            system: Line of the system.
            column: Column to compare in.
        """
        cells = [self.lines[label].get(column) for label in (baseline, system)]
        return results.compare(*(() if cell is None else cell.rows for cell in cells))

    def compare_averages(self, results: Results, baseline: str, system: str) -> Difference | None:
        """Compare the averages of two lines over the columns that both were run in; None for fewer than two.

        Args:
            results: Results folder to read.
            baseline: Line of the baseline.
            system: Line of the system.
        """
        lines = [self.lines[label] for label in (baseline, system)]
        shared = [column for column in self.columns if all(column in cells for cells in lines)]
        return results.compare_averages([(lines[0][column].rows, lines[1][column].rows) for column in shared])

    def differences(self, results: Results) -> list[dict[str, Any]]:
        """Return every tested pair in every column, for the JSON.

        Args:
            results: Results folder to read.
        """
        pairs, differences = [], []
        for baseline, system in self.pairs:
            for column in self.columns:
                difference = self.compare(results, baseline, system, column)
                if difference is not None:
                    pairs.append({"baseline": baseline, "system": system, "column": column})
                    differences.append(difference)
        adjusted = adjust_p_values([difference.p_value for difference in differences])
        return [
            {**pair, "test": "paired bootstrap", **difference._asdict(), "p_value_holm": p_value}
            for pair, difference, p_value in zip(pairs, differences, adjusted, strict=True)
        ]


def bleu(result: Result) -> float:
    """Return the BLEU of a result.

    Args:
        result: Result of a row that translates.
    """
    return float(result["scores"]["BLEU"])


def format_spread(spread: Spread | None, digits: int = 2) -> str:
    """Format a score as 47.94, or as 47.94 ± 0.12 for several runs.

    Args:
        spread: Score; None where it was not run.
        digits: Digits after the point.

    Examples:
        >>> format_spread(Spread(47.938, 0.121, 3)), format_spread(Spread(47.938, None, 1)), format_spread(None)
        ('47.94 ± 0.12', '47.94', 'not run')
    """
    if spread is None:
        return NOT_RUN
    text = f"{spread.mean:.{digits}f}"
    return text if spread.deviation is None else f"{text} ± {spread.deviation:.{digits}f}"


def format_number(value: float | str | None, digits: int = 2) -> str:
    """Format a number of the paper; empty where it printed none.

    Args:
        value: Number, or a string as the paper prints it; None where it printed none.
        digits: Digits after the point.
    """
    return NONE if value is None else value if isinstance(value, str) else f"{value:.{digits}f}"


def format_count(count: float) -> str:
    """Format a count as 4.33M, or as 2,449 below 100,000.

    Args:
        count: Number of entries.

    Examples:
        >>> format_count(4_332_100), format_count(2449)
        ('4.33M', '2,449')
    """
    return f"{count / 1e6:.2f}M" if count >= 1e5 else f"{count:,.0f}"


def format_difference(difference: Difference | None, adjusted: float = 1.0) -> str:
    """Format a difference with its interval and p value.

    Args:
        difference: Tested difference; None where it was not run.
        adjusted: p value after Holm's correction; below 0.05 it is marked.

    Examples:
        >>> from ibidem.evaluate import Difference
        >>> format_difference(Difference(-0.64, -1.1, -0.2, 0.012, (3, 3)), 0.048)
        '-0.64 [-1.10, -0.20], p = 0.012*'
    """
    if difference is None:
        return NOT_RUN
    p_value = format_p_value(difference.p_value)
    mark = HOLM if adjusted < SIGNIFICANCE_LEVEL else ""
    shown = p_value if p_value.startswith("<") else f"= {p_value}"
    return f"{difference.value:+.2f} [{difference.low:+.2f}, {difference.high:+.2f}], p {shown}{mark}"


def format_differences(table: Sequence[Sequence[Difference | None]]) -> list[list[str]]:
    """Format all differences of a table, with Holm's correction over all of them.

    Args:
        table: Differences by line and column; None where one was not run.
    """
    tested = [difference for line in table for difference in line if difference is not None]
    adjusted = iter(adjust_p_values([difference.p_value for difference in tested]))
    return [
        [format_difference(difference, 1.0 if difference is None else next(adjusted)) for difference in line]
        for line in table
    ]


def markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first column is text, the others are numbers.

    Args:
        header: Titles of the columns.
        lines: Cells of each line.
    """
    rule = ["---", *("---:" for _ in header[1:])]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in (header, rule, *lines))


def lay_out_grid(grid: Grid, results: Results, first: str = "system") -> str:
    """Lay out our scores by column with the paper's number of each line, then the tested differences.

    Args:
        grid: Cells and tested pairs.
        results: Results folder to read.
        first: Title of the first column.

    Returns:
        Markdown.
    """
    printed = {cell.paper for cells in grid.lines.values() for cell in cells.values()} != {None}
    header, lines = [first, *grid.columns], []
    for label, cells in grid.lines.items():
        ours = [format_spread(cells[column].spread(results)) if column in cells else "" for column in grid.columns]
        lines.append([label, *ours, *([format_number(next(iter(cells.values())).paper)] if printed else [])])
    parts = [markdown([*header, *(["paper"] if printed else [])], lines)]
    if grid.pairs:
        parts.append(lay_out_pairs(grid, results))
    return "\n\n".join(parts)


def lay_out_pairs(grid: Grid, results: Results) -> str:
    """Lay out the tested differences, a line for each pair.

    Args:
        grid: Cells and tested pairs.
        results: Results folder to read.

    Returns:
        A Markdown table.
    """
    table = [[grid.compare(results, *pair, column) for column in grid.columns] for pair in grid.pairs]
    lines = []
    for (baseline, system), cells in zip(grid.pairs, format_differences(table), strict=True):
        shown = [
            cell if column in grid.lines[baseline] and column in grid.lines[system] else ""
            for column, cell in zip(grid.columns, cells, strict=True)
        ]
        lines.append([f"{system} − {baseline}", *shown])
    return markdown(["difference in BLEU", *grid.columns], lines)
