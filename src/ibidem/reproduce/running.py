"""Running rows: the stages they need first, side by side in worker processes or one after another in this one."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ibidem.errors import IbidemError, UsageError
from ibidem.memory import writer_lock
from ibidem.reproduce.bench import Setting, Workspace, below
from ibidem.reproduce.declaration import digest
from ibidem.reproduce.provenance import trace
from ibidem.reproduce.results import Results
from ibidem.reproduce.rows.picture import Picture
from ibidem.reproduce.schedule import Schedule, Task
from ibidem.reproduce.stages import Indexed, Stage, Trained
from ibidem.reproduce.workers import Outcome, Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ibidem.reproduce.rows.row import Row


# What some stages and rows need that machines with a GPU often lack.
_LIBRARIES: dict[type, str] = {Indexed: "faiss", Picture: "sklearn"}


@dataclass(frozen=True)
class Report:
    """What became of the rows that had no result: how many were measured, lost, and are left.

    failed: the tasks that rows were lost to, and why.
    """

    measured: int = 0
    lost: int = 0
    left: int = 0
    failed: dict[str, str] = field(default_factory=dict)


def find_obstacle(bench: Workspace, thing: Row | Stage) -> str | None:
    """Why a row cannot be measured here: a text or a library that is missing; None if it can.

    A compactor that is there needs neither.
    """
    if isinstance(thing, Trained) and bench.is_made(thing):
        return None
    for domain, part in thing.texts:
        if not bench.data.has(domain, part):
            return f"no {part} text of {domain}"
    library = _LIBRARIES.get(type(thing))
    if library is not None and find_spec(library) is None and not _made_on_gpu(bench, thing):
        return f"{library} is not installed"
    sources = thing.sources if isinstance(thing, Stage) else thing.stages
    return next((obstacle for source in sources if (obstacle := find_obstacle(bench, source))), None)


def _made_on_gpu(bench: Workspace, thing: Stage | Row) -> bool:
    return isinstance(thing, Indexed) and thing.is_made_on(bench.device)


def run_rows(
    setting: Setting,
    rows: Sequence[Row],
    *,
    minutes: float | None,
    say: Callable[[str], None],
) -> Report:
    """Measure rows that have no result yet; each result is on disk as soon as its row is done.

    With several jobs rows run side by side in processes of their own; those that must be alone come after, their
    stages made before. No task is started that would not bear fruit within `minutes`.
    """
    deadline = math.inf if minutes is None else time.monotonic() + 60 * minutes
    setting.work.mkdir(parents=True, exist_ok=True)
    with writer_lock(setting.work):
        bench = Workspace(setting)
        if setting.jobs > 1:
            bench.check_model()
        else:
            _ = bench.model  # which is needed here anyway
        todo = plan_tasks(bench, rows)
        run = Run(bench, Schedule.of(todo.tasks, setting.jobs), todo.things, deadline, say)
        if setting.jobs == 1:
            run.here()
        else:
            run.beside(setting.jobs)
        run.here(alone=True)
    keys = {digest(row) for row in rows}
    done, lost = run.schedule.done, run.schedule.lost
    return Report(len(keys & done), len(keys & lost), len(keys - done - lost), run.failed)


@dataclass(frozen=True)
class Todo:
    """Tasks, and the stage or row that each stands for."""

    tasks: list[Task]
    things: dict[str, Stage | Row]


def plan_tasks(bench: Workspace, rows: Iterable[Row]) -> Todo:
    """The rows, and the stages they need that are not there; what a stage that is there was made from is not needed."""
    tasks: dict[str, Task] = {}
    things: dict[str, Stage | Row] = {}

    def need(stage: Stage) -> str | None:
        if bench.is_made(stage):
            return None
        key = digest(stage)
        if key not in tasks:
            waits_for = frozenset(filter(None, map(need, stage.sources)))
            tasks[key] = Task(
                key,
                waits_for,
                stage.expected(bench.count_pairs),
                type(stage).__name__,
                kept=isinstance(stage, Trained),
                cheap=stage.cheap,
            )
            things[key] = stage
        return key

    for row in rows:
        key = digest(row)
        waits_for = frozenset(filter(None, map(need, row.stages)))
        seconds = row.expected(bench.count_pairs)
        tasks[key] = Task(key, waits_for, seconds, type(row).__name__, kept=True, alone=row.alone)
        things[key] = row
    return Todo(list(tasks.values()), things)


def perform(bench: Workspace, thing: Stage | Row) -> None:
    """Make a stage, or measure a row and keep its result."""
    if isinstance(thing, Stage):
        bench.make(thing)
        return
    started = time.perf_counter()
    found = thing.measure(bench)
    seconds = time.perf_counter() - started
    figures = {"name": thing.name, "seed": thing.seed, **found.figures, **trace(bench, thing, seconds)}
    Results(bench.setting.results).put(thing, found._replace(figures=figures))
    bench.free()


def name_thing(thing: Stage | Row) -> str:
    """A task in a few words, for the log."""
    if isinstance(thing, Stage):
        first = next(stage for stage in reversed(below(thing)) if not stage.sources)
        corpus = "+".join(getattr(first, "corpus", ()))
        return f"{type(thing).__name__.lower()} {corpus} {digest(thing)[:6]}"
    return thing.name


@dataclass(frozen=True)
class Run:
    """Tasks being performed until none is left that fits; what failed is noted by name."""

    bench: Workspace
    schedule: Schedule
    things: dict[str, Stage | Row]
    deadline: float
    say: Callable[[str], None]
    failed: dict[str, str] = field(default_factory=dict)

    def here(self, *, alone: bool = False) -> None:
        """One task after another, in this process: those that must run alone, or the others."""
        while (task := self._choose(alone=alone)) is not None:
            started, failure = time.perf_counter(), None
            try:
                perform(self.bench, self.things[task.key])
            except IbidemError as error:
                failure = str(error)
            self._settle(Outcome(task.key, time.perf_counter() - started, failure))

    def beside(self, jobs: int) -> None:
        """So many tasks side by side, in processes of their own."""
        threads = self.bench.setting.threads or max(1, (os.cpu_count() or 1) // jobs)
        with Workers(replace(self.bench.setting, threads=threads), jobs) as workers:
            while True:
                while workers.idle and (task := self._choose()) is not None:
                    workers.give(task.key, self.things[task.key])
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
        """Note how a task ended, and remove the cheap stages that nothing waits for any more."""
        schedule, name = self.schedule, name_thing(self.things[outcome.key])
        if outcome.failure is None:
            schedule.finish(outcome.key, outcome.seconds)
            to_go = len(schedule.waiting()) + len(schedule.running)
            self.say(f"{name}: {outcome.seconds:.0f} s ({to_go} to go)")
        else:
            schedule.give_up(outcome.key)
            self.failed[name] = outcome.failure
            self.say(f"{name}: failed: {outcome.failure}")
        for key in schedule.tasks[outcome.key].waits_for:
            stage = self.things[key]
            if isinstance(stage, Stage) and stage.cheap and not schedule.is_needed(key):
                self.bench.remove(stage)


def choose_rows(rows: Iterable[Row], only: Sequence[str], seeds: Sequence[int]) -> list[Row]:
    """The rows whose name holds, or whose digest is, one of `only`, of these seeds (all without any); each once."""
    chosen = {}
    for row in rows:
        if seeds and row.seed and row.seed not in seeds:
            continue
        key = digest(row)
        if not only or any(part == key or part.casefold() in row.name.casefold() for part in only):
            chosen[key] = row
    if only and not chosen:
        raise UsageError(f"No row fits --only {' '.join(only)}: --list shows their names.")
    return list(chosen.values())
