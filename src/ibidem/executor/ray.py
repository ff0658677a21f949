"""The Ray executor: tasks of Ray Core on a cluster, or on this machine."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ibidem.errors import UsageError, WorkerError
from ibidem.executor.executor import ATTEMPTS, Result, check_repeatable, check_workers, result_of, run_task

if TYPE_CHECKING:
    from collections.abc import Callable

CLIENT = "ray://"
# Tasks exchange their data through files: the object store of a Ray that is started here holds arguments only.
_STORE_BYTES = 128 << 20
_REACH_SECONDS = 5.0


class RayExecutor:
    """Runs tasks on a Ray cluster. Workers need the same version of ibidem, and the memory's folder under its path.

    Args:
        workers: The tasks that run at the same time; None takes all CPUs of the cluster.
        address: "ray://HOST:PORT" for a Ray client, "HOST:PORT" of a cluster that this machine belongs to; None for the
            cluster of this machine or of RAY_ADDRESS, or, without one, for a Ray of its own on this machine.
        threads: The CPUs of a task.
        gpus: The GPUs of a task.
        attempts: How often a task is started if its worker or node dies.

    Raises:
        UsageError: Ray is missing, or a number is below 1.
        WorkerError: The cluster cannot be reached.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        address: str | None = None,
        threads: int | None = None,
        gpus: int = 0,
        attempts: int = ATTEMPTS,
    ) -> None:
        check_workers(workers)
        try:
            import ray
        except ImportError as error:
            raise UsageError("Ray is not installed: run `pip install 'ibidem[ray]'`, or give --on local.") from error
        self._ray = ray
        self._started = not ray.is_initialized()
        cpus = threads or 1
        if self._started:
            self._connect(address, cpus, workers)
        self._threads = cpus
        self._count = workers or self._room()
        self._attempts = attempts
        options = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": 0}
        self._remote = ray.remote(run_task).options(**options)
        self._tasks: dict[Any, tuple[int, Callable[[Any], Any], object, int]] = {}

    @property
    def workers(self) -> int:
        """The tasks that run at the same time."""
        return self._count

    @property
    def slots(self) -> int:
        """Two tasks for each worker where the cluster cannot run more than the workers at once, else one for each."""
        return 2 * self._count if self._room() <= self._count else self._count

    @property
    def pending(self) -> int:
        """The number of submitted tasks whose results were not returned yet."""
        return len(self._tasks)

    def submit(self, number: int, function: Callable[[Any], Any], argument: object) -> None:
        """Start a task when the cluster has a free CPU; see `Executor.submit`."""
        self._submit(number, function, argument, 1)

    def wait(self, timeout: float | None = None) -> Result | None:
        """Return the next result; see `Executor.wait`."""
        while self._tasks:
            done, _ = self._ray.wait(list(self._tasks), num_returns=1, timeout=timeout)
            if not done:
                return None
            number, function, argument, attempts = self._tasks.pop(done[0])
            try:
                outcome = self._ray.get(done[0])
            except self._ray.exceptions.RayError as error:
                check_repeatable(number, attempts, self._attempts, error)
                self._submit(number, function, argument, attempts + 1)
                continue
            return result_of(number, outcome, attempts)
        return None

    def cancel(self) -> None:
        """Drop all pending tasks, and end the workers that run one."""
        for task in self._tasks:
            try:
                self._ray.cancel(task, force=True)
            except (self._ray.exceptions.RayError, ValueError):  # it has ended meanwhile
                continue
        self._tasks.clear()

    def close(self) -> None:
        """Cancel all tasks, and leave the cluster if the executor has joined it."""
        self.cancel()
        if self._started:
            self._ray.shutdown()
            self._started = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _room(self) -> int:
        """Return how many tasks the CPUs of the cluster can run at the same time; it may grow and shrink."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)) // self._threads)

    def _submit(self, number: int, function: Callable[[Any], Any], argument: object, attempts: int) -> None:
        self._tasks[self._remote.remote(function, argument)] = (number, function, argument, attempts)

    def _connect(self, address: str | None, cpus: int, workers: int | None) -> None:
        """Join the cluster, or start a Ray on this machine where there is none."""
        common: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        try:
            given = address or os.environ.get("RAY_ADDRESS")
            if given:
                _check_reachable(given)
                self._ray.init(address=address or "auto", **common)
                return
            try:
                _check_reachable(_address_of_this_machine())
                self._ray.init(address="auto", **common)
            except ConnectionError:
                count = workers or max(1, (os.cpu_count() or 1) // cpus)
                own: dict[str, Any] = {"num_cpus": cpus * count, "object_store_memory": _STORE_BYTES}
                self._ray.init(address="local", include_dashboard=False, **own, **common)
        except (ConnectionError, RuntimeError, ValueError, ImportError) as error:
            reason = " ".join(str(error).split())[:300]
            raise WorkerError(
                f"The Ray cluster {address or 'of this machine'} cannot be reached ({reason}): check the address, that "
                "Ray and Python have the same versions there, and, where its nodes have a token (~/.ray/auth_token), "
                "that this machine has the same one and RAY_AUTH_MODE=token is set."
            ) from error


def _address_of_this_machine() -> str:
    """Return the address of the cluster that was started on this machine last; empty where there was none."""
    file = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")
    try:
        return file.read_text("utf-8").strip()
    except OSError:
        return ""


def _check_reachable(address: str) -> None:
    """Raise ConnectionError where no program listens at HOST:PORT: Ray itself retries for minutes."""
    host, separator, port = address.removeprefix(CLIENT).rpartition(":")
    if not separator or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_SECONDS).close()
    except OSError as error:
        raise ConnectionError(f"no program listens at {address}: {error}") from error
