"""The order of tasks: critical path first, or shortest completion first where time is short."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ibidem.reproduce.rows import Row
    from ibidem.reproduce.workspace import Stage


@dataclass(frozen=True)
class Task:
    """A stage to build or a row to measure.

    Args:
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

    Args:
        tasks: All tasks by key.
        jobs: Number of tasks that run side by side.
    """

    tasks: dict[str, Task]
    jobs: int = 1
    done: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    _ratios: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, tasks: Iterable[Task], jobs: int = 1) -> Schedule:
        """Make a schedule of tasks that are all waiting."""
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
        """Note that a task is running."""
        self.running.add(key)

    def finish(self, key: str, seconds: float) -> None:
        """Note that a task is done, and correct the estimates of its kind by the time it took."""
        self.running.discard(key)
        self.done.add(key)
        task = self.tasks[key]
        if task.seconds > 0:
            self._ratios[task.kind] = max(self._ratios.get(task.kind, 0.0), seconds / task.seconds)

    def give_up(self, key: str) -> None:
        """Note that a task and all tasks that wait for it are lost."""
        self.running.discard(key)
        self.lost.add(key)
        for task in self.tasks.values():
            if key in task.waits_for and self._is_waiting(task.key):
                self.give_up(task.key)

    def waiting(self) -> list[Task]:
        """Return the tasks that are not running, done or lost."""
        return [task for task in self.tasks.values() if self._is_waiting(task.key)]

    def is_needed(self, key: str) -> bool:
        """Return whether an unfinished task waits for this one."""
        over = self.done | self.lost
        return any(key in task.waits_for for task in self.tasks.values() if task.key not in over)

    def estimate(self, task: Task) -> float:
        """Estimate the seconds of a task from those that tasks of its kind took."""
        return task.seconds * self._ratios.get(task.kind, 1.0)

    def _can_be_used(self, task: Task, successors: list[Task]) -> bool:
        """Return whether a cheap task is all that a successor still waits for, apart from other cheap tasks."""
        cheap = {key for key, other in self.tasks.items() if other.cheap}
        return not task.cheap or any(other.waits_for <= self.done | cheap for other in successors)

    def _is_waiting(self, key: str) -> bool:
        return key not in self.done and key not in self.running and key not in self.lost


class CriticalPaths:
    """Measure the time from each waiting task to the tasks that follow it."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._successors: dict[str, list[Task]] = {key: [] for key in schedule.tasks}
        self._longest: dict[str, float] = {}
        for task in schedule.waiting():
            for key in task.waits_for:
                self._successors[key].append(task)

    def successors(self, task: Task) -> list[Task]:
        """Return the tasks that wait for this one."""
        return self._successors[task.key]

    def seconds_to_result(self, task: Task) -> float:
        """Return the shortest time from the start of a task to a kept result, its own or a successor's."""
        own = self._schedule.estimate(task)
        return own if task.kept else own + min(map(self.seconds_to_result, self.successors(task)), default=0.0)

    def critical_path(self, task: Task) -> float:
        """Return the longest time from the start of a task to the end of one that has no successor."""
        if task.key not in self._longest:
            after = max(map(self.critical_path, self.successors(task)), default=0.0)
            self._longest[task.key] = self._schedule.estimate(task) + after
        return self._longest[task.key]
