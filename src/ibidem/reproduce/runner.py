"""The runner: measures rows after the stages that they need, one after another or side by side in worker processes.

The schedule orders the tasks: critical path first, or shortest completion first where time is short.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
import traceback
import warnings
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, NamedTuple, cast

from ibidem.errors import IbidemError, UsageError
from ibidem.memory import writer_lock
from ibidem.reproduce.results import Results, digest, trace
from ibidem.reproduce.workspace import RunSettings, Stage, Workspace, with_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess
    from types import TracebackType

    from ibidem.reproduce.rows import Row


@dataclass(frozen=True)
class Task:
    """A stage to build or a row to measure.

    Attributes:
        key: Digest of the stage or row.
        waits_for: Keys of the tasks that must be done before.
        seconds: Estimated time.
        kind: Class of the stage or row; the estimates of one kind are corrected together.
        kept: Whether its result outlasts the run.
        alone: Whether no other task may run at the same time.
        cheap: Whether it takes little time but much disk, so that it is built as late as possible.
        work: The stage or row itself.
    """

    key: str
    waits_for: frozenset[str]
    seconds: float
    kind: str
    kept: bool
    alone: bool = False
    cheap: bool = False
    work: Stage | Row | None = None


@dataclass
class Schedule:
    """Track which tasks are waiting, running, done or lost, and choose the next one.

    Attributes:
        tasks: All tasks by key.
        jobs: Number of tasks that run side by side.
        done: Keys of finished tasks.
        running: Keys of running tasks.
        lost: Keys of tasks that failed or wait for one that failed.
    """

    tasks: dict[str, Task]
    jobs: int = 1
    done: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    _ratios: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, tasks: Iterable[Task], jobs: int = 1) -> Schedule:
        """Make a schedule of tasks that are all waiting.

        Args:
            tasks: Tasks; a task may wait only for tasks among them.
            jobs: Number of tasks that run side by side.
        """
        return cls({task.key: task for task in tasks}, jobs)

    def choose(self, seconds_left: float, *, alone: bool = False) -> Task | None:
        """Choose the next task among those that are ready and lead to a kept result in time.

        If all tasks fit into the time, it is the task with the longest critical path. If not, it is the task whose next
        kept result is nearest, since starting many paths would complete none of them.

        Args:
            seconds_left: Time that is left.
            alone: Whether to choose among the tasks that run alone, or among the others.

        Returns:
            The task; None where none fits.
        """
        paths = CriticalPaths(self)
        ready = [task for task in self.waiting() if task.alone is alone and task.waits_for <= self.done]
        fitting = [
            task
            for task in ready
            if paths.seconds_to_result(task) <= seconds_left and self._can_be_used(task, paths.successors(task))
        ]
        short = sum(map(self.estimate, self.waiting())) > seconds_left * self.jobs

        def priority(task: Task) -> tuple[bool, float]:
            uses_cheap = any(self.tasks[key].cheap for key in task.waits_for)
            return uses_cheap, -paths.seconds_to_result(task) if short else paths.critical_path(task)

        return max(fitting, key=priority, default=None)

    def start(self, key: str) -> None:
        """Note that a task is running.

        Args:
            key: Key of the task.
        """
        self.running.add(key)

    def finish(self, key: str, seconds: float) -> None:
        """Note that a task is done, and correct the estimates of its kind by the time it took.

        Args:
            key: Key of the task.
            seconds: Time that it took.
        """
        self.running.discard(key)
        self.done.add(key)
        task = self.tasks[key]
        if task.seconds > 0:
            self._ratios[task.kind] = max(self._ratios.get(task.kind, 0.0), seconds / task.seconds)

    def give_up(self, key: str) -> None:
        """Note that a task and all tasks that wait for it are lost.

        Args:
            key: Key of the task that failed.
        """
        self.running.discard(key)
        self.lost.add(key)
        for task in self.tasks.values():
            if key in task.waits_for and self._is_waiting(task.key):
                self.give_up(task.key)

    def waiting(self) -> list[Task]:
        """Return the tasks that are not running, done or lost."""
        return [task for task in self.tasks.values() if self._is_waiting(task.key)]

    def is_needed(self, key: str) -> bool:
        """Return whether an unfinished task waits for this one.

        Args:
            key: Key of the task.
        """
        over = self.done | self.lost
        return any(key in task.waits_for for task in self.tasks.values() if task.key not in over)

    def estimate(self, task: Task) -> float:
        """Estimate the seconds of a task from those that tasks of its kind took.

        Args:
            task: Task of the schedule.
        """
        return task.seconds * self._ratios.get(task.kind, 1.0)

    def _can_be_used(self, task: Task, successors: list[Task]) -> bool:
        """Return whether a cheap task is all that a successor still waits for, apart from other cheap tasks."""
        cheap = {key for key, other in self.tasks.items() if other.cheap}
        return not task.cheap or any(other.waits_for <= self.done | cheap for other in successors)

    def _is_waiting(self, key: str) -> bool:
        return key not in self.done and key not in self.running and key not in self.lost


class CriticalPaths:
    """Measure the time from each waiting task to the tasks that follow it.

    Args:
        schedule: Schedule, in its current state; later changes are not seen.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._successors: dict[str, list[Task]] = {key: [] for key in schedule.tasks}
        self._longest: dict[str, float] = {}
        for task in schedule.waiting():
            for key in task.waits_for:
                self._successors[key].append(task)

    def successors(self, task: Task) -> list[Task]:
        """Return the tasks that wait for this one.

        Args:
            task: Task of the schedule.
        """
        return self._successors[task.key]

    def seconds_to_result(self, task: Task) -> float:
        """Return the shortest time from the start of a task to a kept result, its own or a successor's.

        Args:
            task: A waiting task.
        """
        own = self._schedule.estimate(task)
        return own if task.kept else own + min(map(self.seconds_to_result, self.successors(task)), default=0.0)

    def critical_path(self, task: Task) -> float:
        """Return the longest time from the start of a task to the end of one that has no successor.

        Args:
            task: A waiting task.

        Returns:
            Estimated seconds.
        """
        if task.key not in self._longest:
            after = max(map(self.critical_path, self.successors(task)), default=0.0)
            self._longest[task.key] = self._schedule.estimate(task) + after
        return self._longest[task.key]


@dataclass(frozen=True)
class Report:
    """Count the rows of a run.

    Attributes:
        failed: Reason of each failure, by the name of the task.
        measured: Rows that have a result now.
        lost: Rows that failed or wait for a stage that failed.
        left: Rows left for lack of time.
    """

    measured: int = 0
    lost: int = 0
    left: int = 0
    failed: dict[str, str] = field(default_factory=dict)


class Outcome(NamedTuple):
    """The end of a task.

    Attributes:
        key: Key of the task.
        seconds: Time that it took.
        failure: Error message; None where it succeeded.
    """

    key: str
    seconds: float
    failure: str | None


def choose_rows(rows: Iterable[Row], only: Sequence[str], seeds: Sequence[int]) -> list[Row]:
    """Choose rows by name or digest and by seed; each row is returned once.

    Args:
        rows: Rows to choose from.
        only: Parts of names, or digests; all rows where it is empty.
        seeds: Seeds; all where it is empty. Rows without a seed are always chosen.

    Returns:
        The chosen rows, in their order.

    Raises:
        UsageError: No row matches `only`.
    """
    chosen = {}
    for row in rows:
        if seeds and row.seed and row.seed not in seeds:
            continue
        key = digest(row)
        if not only or any(part == key or part.casefold() in row.name.casefold() for part in only):
            chosen[key] = row
    if only and not chosen:
        raise UsageError(f"No row matches --only {' '.join(only)}: --list shows their names.")
    return list(chosen.values())


def find_obstacle(workspace: Workspace, work: Row | Stage) -> str | None:
    """Return what a row or stage lacks here: a text or a library.

    A kept stage that is built needs neither.

    Args:
        workspace: Data and device.
        work: Row to measure, or stage to build.

    Returns:
        The reason for the reader; None where nothing is missing.
    """
    if isinstance(work, Stage) and work.kept and workspace.is_made(work):
        return None
    for domain, part in work.texts:
        if not workspace.data.has(domain, part):
            return f"no {part} text of {domain}"
    library = work.required_library(workspace.device) if isinstance(work, Stage) else work.library
    if library is not None and find_spec(library) is None:
        return f"{library} is not installed"
    sources = work.sources if isinstance(work, Stage) else work.stages
    return next((obstacle for source in sources if (obstacle := find_obstacle(workspace, source))), None)


def run_rows(
    setting: RunSettings,
    rows: Sequence[Row],
    *,
    minutes: float | None,
    log: Callable[[str], None],
) -> Report:
    """Measure rows that have no result; each result is on disk as soon as its row is done.

    With several jobs, rows run side by side in worker processes. Rows that need the machine to themselves follow, with
    their stages built before.

    Args:
        setting: Folders, model and device.
        rows: Rows to measure.
        minutes: Time limit; no task is started that would not lead to a result within it.
        log: Receives a line for each finished task.

    Returns:
        How many rows were measured, lost and left.

    Raises:
        MismatchError: The results folder holds results of another model.
    """
    deadline = math.inf if minutes is None else time.monotonic() + 60 * minutes
    setting.work.mkdir(parents=True, exist_ok=True)
    with writer_lock(setting.work):
        workspace = Workspace(setting)
        if setting.jobs > 1:
            workspace.check_model()
        else:
            _ = workspace.model  # refuse the results of another model before any work
        run = _Run(workspace, Schedule.of(plan_tasks(workspace, rows), setting.jobs), deadline, log)
        if setting.jobs == 1:
            run.run_here()
        else:
            run.run_workers(setting.jobs)
        run.run_here(alone=True)
    keys = {digest(row) for row in rows}
    done, lost = run.schedule.done, run.schedule.lost
    return Report(len(keys & done), len(keys & lost), len(keys - done - lost), run.failed)


def plan_tasks(workspace: Workspace, rows: Iterable[Row]) -> list[Task]:
    """Return a task for every row, and for every stage that is needed and not built.

    Args:
        workspace: Shows which stages are built.
        rows: Rows to measure.
    """
    tasks: dict[str, Task] = {}

    def add_stage(stage: Stage) -> str | None:
        if workspace.is_made(stage):
            return None
        key = digest(stage)
        if key not in tasks:
            waits_for = frozenset(filter(None, map(add_stage, stage.sources)))
            seconds, kind = stage.estimate_seconds(workspace.count_pairs), type(stage).__name__
            tasks[key] = Task(key, waits_for, seconds, kind, kept=stage.kept, cheap=stage.cheap, work=stage)
        return key

    for row in rows:
        key = digest(row)
        waits_for = frozenset(filter(None, map(add_stage, row.stages)))
        seconds, kind = row.estimate_seconds(workspace.count_pairs), type(row).__name__
        tasks[key] = Task(key, waits_for, seconds, kind, kept=True, alone=row.alone, work=row)
    return list(tasks.values())


def perform(workspace: Workspace, work: Stage | Row) -> None:
    """Build a stage, or measure a row and store its result.

    Args:
        workspace: Workspace where the sources of the stage, or the stages of the row, are built.
        work: Stage or row.
    """
    if isinstance(work, Stage):
        workspace.make(work)
        return
    started = time.perf_counter()
    found = work.measure(workspace)
    seconds = time.perf_counter() - started
    figures = {"name": work.name, "seed": work.seed, **found.figures, **trace(workspace, work, seconds)}
    Results(workspace.setting.results).put(work, found._replace(figures=figures))
    workspace.free()


@dataclass(frozen=True)
class _Run:
    """Perform tasks until none is left that fits into the time."""

    workspace: Workspace
    schedule: Schedule
    deadline: float
    log: Callable[[str], None]
    failed: dict[str, str] = field(default_factory=dict)

    def run_here(self, *, alone: bool = False) -> None:
        """Perform one task after another in this process: those that must run alone, or the others."""
        while (task := self._choose(alone=alone)) is not None:
            started, failure = time.perf_counter(), None
            try:
                perform(self.workspace, _work_of(task))
            except IbidemError as error:
                failure = str(error)
            self._settle(Outcome(task.key, time.perf_counter() - started, failure))

    def run_workers(self, jobs: int) -> None:
        """Perform tasks side by side in worker processes."""
        threads = self.workspace.setting.threads or max(1, (os.cpu_count() or 1) // jobs)
        with Workers(replace(self.workspace.setting, threads=threads), jobs) as workers:
            while True:
                while workers.idle and (task := self._choose()) is not None:
                    workers.give(task.key, _work_of(task))
                if not self.schedule.running:
                    return
                for outcome in workers.wait():
                    self._settle(outcome)

    def _choose(self, *, alone: bool = False) -> Task | None:
        task = self.schedule.choose(self.deadline - time.monotonic(), alone=alone)
        if task is not None:
            self.schedule.start(task.key)
        return task

    def _settle(self, outcome: Outcome) -> None:
        """Note how a task ended, and remove the cheap stages that no task waits for any more."""
        schedule = self.schedule
        name = name_work(_work_of(schedule.tasks[outcome.key]))
        if outcome.failure is None:
            schedule.finish(outcome.key, outcome.seconds)
            to_go = len(schedule.waiting()) + len(schedule.running)
            self.log(f"{name}: {outcome.seconds:.0f} s ({to_go} to go)")
        else:
            schedule.give_up(outcome.key)
            self.failed[name] = outcome.failure
            self.log(f"{name}: failed: {outcome.failure}")
        for key in schedule.tasks[outcome.key].waits_for:
            stage = schedule.tasks[key].work
            if isinstance(stage, Stage) and stage.cheap and not schedule.is_needed(key):
                self.workspace.remove(stage)


class Workers:
    """Run a fixed number of worker processes; one that ends early is replaced, and its task counts as failed.

    Args:
        setting: Setting of the workspace that each process makes.
        count: Number of processes.
    """

    def __init__(self, setting: RunSettings, count: int) -> None:
        self._setting = setting
        self._context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
        self.idle: list[Connection] = []
        self._processes: dict[Connection, SpawnProcess] = {}
        self._busy: dict[Connection, str] = {}
        for _ in range(count):
            self._start_process()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for connection, process in self._processes.items():
            if connection in self._busy or kind is not None:
                process.terminate()
            else:
                _send(connection, None)
            process.join()
            connection.close()

    def give(self, key: str, work: Stage | Row) -> None:
        """Send a task to an idle process.

        Args:
            key: Key of the task.
            work: Stage or row; there must be an idle process.
        """
        connection = self.idle.pop()
        _send(connection, (key, work))
        self._busy[connection] = key

    def wait(self) -> list[Outcome]:
        """Wait until at least one task has ended."""
        outcomes = []
        for ready in wait(list(self._busy)):
            connection = cast("Connection", ready)  # on Windows it is a class of another name
            key = self._busy.pop(connection)
            try:
                outcome: Outcome = connection.recv()
                self.idle.append(connection)
            except (EOFError, OSError):
                process = self._processes.pop(connection)
                process.join()
                outcome = Outcome(key, 0.0, f"its process died (exit code {process.exitcode}): out of memory?")
                connection.close()
                self._start_process()
            outcomes.append(outcome)
        return outcomes

    def _start_process(self) -> None:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=run_worker, args=(theirs, self._setting), daemon=True)
        process.start()
        theirs.close()
        self._processes[ours] = process
        self.idle.append(ours)


def run_worker(connection: Connection, setting: RunSettings) -> None:
    """Perform one task after another in a worker process until the parent sends None.

    Args:
        connection: Receives (key, work) or None, and returns an `Outcome` for each task.
        setting: Folders, model and device of the workspace.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles an interrupt
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    warnings.simplefilter("ignore")
    if setting.threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(setting.threads)  # read by faiss, which is not loaded yet
    workspace = Workspace(setting)
    while (given := _receive(connection)) is not None:
        key, work = given
        started, failure = time.perf_counter(), None
        try:
            perform(workspace, work)
        except IbidemError as error:
            failure = str(error)
        except Exception:  # a bug in one row must not stop the others
            failure = traceback.format_exc()
        connection.send(Outcome(key, time.perf_counter() - started, failure))


def name_work(work: Stage | Row) -> str:
    """Return a short name of a stage or row for the log.

    Args:
        work: Stage or row.
    """
    if isinstance(work, Stage):
        first = next(stage for stage in reversed(with_sources(work)) if not stage.sources)
        corpus = "+".join(getattr(first, "corpus", ()))
        return f"{type(work).__name__.lower()} {corpus} {digest(work)[:6]}"
    return work.name


def _work_of(task: Task) -> Stage | Row:
    assert task.work is not None  # plan_tasks gives every task its stage or row
    return task.work


def _send(connection: Connection, message: object) -> None:
    """Send to a worker process; that it has died shows in `Workers.wait`."""
    with suppress(OSError):
        connection.send(message)


def _receive(connection: Connection) -> tuple[str, Stage | Row] | None:
    try:
        given: tuple[str, Stage | Row] | None = connection.recv()
    except EOFError:  # the parent has ended
        return None
    return given


def _exit_with_parent() -> None:
    """End this process when the parent was killed, so that it does not write to the same folders as the next run."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
