"""The side of the driver: submits the tasks of a stage, reuses sealed parts, and returns the parts in order."""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from ibidem.errors import WorkerError
from ibidem.learn.jobs.parts import find_part
from ibidem.learn.jobs.worker import TaskRequest, describe_environment, perform
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from ibidem.executor import Result
    from ibidem.learn.distribution import Distribution
    from ibidem.learn.jobs.parts import Part
    from ibidem.learn.jobs.worker import Context, ModelSource
    from ibidem.memory import Memory

_POLL_SECONDS = 2.0
# NFS clients cache the names of a folder for up to a minute.
_VISIBLE_SECONDS = 90.0
_LOOK_SECONDS = 0.2
# Tasks that wait for an earlier one, for each worker: a slow task must not let finished parts fill the disk.
_AHEAD = 4
# A task is slow if it has run for this many times the usual time.
_SLOW = 3.0


@dataclass(frozen=True)
class Task:
    """A task of a stage.

    Attributes:
        number: The number, which increases from task to task.
        digest: The digest of its input.
        function: A function of a module. It takes the argument, the context and a folder, into which it writes files,
            and returns what is stored with them, as JSON.
        argument: The argument of the function.
        units: The units of work, such as tokens.
        share: The share of the stage that is done with this task; None where it is unknown.
    """

    number: int
    digest: str
    function: Callable[[Any, Context, Path], Mapping[str, Any]]
    argument: object
    units: int
    share: float | None = None


class Job:
    """The tasks of one stage on an executor.

    Args:
        distribution: The executor and the sizes of tasks.
        folder: The work folder of the stage.
        label: The label of the progress.
        unit: The name of the units of work.
        model: The model that the tasks need.
        memory: The memory that the tasks read, in the generation that they read.
        device: Where tasks compute: "cpu" or "cuda".
        done: The units that were done before this job.
        progress: Receives the units that are done, and their share.
    """

    def __init__(
        self,
        distribution: Distribution,
        folder: Path,
        label: str,
        unit: str,
        *,
        model: ModelSource | None = None,
        memory: Memory | None = None,
        device: str = "cpu",
        done: int = 0,
        progress: Progress = silent,
    ) -> None:
        self._distribution = distribution
        self._folder = folder
        self._model = model
        self._memory = None if memory is None else (str(memory.path.resolve()), memory.generation)
        self._device = device
        self._progress = progress
        self._environment = describe_environment()
        self._report = Report(label, unit, distribution, folder, done)

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Part]]:
        """Run tasks; parts that are sealed already are not made again.

        Args:
            tasks: The tasks. They are taken from the iterable while others run, at most a few for each worker ahead.

        Yields:
            Each task with its part, in the order of the tasks.

        Raises:
            IbidemError: A task failed.
        """
        executor, source = self._distribution.executor, iter(tasks)
        waiting: deque[Task] = deque()
        ready: dict[int, Part] = {}
        running: dict[int, Task] = {}
        exhausted = False
        try:
            while True:
                while not exhausted and len(running) < executor.slots and len(waiting) < _AHEAD * executor.slots:
                    task = next(source, None)
                    if task is None:
                        exhausted = True
                        break
                    waiting.append(task)
                    part = find_part(self._folder, task.number, task.digest)
                    if part is not None:
                        ready[task.number] = part
                        self._report.reuse(task)
                        continue
                    running[task.number] = task
                    self._report.start(task)
                    executor.submit(task.number, perform, self._request_of(task))
                if waiting and waiting[0].number in ready:
                    task = waiting.popleft()
                    yield task, ready.pop(task.number)
                    self._progress(*self._report.advance(task))
                    continue
                if not waiting:
                    self._report.end()
                    return
                result = executor.wait(_POLL_SECONDS)
                if result is not None:
                    task = running.pop(result.number)
                    ready[task.number] = self._find_finished(task, result.worker)
                    self._report.finish(task, result)
                self._report.tell(running)
        finally:
            if running:
                executor.cancel()

    def _find_finished(self, task: Task, worker: str) -> Part:
        """Return the part of a finished task; a network file system may show it here some time later."""
        end = time.monotonic() + _VISIBLE_SECONDS
        while (part := find_part(self._folder, task.number, task.digest)) is None:
            if time.monotonic() >= end:
                raise WorkerError(
                    f"The worker {worker} finished task {task.number}, but its part is not in {self._folder}: all "
                    "machines must see this folder, on a shared file system."
                )
            list(self._folder.iterdir())  # opening a folder ends the caching of missing names
            time.sleep(_LOOK_SECONDS)
        return part

    def _request_of(self, task: Task) -> TaskRequest:
        return TaskRequest(
            str(self._folder.resolve()),
            task.number,
            task.digest,
            task.function,
            task.argument,
            self._environment,
            self._model,
            self._memory,
            self._device,
            self._distribution.threads,
        )


class Report:
    """The progress of a whole job: tasks, throughput of a worker, slow tasks by name, time left.

    Args:
        label: The label of the progress.
        unit: The name of the units of work.
        distribution: Where reports go, and how often.
        folder: The work folder of the stage, where workers name themselves.
        done: The units that were done before.
    """

    def __init__(self, label: str, unit: str, distribution: Distribution, folder: Path, done: int) -> None:
        self._label, self._unit, self._folder = label, unit, folder
        self._distribution = distribution
        self._began = self._told = time.monotonic()
        self._started: dict[int, float] = {}
        self._seconds: list[float] = []
        self._units: dict[str, tuple[int, float]] = {}
        self._done = done
        self._first_share: float | None = None
        self._share: float | None = None
        self.finished = self.reused = self.repeated = 0

    def start(self, task: Task) -> None:
        """Note that a task was submitted."""
        self._started[task.number] = time.monotonic()

    def reuse(self, task: Task) -> None:
        """Note that the part of a task was sealed before."""
        self.reused += 1
        self._first_share = task.share

    def finish(self, task: Task, result: Result) -> None:
        """Note the result of a task."""
        self.finished += 1
        self.repeated += result.attempts - 1
        self._started.pop(task.number, None)
        self._seconds.append(result.seconds)
        units, seconds = self._units.get(result.worker, (0, 0.0))
        self._units[result.worker] = (units + task.units, seconds + result.seconds)

    def advance(self, task: Task) -> tuple[str, float | None, int, str]:
        """Note that a part was used, and return what a progress function takes."""
        self._done += task.units
        self._share = task.share
        return self._label, task.share, self._done, self._unit

    def throughput(self) -> float:
        """Return the mean units a second of a worker, while it works."""
        units, seconds = (sum(column) for column in zip(*self._units.values(), strict=True)) if self._units else (0, 0)
        return units / max(seconds, 1e-9)

    def slow_tasks(self, running: Iterable[int], now: float) -> list[str]:
        """Return descriptions of the tasks that run far longer than the others, with the names of their workers."""
        if not self._seconds:
            return []
        usual = median(self._seconds)
        found = []
        for number in running:
            seconds = now - self._started.get(number, now)
            if seconds > _SLOW * max(usual, 1.0):
                found.append(f"task {number} on {self._worker_of(number)} ({seconds:.0f} s, usually {usual:.0f} s)")
        return found

    def tell(self, running: Iterable[int]) -> None:
        """Report if it is time to."""
        now = time.monotonic()
        if now - self._told >= self._distribution.report_seconds:
            self._told = now
            self._distribution.report(self.describe(running, now))

    def end(self) -> None:
        """Report the end of the job."""
        self._distribution.report(self.describe((), time.monotonic()))

    def describe(self, running: Iterable[int], now: float) -> str:
        """Return the report as one line."""
        numbers = list(running)
        parts = [f"{self._label}: {self.finished} tasks done"]
        if self.reused:
            parts.append(f"{self.reused} found finished")
        if numbers:
            parts.append(f"{len(numbers)} running or queued")
        if self._units:
            rate = f"{self.throughput():,.0f} {self._unit}/s a worker"
            # A Slurm job is a process of its own, and a lost worker is replaced by another process.
            parts.append(f"{min(len(self._units), self._distribution.executor.workers)} workers, {rate}")
        if self.repeated:
            parts.append(f"{self.repeated} attempts lost")
        if slow := self.slow_tasks(numbers, now):
            parts.append("slow: " + ", ".join(slow))
        gained = None if self._share is None else self._share - (self._first_share or 0.0)
        if numbers and gained is not None and self._share is not None and gained > 0:
            left = (now - self._began) * (1 - self._share) / gained
            parts.append(f"about {left / 60:.0f} min left")
        return "; ".join(parts)

    def _worker_of(self, number: int) -> str:
        try:
            found = json.loads((self._folder / f"running-{number:09d}.json").read_text("utf-8"))
            return str(found["worker"])
        except (OSError, ValueError, KeyError, TypeError):
            return "no worker yet"
