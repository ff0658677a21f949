from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from ibidem.reproduce.schedule import Schedule, Task


def stage(key: str, seconds: float, *waits_for: str, kept: bool = False, alone: bool = False) -> Task:
    return Task(key, frozenset(waits_for), seconds, "stage", kept, alone)


def row(key: str, seconds: float, *waits_for: str, alone: bool = False) -> Task:
    return Task(key, frozenset(waits_for), seconds, "row", True, alone)


def run(schedule: Schedule, seconds_left: float = math.inf) -> list[str]:
    order = []
    while (task := schedule.choose(seconds_left)) is not None:
        schedule.start(task.key)
        schedule.finish(task.key, task.seconds)
        order.append(task.key)
    return order


def test_the_longest_critical_path_comes_first() -> None:
    schedule = Schedule.of(
        [row("quick", 1), stage("long", 10), row("after long", 5, "long"), stage("short", 2), row("last", 1, "short")]
    )
    assert run(schedule) == ["long", "after long", "short", "quick", "last"]


def test_no_task_is_started_that_leads_to_no_result_in_time() -> None:
    schedule = Schedule.of([stage("extract", 50), row("measure", 20, "extract"), row("base", 5)])
    assert run(schedule, 60) == ["base"]
    assert [task.key for task in schedule.waiting()] == ["extract", "measure"]
    kept = Schedule.of([stage("extract", 50), stage("train", 5, "extract", kept=True), row("measure", 20, "train")])
    assert run(kept, 60) == ["extract", "train", "measure"]


def test_the_nearest_result_comes_first_where_time_is_short() -> None:
    tasks = [stage("train", 50, kept=True), row("trained", 20, "train"), stage("tune", 20), row("tuned", 10, "tune")]
    tasks.append(row("base", 5))
    assert run(Schedule.of(tasks), 105) == ["train", "tune", "trained", "tuned", "base"]
    assert run(Schedule.of(tasks), 60) == ["base", "tune", "tuned", "train", "trained"]
    assert run(Schedule.of(tasks, jobs=2), 55) == ["train", "tune", "trained", "tuned", "base"]


def test_estimates_are_corrected_by_measured_times() -> None:
    schedule = Schedule.of([row("a", 10), row("b", 10)])
    schedule.start("a")
    schedule.finish("a", 40)
    assert schedule.choose(30) is None
    assert schedule.choose(41) == schedule.tasks["b"]


def test_a_failure_loses_all_tasks_that_wait_for_it() -> None:
    schedule = Schedule.of([stage("a", 1), stage("b", 1, "a"), row("c", 1, "b"), row("d", 1)])
    schedule.start("a")
    schedule.give_up("a")
    assert schedule.lost == {"a", "b", "c"}
    assert run(schedule) == ["d"]


def test_a_stage_is_needed_until_its_rows_are_over() -> None:
    schedule = Schedule.of([stage("a", 1), row("b", 1, "a"), row("c", 1, "a", alone=True)])
    schedule.start("a")
    schedule.finish("a", 1)
    assert run(schedule) == ["b"]
    assert schedule.is_needed("a")
    chosen = schedule.choose(math.inf, alone=True)
    assert chosen is not None
    assert chosen.key == "c"
    schedule.start("c")
    assert schedule.is_needed("a")
    schedule.finish("c", 1)
    assert not schedule.is_needed("a")


def test_cheap_stages_are_built_when_they_can_be_used_and_used_at_once() -> None:
    pruned = [Task(f"prune {number}", frozenset(["compact"]), 5, "prune", kept=False, cheap=True) for number in (1, 2)]
    rows = [row(f"{name} {number}", 60, f"prune {number}", f"tune {name}") for number in (1, 2) for name in "ab"]
    tunes = [stage(f"tune {name}", 30, "compact") for name in "ab"]
    order = run(Schedule.of([stage("compact", 5), *pruned, *tunes, *rows]))
    assert len(order) == 9
    for number, key in enumerate(order):
        if key.startswith("prune"):
            before, after = order[:number], order[number + 1 : number + 3]
            assert {"tune a", "tune b"} & set(before)
            assert all(name.endswith(key[-1]) for name in after if not name.startswith("tune")), order


def test_a_row_that_needs_several_cheap_stages_is_run() -> None:
    pruned = [Task(name, frozenset(), 5, "prune", kept=False, cheap=True) for name in "ab"]
    schedule = Schedule.of([*pruned, row("speed", 60, "a", "b", alone=True)])
    assert sorted(run(schedule)) == ["a", "b"]
    assert schedule.choose(math.inf, alone=True) is not None


@given(st.lists(st.tuples(st.sets(st.integers(0, 14)), st.floats(0, 100), st.booleans()), min_size=1, max_size=15))
def test_every_task_is_done_once_and_after_those_it_waits_for(shape: list[tuple[set[int], float, bool]]) -> None:
    tasks = [
        Task(str(number), frozenset(str(other) for other in before if other < number), seconds, "any", kept)
        for number, (before, seconds, kept) in enumerate(shape)
    ]
    order = run(Schedule.of(tasks))
    assert sorted(order) == sorted(task.key for task in tasks)
    place = {key: number for number, key in enumerate(order)}
    assert all(place[before] < place[task.key] for task in tasks for before in task.waits_for)
