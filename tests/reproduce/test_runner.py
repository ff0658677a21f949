"""The order of tasks, and rows that run for real with the tiny model on a few of our own sentences."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.errors import LockedMemoryError, MismatchError, UsageError
from ibidem.learn import AdaptSettings, CompactSettings, ContextualSettings, MetaKSettings, PruneSettings
from ibidem.memory import writer_lock
from ibidem.reproduce import runner
from ibidem.reproduce.plan import BASE, Plan, System, assemble
from ibidem.reproduce.report import RowChoice, reproduce, survey_rows
from ibidem.reproduce.results import Results, digest
from ibidem.reproduce.rows.statistics import ParameterCount, Redundancy, Statistics, TsneProjection
from ibidem.reproduce.rows.translation import (
    AUTHORS,
    DefaultTranslation,
    FineTunedTranslation,
    OwnTranslation,
    Timing,
    Translation,
)
from ibidem.reproduce.runner import Schedule, Task, Workers, choose_rows, find_obstacle, plan_tasks, run_rows
from ibidem.reproduce.stages import Compacted, DefaultMemory, Extracted, FineTuned, Pruned, Trained, Tuned
from ibidem.reproduce.workspace import RunSettings, Workspace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ibidem.reproduce.rows import Measured

METAK = MetaKSettings(updates=20, validate_every=10)
NETWORK = CompactSettings(dimension=8, updates=10, validate_every=5, batch=16)
SEARCH = replace(AUTHORS, beam=1, max_length_ratio=0.2, max_length_extra=4)
FULL = System(("koran",), "koran", metak=METAK)
COMPACT = replace(FULL, compact=NETWORK)
PRUNED = replace(COMPACT, prune=PruneSettings(rate=0.5))


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


def translate(system: System, **changes: object) -> Translation:
    return replace(Translation(system, "koran", search=SEARCH), **changes)


def quiet(_: str) -> None:
    pass


def test_rows_share_stages_and_are_measured_once(setting: RunSettings) -> None:
    rows = [translate(BASE), translate(FULL), translate(COMPACT), translate(PRUNED)]
    lines: list[str] = []
    report = run_rows(setting, rows, minutes=None, log=lines.append)
    assert (report.measured, report.failed, report.left) == (4, {}, 0)
    made = sorted(path.name.split("-")[0] for path in setting.work.iterdir() if path.is_dir())
    assert made == ["clustered", "compacted", "extracted", "tuned", "tuned"]  # the pruned memory was removed after use
    results = Results(setting.results)
    found = {row: results.find(row) for row in rows}
    whole, pruned = found[rows[2]]["memory"]["entries"], found[rows[3]]["memory"]["entries"]
    assert pruned == pytest.approx(whole / 2, abs=whole * 0.2)
    assert found[rows[3]]["stages"]["pruned"]["entries_before"] == whole
    assert {found[row]["seed"] for row in rows} == {0, 1}
    trace = found[rows[2]]
    assert trace["texts"].keys() == {"koran/train", "koran/dev", "koran/test"}
    assert trace["model"]["name"] == "model"
    assert str(setting.work.parent) not in json.dumps(trace)  # no path of this machine
    assert trace["command"].startswith(f"ibidem reproduce all --only {digest(rows[2])} ")
    assert " --model model " in trace["command"]  # not the shipped one
    again = plan_tasks(Workspace(setting), rows)
    assert [task.key for task in again if task.key not in map(digest, rows)] == [digest(assemble(PRUNED).memory)]


def test_results_from_elsewhere_count_and_compactors_need_no_text(setting: RunSettings, tmp_path: Path) -> None:
    general = replace(COMPACT, compact_corpus=("general",))
    row = translate(general)
    run_rows(setting, [row], minutes=None, log=quiet)
    without = tmp_path / "without"
    shutil.copytree(setting.data, without, ignore=shutil.ignore_patterns("general"))
    elsewhere = replace(setting, data=without, work=tmp_path / "elsewhere")
    assert find_obstacle(Workspace(elsewhere), row) is None
    (setting.results / "rows" / f"{digest(row)}.json").unlink()
    other = translate(replace(general, k=2))
    report = run_rows(elsewhere, [row, other], minutes=None, log=quiet)
    assert report.measured == 2
    again = Results(setting.results).find(row)
    assert again is not None
    assert "general/train" in again["texts"]
    shutil.rmtree(setting.results / "compactors")
    assert find_obstacle(Workspace(elsewhere), row) == "no train text of general"


def test_a_missing_library_is_an_obstacle(setting: RunSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [translate(replace(FULL, index="paper")), TsneProjection(COMPACT), translate(FULL)]
    workspace = Workspace(setting)
    assert [find_obstacle(workspace, row) for row in rows] == [None] * 3
    monkeypatch.setattr(runner, "find_spec", lambda _: None)
    obstacles = ["faiss is not installed", "sklearn is not installed", None]
    assert [find_obstacle(workspace, row) for row in rows] == obstacles


def test_no_time_no_rows(setting: RunSettings) -> None:
    report = run_rows(setting, [translate(BASE)], minutes=0, log=quiet)
    assert (report.measured, report.left) == (0, 1)


@dataclass(frozen=True)
class Failing:
    """A row that cannot be measured."""

    reason: str
    name: ClassVar[str] = "failing"
    seed: ClassVar[int] = 0
    alone: ClassVar[bool] = False
    library: ClassVar[str | None] = None
    stages: ClassVar[tuple[()]] = ()
    texts: ClassVar[tuple[()]] = ()

    def estimate_seconds(self, _count_pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 1

    def measure(self, _workspace: Workspace) -> Measured:
        raise UsageError(self.reason)


def test_a_failure_is_reported_and_the_others_go_on(setting: RunSettings) -> None:
    report = run_rows(setting, [Failing("out of luck"), Statistics("koran", "dev")], minutes=None, log=quiet)
    assert (report.measured, report.failed) == (1, {"failing": "out of luck"})


def test_rows_are_lost_with_the_stage_they_need(setting: RunSettings, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(setting.data, broken)
    (broken / "koran" / "train.en").write_text("one line only\n", encoding="utf-8")
    rows = [translate(FULL), translate(COMPACT), translate(BASE)]
    report = run_rows(replace(setting, data=broken), rows, minutes=None, log=quiet)
    assert (report.measured, report.lost, report.left) == (1, 2, 0)
    ((name, reason),) = report.failed.items()
    assert name.startswith("extracted koran")
    assert "train.de has 52 lines but" in reason


def test_another_model_or_text_is_refused(setting: RunSettings, tmp_path: Path, spm_file: Path) -> None:
    from tests.conftest import write_marian

    row = Statistics("koran", "dev")
    run_rows(setting, [row], minutes=None, log=quiet)
    other = write_marian(tmp_path / "other", spm_file, seed=2)
    with pytest.raises(MismatchError, match="--results"):
        run_rows(replace(setting, model=str(other)), [Statistics("koran", "test")], minutes=None, log=quiet)
    changed = tmp_path / "changed"
    shutil.copytree(setting.data, changed)
    (changed / "koran" / "dev.en").write_text((changed / "koran" / "dev.en").read_text("utf-8").upper(), "utf-8")
    with pytest.raises(UsageError, match="koran/dev"):
        survey_rows(
            ["datasets"], Plan(), Results(setting.results), Workspace(replace(setting, data=changed)), RowChoice()
        )


def test_one_run_at_a_time(setting: RunSettings) -> None:
    setting.work.mkdir(parents=True)
    with writer_lock(setting.work), pytest.raises(LockedMemoryError):
        run_rows(setting, [translate(BASE)], minutes=None, log=quiet)


def test_every_kind_of_row(setting: RunSettings) -> None:
    tuned = FineTuned(("koran",), "koran", AdaptSettings(updates=3, batch_tokens=256, measurements=2))
    briefly = ContextualSettings(updates=20)
    memory = DefaultMemory(("koran",), "koran", tuned, MetaKSettings(updates=20), briefly)
    rows = [
        Timing((BASE, FULL), "koran", 2, 1, 2, search=SEARCH),
        Redundancy(("koran",)),
        TsneProjection(COMPACT, tokens=3, points=5),
        OwnTranslation(BASE, search=SEARCH),
        ParameterCount(4, NETWORK, METAK),
        FineTunedTranslation(tuned, "news", search=SEARCH),
        DefaultTranslation(memory, "koran", search=SEARCH),
        translate(replace(FULL, index="paper")),
    ]
    report = run_rows(setting, rows, minutes=None, log=quiet)
    assert report.failed == {}
    assert report.measured == len(rows)
    results = Results(setting.results)
    found = [results.find(row) for row in rows]
    timing, redundancy, picture, own, parameters, fine, both, indexed = (
        result for result in found if result is not None
    )
    assert [len(system["rounds"]) for system in timing["speeds"]] == [2, 2]
    assert timing["speeds"][1]["storage"]["keys_and_values"] == timing["speeds"][1]["entries"] * (2 * 32 + 2)
    assert redundancy["ngrams"]["1"]["distinct"] < redundancy["ngrams"]["2"]["distinct"] <= redundancy["entries"]
    assert results.array(rows[2], "after").shape == (picture["points"], 2)
    assert own["sentences"] == 64
    assert parameters["compactor"] == (32 * 32 + 32) + (32 * 8 + 8)
    assert fine["stages"]["finetuned"]["updates"] == 3
    assert set(both["stages"]) == {"finetuned", "defaultmemory"}
    assert indexed["stages"]["indexed"]["bytes"] > 0


def test_rows_by_name_digest_and_seed() -> None:
    rows = [translate(replace(FULL, seed=seed)) for seed in (1, 2)] + [translate(BASE), translate(BASE)]
    assert choose_rows(rows, (), ()) == rows[:3]
    assert choose_rows(rows, (), (2,)) == rows[1:3]
    assert choose_rows(rows, ("FULL",), (1,)) == rows[:1]
    assert choose_rows(rows, (digest(rows[1]),), ()) == [rows[1]]
    with pytest.raises(UsageError, match="--only"):
        choose_rows(rows, ("nothing like this",), ())


def test_systems_declare_their_stages() -> None:
    assert assemble(BASE) is None
    parts = assemble(PRUNED)
    assert isinstance(parts.memory, Pruned)
    assert isinstance(parts.tuned, Tuned)
    assert parts.memory.memory == parts.tuned.memory  # tuned before it is pruned, as in the paper
    assert isinstance(parts.memory.memory, Compacted)
    assert isinstance(parts.memory.memory.compactor, Trained)
    assert assemble(FULL).memory.memory == Extracted(("koran",))
    assert Translation(PRUNED, "koran").name == ("koran/test koran network8 static nce+CL k=4 cost-clusters 0.5 seed=1")


def test_tables_are_written_with_what_is_there(setting: RunSettings) -> None:
    plan = replace(Plan(), seeds=(1,), domains=("koran",), elsewhere=(), smoke=True)
    tables, report = reproduce(["parameters", "datasets"], plan, setting, RowChoice(only=("parameters",)), quiet)
    assert list(tables) == ["datasets", "parameters"]
    assert report.measured == 1
    assert "**SMOKE**" in tables["parameters"]
    assert "0 of " in tables["datasets"]
    written = json.loads((setting.results / "parameters.json").read_text("utf-8"))
    assert written["smoke"] is True
    assert written["results"][0]["base"] > 0
    assert (setting.results / "parameters.md").read_text("utf-8") == tables["parameters"]
    assert reproduce(["parameters"], plan, setting, RowChoice(), quiet)[1].measured == 0


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced(setting: RunSettings) -> None:
    with Workers(setting, 1) as workers:
        (process,) = workers._processes.values()
        process.kill()
        process.join()
        workers.give("a", translate(BASE))
        (died,) = workers.wait()
        assert died.key == "a"
        assert "exit code -9" in died.failure
        workers.give("b", Statistics("koran", "dev"))
        assert workers.wait()[0].failure is None


@pytest.mark.slow
def test_side_by_side_gives_the_same(setting: RunSettings, tmp_path: Path) -> None:
    """Workers in processes of their own find what one process finds."""
    rows = [translate(FULL), translate(COMPACT), translate(PRUNED), translate(BASE)]
    here, beside = (replace(setting, work=tmp_path / name, results=tmp_path / f"{name}-results") for name in "ab")
    run_rows(here, rows, minutes=None, log=quiet)
    report = run_rows(replace(beside, jobs=2), rows, minutes=None, log=quiet)
    assert (report.measured, report.failed) == (4, {})
    found = [[Results(each.results).find(row)["translations_sha256"] for row in rows] for each in (here, beside)]
    assert found[0] == found[1]
