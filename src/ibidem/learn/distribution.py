"""The choice to run stages in tasks: the executor, the sizes of tasks, and where reports go."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ibidem.executor import Executor


def ignore(_: str) -> None:
    """Ignore a report."""


@dataclass(frozen=True)
class Distribution:
    """How the stages of learning run in tasks. The sizes of tasks do not change the result.

    Attributes:
        executor: Runs the tasks.
        threads: The threads of torch in a worker; None keeps the default there.
        report: Receives a line now and then: tasks, throughput, slow tasks, time left.
        task_rows: About how many entries a task of compaction, pruning or indexing reads.
        task_pairs: About how many pairs of keys a task of clustering compares.
        report_seconds: The time between two reports.
    """

    executor: Executor
    threads: int | None = None
    report: Callable[[str], None] = ignore
    task_rows: int = 1 << 18
    task_pairs: int = 1 << 31
    report_seconds: float = 30.0


@contextmanager
def open_distribution(
    on: str | None,
    workers: int | None,
    path: Path,
    *,
    threads: int | None = None,
    gpus: int = 0,
    report: Callable[[str], None] = ignore,
) -> Iterator[Distribution | None]:
    """Open an executor for the stages of a memory inside a `with` block.

    Args:
        on: The name of the executor, see `ibidem.executor.open_executor`; None runs all stages in this process.
        workers: The tasks that run at the same time.
        path: The folder of the memory; files of Slurm jobs are kept beside it.
        threads: The threads of a worker.
        gpus: The GPUs of a worker.
        report: Receives a line now and then.

    Yields:
        The distribution; None without an executor.

    Raises:
        UsageError: Unknown executor, a missing package, or an invalid number.
        WorkerError: The cluster cannot be reached.
    """
    if on is None:
        yield None
        return
    from ibidem.executor import open_executor  # not on one machine

    folder = path.resolve().with_name(f"{path.name}.jobs")
    with open_executor(on, workers, folder=folder, threads=threads, gpus=gpus) as executor:
        yield Distribution(executor, threads, report)
