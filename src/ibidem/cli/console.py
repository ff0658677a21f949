"""Terminal output and input: progress on stderr, tables on stdout, lines of text in."""

from __future__ import annotations

import re
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from ibidem.errors import TextError
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ibidem.text import Corpus


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Yield a progress function that draws bars with rate and time left; silent if stderr is not a terminal."""
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


@contextmanager
def shown_wait(message: str, seconds: float = 2.0) -> Iterator[None]:
    """Print a message on stderr if the body takes long; nothing if stderr is not a terminal.

    Args:
        message: One line that names the work.
        seconds: The time after which the message is printed.
    """
    if not sys.stderr.isatty():
        yield
        return
    timer = threading.Timer(seconds, note, [message])
    timer.name = "ibidem-wait"
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def use_threads(threads: int | None) -> None:
    """Set the number of threads of torch and, if it is installed, faiss.

    Args:
        threads: The number of threads; None leaves the defaults.
    """
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
    """Print a table on stdout.

    Args:
        title: The line above the table.
        rows: The cells, [rows, columns].
        header: The names of the columns, [columns].
        figures: Whether all columns but the first are numbers, which are aligned to the right.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(title=printable(title), title_justify="left")
    for number, name in enumerate(header):
        table.add_column(printable(name), justify="right" if figures and number else "left")
    for row in rows:
        table.add_row(*map(printable, row))
    terminal = sys.stdout.isatty()
    # Square brackets in a path or a setting must not be read as markup.
    Console(soft_wrap=not terminal, width=None if terminal else 120, markup=False, highlight=False).print(table)


def note_counts(corpus: Corpus) -> None:
    """Print what was read of a corpus, and in which direction if its files name their languages.

    Args:
        corpus: The corpus, after its iteration.
    """
    languages = corpus.languages
    direction = f", from {languages.source} to {languages.target}" if corpus.declares_languages else ""
    note(f"{corpus.counts.describe()}{direction}")


# Marks that turn the order of the characters after them around: a file name could be shown as another one.
_REORDERING = re.compile("[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]")
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff]")


def printable(text: str) -> str:
    """Replace characters that could control the terminal, in a file name or a stored text, and bytes of no encoding.

    Args:
        text: One line; a tab stays.

    Returns:
        The line, as long as before.
    """
    return _CONTROL.sub("\ufffd", _REORDERING.sub("\ufffd", text))


def note(message: str) -> None:
    """Print a message on stderr, without control characters.

    Args:
        message: One line.
    """
    print(printable(message), file=sys.stderr)


def say(message: str) -> None:
    """Print a result for a reader on stdout, without control characters.

    Args:
        message: One line.
    """
    print(printable(message))


def open_input(path: Path) -> BinaryIO:
    """Open a file for reading.

    Args:
        path: The file.

    Raises:
        TextError: The file cannot be opened.
    """
    try:
        return path.open("rb")
    except OSError as error:
        raise TextError(f"Cannot read {path}: {error.strerror}. Check the path.") from error


def read_lines(source: BinaryIO, name: str) -> Iterator[str]:
    """Yield lines of UTF-8 without their ends (LF or CRLF); only LF separates lines.

    Args:
        source: The open file.
        name: The name of the file, for messages.

    Raises:
        TextError: A line is not UTF-8, or the file is not text.
    """
    from ibidem.text import refuse_binary

    for number, raw in enumerate(source, start=1):
        if number == 1:
            refuse_binary(raw, name)
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise TextError(
                f"{name}, line {number}: not UTF-8 (byte {error.start + 1} of the line); "
                "convert the file first, e.g. with `iconv -f latin1 -t utf-8`."
            ) from None
        if number == 1:
            line = line.removeprefix("\ufeff")
        yield line.removesuffix("\n").removesuffix("\r")
