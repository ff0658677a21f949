"""Running rows: the stages they need first, side by side in worker processes or one after another in this one."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ibidem.errors import IbidemError, UsageError
from ibidem.reproduce.bench import Bench, Setting, below
from ibidem.reproduce.declaration import digest
from ibidem.reproduce.provenance import trace
from ibidem.reproduce.results import Results
from ibidem.reproduce.schedule import Schedule, Task
from ibidem.reproduce.stages import Indexed, Stage, Trained
from ibidem.reproduce.workers import Outcome, Workers
from ibidem.retrieve.library import has_faiss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ibidem.reproduce.data import Data
    from ibidem.reproduce.rows.row import Row


@dataclass(frozen=True)
class Report:
    """What became of the rows that had no result: how many were measured, failed (and why), and are left."""

    measured: int
    failed: dict[str, str]
    left: int


def find_obstacle(row: Row, data: Data) -> str | None:
    """Why a row cannot be measured here: a text or a library that is missing; None if it can."""
    stages = [stage for last in row.stages for stage in below(last)]
    for domain, part in dict.fromkeys([*row.texts, *(text for stage in stages for text in stage.texts)]):
        if not data.has(domain, part):
            return f"no {part} text of {domain}"
    if any(isinstance(stage, Indexed) for stage in stages) and not has_faiss():
        return "faiss is not installed"
    return None


def run_rows(
    setting: Setting,
    rows: Sequence[Row],
    *,
    minutes: float | None,
    say: Callable[[str], None],
) -> Report:
    """Measure rows that have no result yet; each result is on disk as soon as its row is done.

    With several jobs rows run side by side in processes of their own; those that must be alone come after. No
    task is started that would not bear fruit within `minutes`.
    """
    started = time.monotonic()
    deadline = math.inf if minutes is None else started + 60 * minutes
    bench = Bench(setting)
    together = [row for row in rows if not row.alone]
    failed: dict[str, str] = {}
    measured = left = 0
    for group, jobs in ((together, setting.jobs), ([row for row in rows if row.alone], 1)):
        if not group:
            continue
        todo = plan_tasks(bench, group)
        schedule = Schedule.of(todo.tasks)
        if jobs == 1:
            _run_here(bench, schedule, todo.things, deadline, say, failed)
        else:
            _run_beside(bench, schedule, todo.things, deadline, say, failed, jobs)
        keys = {digest(row) for row in group}
        measured += len(keys & schedule.done)
        left += len(keys - schedule.done - schedule.lost)
    return Report(measured, failed, left)


@dataclass(frozen=True)
class Todo:
    """Tasks, and the stage or row that each stands for."""

    tasks: list[Task]
    things: dict[str, Stage | Row]


def plan_tasks(bench: Bench, rows: Iterable[Row]) -> Todo:
    """The rows, and the stages they need that are not there; what a stage that is there was made from is not needed."""
    tasks: dict[str, Task] = {}
    things: dict[str, Stage | Row] = {}

    def need(stage: Stage) -> str | None:
        if bench.is_made(stage):
            return None
        key = digest(stage)
        if key not in tasks:
            waits_for = frozenset(filter(None, map(need, stage.sources)))
            seconds = stage.expected(bench.count_pairs)
            tasks[key] = Task(key, waits_for, seconds, type(stage).__name__, isinstance(stage, Trained))
            things[key] = stage
        return key

    for row in rows:
        key = digest(row)
        waits_for = frozenset(filter(None, map(need, row.stages)))
        tasks[key] = Task(key, waits_for, row.expected(bench.count_pairs), type(row).__name__, True)
        things[key] = row
    return Todo(list(tasks.values()), things)


def perform(bench: Bench, thing: Stage | Row) -> None:
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


def _run_here(
    bench: Bench,
    schedule: Schedule,
    things: dict[str, Stage | Row],
    deadline: float,
    say: Callable[[str], None],
    failed: dict[str, str],
) -> None:
    while (task := schedule.choose(deadline - time.monotonic())) is not None:
        thing = things[task.key]
        started = time.perf_counter()
        schedule.start(task.key)
        try:
            perform(bench, thing)
        except IbidemError as error:
            _settle(bench, schedule, things, Outcome(task.key, 0.0, str(error)), say, failed)
        else:
            done = Outcome(task.key, time.perf_counter() - started, None)
            _settle(bench, schedule, things, done, say, failed)


def _run_beside(
    bench: Bench,
    schedule: Schedule,
    things: dict[str, Stage | Row],
    deadline: float,
    say: Callable[[str], None],
    failed: dict[str, str],
    jobs: int,
) -> None:
    threads = bench.setting.threads or max(1, (os.cpu_count() or 1) // jobs)
    setting = replace(bench.setting, threads=threads)
    with Workers(setting, jobs) as workers:
        while True:
            while workers.idle and (task := schedule.choose(deadline - time.monotonic())) is not None:
                schedule.start(task.key)
                workers.give(task.key, things[task.key])
            if not schedule.running:
                return
            for outcome in workers.wait():
                _settle(bench, schedule, things, outcome, say, failed)


def _settle(
    bench: Bench,
    schedule: Schedule,
    things: dict[str, Stage | Row],
    outcome: Outcome,
    say: Callable[[str], None],
    failed: dict[str, str],
) -> None:
    """Note how a task ended, and remove the cheap stages that nothing waits for any more."""
    name = name_thing(things[outcome.key])
    if outcome.failure is None:
        schedule.finish(outcome.key, outcome.seconds)
        waiting = len(schedule.waiting()) + len(schedule.running)
        say(f"{name}: {outcome.seconds:.0f} s ({waiting} to go)")
    else:
        schedule.give_up(outcome.key)
        failed[name] = outcome.failure
        say(f"{name}: failed: {outcome.failure}")
    for key in schedule.tasks[outcome.key].waits_for:
        stage = things[key]
        if isinstance(stage, Stage) and stage.cheap and not schedule.is_needed(key):
            bench.remove(stage)


def choose_rows(rows: Iterable[Row], only: Sequence[str], seeds: Sequence[int] | None) -> list[Row]:
    """The rows whose name holds, or whose digest is, one of `only` (all without any), of these seeds; each once."""
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
