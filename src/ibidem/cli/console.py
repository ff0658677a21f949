"""What a person sees: progress on a terminal's stderr, tables on stdout."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Progress as a bar with rate and time left; silent where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, tuple[TaskID, int]] = {}

        def show(label: str, share: float | None, done: int, unit: str) -> None:
            if label not in tasks:
                number = bars.add_task(label, total=None if share is None else 1.0, rate="")
                tasks[label] = (number, done)
            number, first = tasks[label]
            elapsed = next(task.elapsed for task in bars.tasks if task.id == number) or 0.0
            rate = (done - first) / max(elapsed, 1e-3)
            bars.update(number, completed=share or 0.0, rate=f"{done:,} {unit}, {rate:,.0f}/s")

        yield show


def use_threads(threads: int | None) -> None:
    """Let torch and faiss use this many threads."""
    if threads is None:
        return
    import torch

    torch.set_num_threads(threads)
    try:
        import faiss
    except ImportError:
        return
    faiss.omp_set_num_threads(threads)


def print_table(title: str, rows: Sequence[tuple[str, ...]], header: tuple[str, ...], *, figures: bool = False) -> None:
    """A small table on stdout, of text; with `figures` all columns but the first are numbers."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for number, name in enumerate(header):
        table.add_column(name, justify="right" if figures and number else "left")
    for row in rows:
        table.add_row(*row)
    terminal = sys.stdout.isatty()
    # Square brackets in a path or a setting are no markup.
    Console(soft_wrap=not terminal, width=None if terminal else 120, markup=False, highlight=False).print(table)


def note(message: str) -> None:
    """Something a person may want to know, on stderr."""
    print(message, file=sys.stderr)
