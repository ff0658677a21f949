"""The protocol of executors, the results of tasks, and how a task is run in a worker."""

from __future__ import annotations

import os
import re
import socket
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

from ibidem import errors
from ibidem.errors import IbidemError, UsageError, WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable

ATTEMPTS = 8
"""How often a task is started before a job fails, if its workers die."""


@dataclass(frozen=True)
class Outcome:
    """What a worker returns for a task.

    Attributes:
        value: The value of the function; None if it raised an error.
        worker: The name of the worker: its host and process number.
        seconds: How long the task ran.
        error: The name of the error's class; None if there was none.
        message: The message of an error of ibidem, or the stack trace of another one.
    """

    value: Any
    worker: str
    seconds: float
    error: str | None = None
    message: str = ""


@dataclass(frozen=True)
class Result:
    """The result of a task.

    Attributes:
        number: The number of the task.
        value: The value of its function.
        worker: The name of the worker that ran it.
        seconds: How long it ran there.
        attempts: How often it was started.
    """

    number: int
    value: Any
    worker: str
    seconds: float
    attempts: int


class Executor(Protocol):
    """Runs idempotent tasks on several workers.

    A task whose worker dies is started again on another one, so that it may run more than once, and two attempts may
    overlap. Its function is called by name in the worker: it must be importable there.

    Examples:
        >>> import math
        >>> with LocalExecutor(1) as executor:
        ...     executor.submit(0, math.factorial, 5)
        ...     executor.wait().value
        120
    """

    @property
    def workers(self) -> int:
        """The number of tasks that run at the same time."""
        ...

    @property
    def slots(self) -> int:
        """The number of tasks to submit so that no worker waits."""
        ...

    @property
    def pending(self) -> int:
        """The number of submitted tasks whose results were not returned yet."""
        ...

    def submit(self, number: int, function: Callable[[Any], Any], argument: object) -> None:
        """Start a task, now or when a worker is free.

        Args:
            number: The number of the task; no pending task has the same.
            function: A function of a module that the workers can import.
            argument: Its argument, which is pickled.
        """
        ...

    def wait(self, timeout: float | None = None) -> Result | None:
        """Return the next result, in the order in which the tasks end.

        Args:
            timeout: The longest wait in seconds; None waits without limit.

        Returns:
            The result; None if no task is pending or the time is over.

        Raises:
            IbidemError: The function raised this error; the message names the task and the worker.
            WorkerError: The function raised another error, or workers died at every attempt.
        """
        ...

    def cancel(self) -> None:
        """Drop all pending tasks, and stop those that run as far as that is possible."""
        ...

    def close(self) -> None:
        """Cancel all tasks and release the workers."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def run_task(function: Callable[[Any], Any], argument: object) -> Outcome:
    """Call a function in a worker; an error becomes part of the outcome, since not every error can be pickled.

    Args:
        function: The function.
        argument: Its argument.
    """
    worker = f"{socket.gethostname()}:{os.getpid()}"
    began = time.monotonic()
    try:
        value = function(argument)
    except IbidemError as error:
        return Outcome(None, worker, time.monotonic() - began, type(error).__name__, str(error))
    except Exception:
        return Outcome(None, worker, time.monotonic() - began, "Exception", traceback.format_exc())
    return Outcome(value, worker, time.monotonic() - began)


def result_of(number: int, outcome: Outcome, attempts: int) -> Result:
    """Return the result of a task, or raise the error of its function.

    Args:
        number: The number of the task.
        outcome: What the worker returned.
        attempts: How often the task was started.

    Raises:
        IbidemError: The function raised an error.
    """
    if outcome.error is None:
        return Result(number, outcome.value, outcome.worker, outcome.seconds, attempts)
    kind = getattr(errors, outcome.error, None)
    if isinstance(kind, type) and issubclass(kind, IbidemError):
        raise kind(f"{outcome.message} (task {number} on the worker {outcome.worker})")
    raise WorkerError(
        f"Task {number} failed on the worker {outcome.worker}. Finished tasks are kept: correct the cause and run the "
        f"same command again.\n{outcome.message}"
    )


def lost_error(number: int, attempts: int, reason: str) -> WorkerError:
    """Return the error for a task whose workers died at every attempt.

    Args:
        number: The number of the task.
        attempts: How often it was started.
        reason: What is known of the last loss.
    """
    return WorkerError(
        f"The worker of task {number} was lost {attempts} times ({' '.join(reason.split())[:300]}): check the memory "
        "limits and the logs of the workers, then run the same command again; finished tasks are kept."
    )


def check_repeatable(number: int, attempts: int, most: int, error: Exception) -> None:
    """Check that a task that a cluster has lost may be started again.

    Args:
        number: The number of the task.
        attempts: How often it was started.
        most: How often it may be started.
        error: The error of the cluster, with the stack trace of the worker.

    Raises:
        WorkerError: It was started too often, or a worker cannot even import its function.
    """
    trace = str(error)
    failed = re.findall(r"(?:ModuleNotFoundError|ImportError|AttributeError): ([^\n]+)", trace)
    if not failed and attempts < most:
        return
    if not failed:
        raise lost_error(number, attempts, trace) from error
    ray = re.search(r"pid=(\d+), ip=([\w.:]+)", trace)
    raise WorkerError(
        f"Task {number} cannot be started on {f'the worker {ray[2]}:{ray[1]}' if ray else 'a worker'}: {failed[-1]}. "
        "Install the same ibidem with the same libraries on all machines, then run the same command again; finished "
        "tasks are kept."
    ) from error


def check_workers(workers: int | None) -> None:
    """Check a number of workers.

    Args:
        workers: The number; None stands for the default of the executor.

    Raises:
        UsageError: The number is below 1.
    """
    if workers is not None and workers < 1:
        raise UsageError(f"Invalid number of workers {workers}: give 1 or more.")
