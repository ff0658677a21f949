"""What a person sees: progress on a terminal's stderr, tables on stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ibidem.progress import Progress, silent


@contextmanager
def shown_progress(unit: str = "tokens") -> Iterator[Progress]:
    """Progress as a bar with rate and time left; silent where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress as Bars, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, tuple[int, int]] = {}

        def show(label: str, share: float | None, done: int) -> None:
            if label not in tasks:
                number = bars.add_task(label, total=None if share is None else 1.0, rate="")
                tasks[label] = (int(number), done)
            number, first = tasks[label]
            task = bars.tasks[[int(task.id) for task in bars.tasks].index(number)]
            rate = (done - first) / max(task.elapsed or 0.0, 1e-3)
            bars.update(task.id, completed=share or 0.0, rate=f"{done:,} {unit}, {rate:,.0f}/s")

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


def print_table(title: str, rows: list[tuple[str, ...]], header: tuple[str, ...]) -> None:
    """A small table on stdout; the first column is text, the others are figures."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for number, name in enumerate(header):
        table.add_column(name, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*row)
    Console(soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else 120).print(table)


def note(message: str) -> None:
    """Something a person may want to know, on stderr."""
    print(message, file=sys.stderr)
