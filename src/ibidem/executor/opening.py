"""The choice of an executor by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.errors import UsageError
from ibidem.executor.local import LocalExecutor
from ibidem.executor.ray import CLIENT, RayExecutor
from ibidem.executor.slurm import SlurmExecutor

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.executor.executor import Executor


def open_executor(
    on: str, workers: int | None = None, *, folder: Path, threads: int | None = None, gpus: int = 0
) -> Executor:
    """Open the executor of a name.

    Args:
        on: "local"; "ray", "ray://HOST:PORT" (a Ray client) or "ray:HOST:PORT" (a cluster of this machine);
            "slurm" or "slurm:PARTITION".
        workers: The tasks that run at the same time; None takes all CPUs. Slurm needs a number.
        folder: A folder for the files of Slurm jobs, which all nodes see.
        threads: The threads of a worker; None divides the cores of this machine, and takes one elsewhere.
        gpus: The GPUs of a worker of Ray or Slurm.

    Raises:
        UsageError: Unknown name, a missing package, or an invalid number.
        WorkerError: The cluster cannot be reached.

    Examples:
        >>> from pathlib import Path
        >>> open_executor("local", 2, folder=Path("jobs")).workers
        2
    """
    if on == "local":
        return LocalExecutor(workers, threads=threads)
    if on == "ray":
        return RayExecutor(workers, threads=threads, gpus=gpus)
    if on.startswith(CLIENT) and len(on) > len(CLIENT):
        return RayExecutor(workers, address=on, threads=threads, gpus=gpus)
    name, _, rest = on.partition(":")
    if name == "ray" and rest.strip("/"):
        return RayExecutor(workers, address=rest, threads=threads, gpus=gpus)
    if name == "slurm" and (rest or on == "slurm"):
        if workers is None:
            raise UsageError("Slurm needs the number of jobs that may run at the same time: give --workers.")
        return SlurmExecutor(workers, folder, partition=rest or None, threads=threads, gpus=gpus)
    raise UsageError(f"Unknown executor '{on}': use local, ray, ray://HOST:PORT, ray:HOST:PORT or slurm:PARTITION.")
