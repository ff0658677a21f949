"""Which task comes next: what others wait for longest first; where time is short, what bears fruit soonest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class Task:
    """A stage to make or a row to measure: its key, those it waits for, a guess at its seconds.

    kind: tasks of one kind are thought to be misjudged alike. kept: it leaves something that outlasts the run, which
    alone makes it worth its time. alone: nothing may run beside it. cheap: it takes little time but much room, so that
    it is made no sooner than it can be used, and used at once.
    """

    key: str
    waits_for: frozenset[str]
    seconds: float
    kind: str
    kept: bool
    alone: bool = False
    cheap: bool = False


@dataclass
class Schedule:
    """Tasks that are waiting, running, done or given up; jobs: how many can run side by side."""

    tasks: dict[str, Task]
    jobs: int = 1
    done: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    _ratios: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, tasks: Iterable[Task], jobs: int = 1) -> Schedule:
        return cls({task.key: task for task in tasks}, jobs)

    def choose(self, seconds_left: float, *, alone: bool = False) -> Task | None:
        """The ready task with the longest way still behind it, of those whose nearest fruit ripens in time.

        Where not all can be done in time, the one with the nearest fruit: long ways begun everywhere would end nowhere.
        alone: of the tasks that must run alone, else of the others.
        """
        ways = _Ways(self)
        ready = [task for task in self.waiting() if task.alone is alone and task.waits_for <= self.done]
        fitting = [task for task in ready if ways.to_fruit(task) <= seconds_left and self._is_timely(task, ways)]
        urgency = ways.nearness if self._is_late(seconds_left) else ways.behind
        return max(fitting, key=lambda task: (self._uses_cheap(task), urgency(task)), default=None)

    def start(self, key: str) -> None:
        self.running.add(key)

    def finish(self, key: str, seconds: float) -> None:
        """Note that a task is done, and learn from the time it took."""
        self.running.discard(key)
        self.done.add(key)
        task = self.tasks[key]
        if task.seconds > 0:
            self._ratios[task.kind] = max(self._ratios.get(task.kind, 0.0), seconds / task.seconds)

    def give_up(self, key: str) -> None:
        """Note that a task failed, and with it all that wait for it."""
        self.running.discard(key)
        self.lost.add(key)
        for task in self.tasks.values():
            if key in task.waits_for and self._is_waiting(task.key):
                self.give_up(task.key)

    def waiting(self) -> list[Task]:
        """The tasks that were neither done nor given up, nor are running."""
        return [task for task in self.tasks.values() if self._is_waiting(task.key)]

    def is_needed(self, key: str) -> bool:
        """Whether a task that is not over waits for this one."""
        over = self.done | self.lost
        return any(key in task.waits_for for task in self.tasks.values() if task.key not in over)

    def judge(self, task: Task) -> float:
        """The seconds a task will take, as tasks of its kind did so far."""
        return task.seconds * self._ratios.get(task.kind, 1.0)

    def _is_late(self, seconds_left: float) -> bool:
        """Whether the time left is too short for all that is waiting."""
        return sum(map(self.judge, self.waiting())) > seconds_left * self.jobs

    def _uses_cheap(self, task: Task) -> bool:
        return any(self.tasks[key].cheap for key in task.waits_for)

    def _is_timely(self, task: Task, ways: _Ways) -> bool:
        """Whether a cheap task is all that something still waits for, other cheap ones set aside."""
        cheap = {key for key, other in self.tasks.items() if other.cheap}
        return not task.cheap or any(other.waits_for <= self.done | cheap for other in ways.after(task))

    def _is_waiting(self, key: str) -> bool:
        return key not in self.done and key not in self.running and key not in self.lost


class _Ways:
    """How far it is from each waiting task to what comes after it."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._after: dict[str, list[Task]] = {key: [] for key in schedule.tasks}
        self._longest: dict[str, float] = {}
        for task in schedule.waiting():
            for key in task.waits_for:
                self._after[key].append(task)

    def after(self, task: Task) -> list[Task]:
        """The tasks that wait for this one."""
        return self._after[task.key]

    def to_fruit(self, task: Task) -> float:
        """The least time from the start of a task to the end of one that leaves something, itself or after it."""
        own = self._schedule.judge(task)
        return own if task.kept else own + min(map(self.to_fruit, self._after[task.key]), default=0.0)

    def nearness(self, task: Task) -> float:
        """How near the next fruit is."""
        return -self.to_fruit(task)

    def behind(self, task: Task) -> float:
        """The longest way from the start of a task to the end of one that nothing waits for."""
        if task.key not in self._longest:
            after = max(map(self.behind, self._after[task.key]), default=0.0)
            self._longest[task.key] = self._schedule.judge(task) + after
        return self._longest[task.key]
