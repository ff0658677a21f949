"""The Slurm executor: a job for each task, by submitit."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any, Self

from ibidem.errors import UsageError, WorkerError
from ibidem.executor.executor import ATTEMPTS, Result, check_repeatable, check_workers, result_of, run_task

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_POLL_SECONDS = 0.2
_TIMEOUT_MINUTES = 12 * 60


class SlurmExecutor:
    """Runs each task as a Slurm job. The nodes need a shared file system with Python, ibidem and the memory's folder.

    Args:
        workers: The most jobs that are queued or run at the same time.
        folder: A folder on the shared file system for the jobs' scripts, arguments and logs.
        partition: The partition; None takes the default one of the cluster.
        threads: The CPUs of a job.
        gpus: The GPUs of a job.
        timeout_minutes: The time limit of a job.
        attempts: How often a task is started if its job is killed.
        cluster: "slurm", or "local" for processes of this machine, to test without Slurm.

    Raises:
        UsageError: submitit is missing, or a number is below 1.
        WorkerError: There is no Slurm on this machine.
    """

    def __init__(
        self,
        workers: int,
        folder: Path,
        *,
        partition: str | None = None,
        threads: int | None = None,
        gpus: int = 0,
        timeout_minutes: int = _TIMEOUT_MINUTES,
        attempts: int = ATTEMPTS,
        cluster: str = "slurm",
    ) -> None:
        check_workers(workers)
        try:
            import submitit
        except ImportError as error:
            raise UsageError(
                "submitit is not installed: run `pip install 'ibidem[slurm]'`, or give --on local."
            ) from error
        self._count, self._attempts, self._folder = workers, attempts, folder
        options: dict[str, Any] = {"timeout_min": timeout_minutes, "cpus_per_task": threads or 1}
        if gpus:
            options["gpus_per_node"] = gpus
        if partition is not None:
            options["slurm_partition"] = partition
        try:
            self._jobs = submitit.AutoExecutor(folder=folder, cluster=cluster)
            self._jobs.update_parameters(name="ibidem", **options)
        except (RuntimeError, ValueError) as error:
            raise WorkerError(
                f"Slurm cannot be used here ({' '.join(str(error).split())[:300]}): start this on a login node of the "
                "cluster, or give --on local."
            ) from error
        self._lost = (submitit.core.utils.UncompletedJobError, submitit.core.utils.FailedJobError)
        self._tasks: dict[int, tuple[Any, Callable[[Any], Any], object, int]] = {}

    @property
    def workers(self) -> int:
        """The most jobs at the same time."""
        return self._count

    @property
    def slots(self) -> int:
        """As many as there are workers."""
        return self._count

    @property
    def pending(self) -> int:
        """The number of submitted tasks whose results were not returned yet."""
        return len(self._tasks)

    def submit(self, number: int, function: Callable[[Any], Any], argument: object) -> None:
        """Queue a job; see `Executor.submit`."""
        self._submit(number, function, argument, 1)

    def wait(self, timeout: float | None = None) -> Result | None:
        """Return the next result; see `Executor.wait`."""
        end = None if timeout is None else time.monotonic() + timeout
        while self._tasks:
            for number, (job, function, argument, attempts) in list(self._tasks.items()):
                if not job.done():
                    continue
                del self._tasks[number]
                try:
                    outcome = job.result()
                except self._lost as error:
                    check_repeatable(number, attempts, self._attempts, error)
                    self._submit(number, function, argument, attempts + 1)
                    continue
                return result_of(number, outcome, attempts)
            if end is not None and time.monotonic() >= end:
                return None
            time.sleep(_POLL_SECONDS)
        return None

    def cancel(self) -> None:
        """Cancel all jobs that are queued or run."""
        for job, *_ in self._tasks.values():
            job.cancel(check=False)
        self._tasks.clear()

    def close(self) -> None:
        """Cancel all jobs; the folder of a job whose tasks all ended is deleted, and its logs are kept otherwise."""
        finished = not self._tasks
        self.cancel()
        if finished:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _submit(self, number: int, function: Callable[[Any], Any], argument: object, attempts: int) -> None:
        try:
            job = self._jobs.submit(run_task, function, argument)
        except (*self._lost, OSError) as error:
            reason = " ".join(str(error).split())[-300:]
            raise WorkerError(
                f"The job of task {number} cannot be queued (… {reason}): check the partition and the limits of your "
                "account, then run the same command again; finished tasks are kept."
            ) from error
        self._tasks[number] = (job, function, argument, attempts)
