"""The options --on and --workers: stages that run in tasks."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ibidem.cli.console import note
from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.learn import Distribution


@contextmanager
def opened_distribution(
    on: str | None, workers: int | None, path: Path, threads: int | None, device: str
) -> Iterator[Distribution | None]:
    """Open the executor of the options inside a `with` block; its reports are printed on stderr.

    Args:
        on: The value of --on; None runs all stages in this process.
        workers: The value of --workers.
        path: The folder of the memory.
        threads: The value of --threads.
        device: The device of the driver, on which tasks compute too.

    Raises:
        UsageError: --workers is given without --on, or the executor is unknown or not installed.
        WorkerError: The cluster cannot be reached.
    """
    if on is None:
        if workers is not None:
            raise UsageError("--workers needs an executor: give --on local, or --on ray or slurm:PARTITION.")
        yield None
        return
    from ibidem.learn import open_distribution

    gpus = 1 if device.startswith("cuda") else 0
    with open_distribution(on, workers, path, threads=threads, gpus=gpus, report=note) as distribution:
        yield distribution
