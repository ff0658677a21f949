"""Stages in tasks give the bytes of one process, whatever dies on the way."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.errors import MismatchError, UsageError, WorkerError
from ibidem.executor import LocalExecutor, Result
from ibidem.learn import extract, jobs
from ibidem.learn.compact import compaction
from ibidem.learn.jobs import Context, Distribution, find_part, seal_part
from ibidem.learn.jobs.worker import check_environment, perform
from ibidem.learn.prune import neighbour_graph
from ibidem.memory import COMPACTOR_ARTEFACT, Memory
from ibidem.text import Corpus
from learn.jobs import configurations
from learn.jobs.configurations import DoublingExecutor, content, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.model import BaseModel

TESTS = Path(__file__).parents[2]
# Not as a script: workers import the functions of tasks by the name of their module.
SCRIPT = "from learn.jobs.configurations import main; main()"


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "BLOCK_ROWS", configurations.BLOCK_ROWS)
        patch.setattr(neighbour_graph, "ROWS_PER_SEARCH", configurations.ROWS_PER_SEARCH)
        yield


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    with LocalExecutor(2, threads=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory, sentences: list[Any]) -> Path:
    file = tmp_path_factory.mktemp("few") / "few.tsv"
    file.write_text("".join(f"{s.german}\t{s.english}\n" for s in sentences[:70]), encoding="utf-8")
    return file


class References:
    """The memories that one process learns, each when it is first needed."""

    def __init__(self, folder: Path, model: BaseModel, corpus: Path) -> None:
        self._folder, self._model, self._corpus = folder, model, corpus

    def get(self, name: str) -> Path:
        path = self._folder / name
        if not path.exists():
            run(self._model, self._corpus, path, name, compactor=self.compactor(name))
        return path

    def compactor(self, name: str) -> Path | None:
        if name != "given":
            return None
        file = self._folder / "compactor.safetensors"
        if not file.exists():
            stored = Memory.open(self.get("pca")).artefact(COMPACTOR_ARTEFACT)
            assert stored is not None
            shutil.copyfile(stored.path, file)
        return file


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory, tiny: BaseModel, few: Path) -> References:
    return References(tmp_path_factory.mktemp("references"), tiny, few)


def assert_same(path: Path, reference: Path) -> None:
    assert Memory.open(path).verify() == []
    found, expected = content(path), content(reference)
    assert found.keys() == expected.keys()
    assert [name for name in found if found[name] != expected[name]] == []


@pytest.mark.parametrize("name", ["given", "none", "pca", "network"])
def test_local_gives_the_same_bytes(
    name: str, tmp_path: Path, tiny: BaseModel, few: Path, references: References, executor: LocalExecutor
) -> None:
    reference = references.get(name)
    path = tmp_path / "memory"
    memory = run(tiny, few, path, name, executor, references.compactor(name))
    assert len(memory.manifest.segments) > 3
    assert_same(path, reference)
    assert not list((path / "work").iterdir())


def test_two_attempts_of_every_task_change_nothing(
    tmp_path: Path, tiny: BaseModel, few: Path, references: References, executor: LocalExecutor
) -> None:
    """Both attempts run at the same time, on the two workers; the second one may end after its stage."""
    name = "network"  # all stages have tasks
    path = tmp_path / "memory"
    doubling: Any = DoublingExecutor(executor)
    run(tiny, few, path, name, doubling)
    while doubling.wait() is not None:
        pass
    assert doubling.repeated > 3
    assert_same(path, references.get(name))
    assert not list((path / "work").iterdir())


def test_killed_workers_change_nothing(
    tmp_path: Path, tiny: BaseModel, few: Path, references: References, executor: LocalExecutor
) -> None:
    """One of the workers is killed after the first chunk."""
    killed: set[str] = set()

    def kill(label: str, *_: object) -> None:
        if label == "Extracting" and label not in killed:
            killed.add(label)
            os.kill(executor.process_ids[0], signal.SIGKILL)

    path = tmp_path / "memory"
    run(tiny, few, path, "pca", executor, progress=kill)
    assert killed == {"Extracting"}
    assert_same(path, references.get("pca"))


def test_a_killed_driver_resumes_with_sealed_parts(
    tmp_path: Path,
    tiny: BaseModel,
    tiny_folder: Path,
    few: Path,
    references: References,
    executor: LocalExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver is killed when a part is sealed that it has not committed: this part is not made again."""
    path = tmp_path / "memory"
    command = [sys.executable, "-c", SCRIPT, str(tiny_folder), str(few), str(path), "none", "local:1"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *(p for p in sys.path if p)])}
    driver = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 200
    sealed: set[int] = set()
    while not sealed and time.monotonic() < deadline and driver.poll() is None:
        time.sleep(0.02)
        if not list((path / "segments").glob("[0-9]*")):
            continue
        driver.send_signal(signal.SIGSTOP)  # its worker goes on with its task
        waited = time.monotonic() + 3
        while not sealed and time.monotonic() < waited:
            committed = len(Memory.open(path).manifest.segments)
            parts = {int(file.parent.name) for file in path.glob("work/extract-*/0*/part.json")}
            sealed = {number for number in parts if number >= committed >= 1}
            time.sleep(0.02)
        if not sealed:
            driver.send_signal(signal.SIGCONT)
    driver.kill()
    driver.wait()
    assert sealed
    submitted: list[int] = []
    submit = executor.submit

    def count(number: int, function: Any, argument: jobs.worker.TaskRequest) -> None:
        if "extract" in argument.folder:
            submitted.append(number)
        submit(number, function, argument)

    monkeypatch.setattr(executor, "submit", count)
    run(tiny, few, path, "none", executor)
    assert submitted
    assert not sealed & set(submitted)
    assert_same(path, references.get("none"))


def _write(argument: str, context: Context, folder: Path) -> dict[str, Any]:
    (context.folder / "calls").open("a").write(argument)
    (folder / "result").write_text(argument)
    return {"length": len(argument)}


def request_of(folder: Path, argument: str, **changed: Any) -> jobs.worker.TaskRequest:
    options: dict[str, Any] = {
        "folder": str(folder),
        "number": 3,
        "digest": "0" * 64,
        "function": _write,
        "argument": argument,
        "environment": jobs.describe_environment(),
        "model": None,
        "memory": None,
        "device": "cpu",
        "threads": None,
    }
    return jobs.worker.TaskRequest(**options | changed)


def test_a_second_attempt_changes_nothing(tmp_path: Path) -> None:
    assert perform(request_of(tmp_path, "abc")) == {"length": 3}
    first = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    assert perform(request_of(tmp_path, "abc")) == {"length": 3}
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == first
    assert (tmp_path / "calls").read_text() == "abc"


def test_attempts_that_overlap_leave_one_part(tmp_path: Path) -> None:
    """A second attempt seals its part while the first one still writes."""

    def write(folder: Path) -> dict[str, Any]:
        perform(request_of(tmp_path, "abc"))
        (folder / "result").write_text("abc")
        return {"length": 3}

    part = seal_part(tmp_path, 3, "0" * 64, write)
    assert part.read("result") == b"abc"
    assert not list(tmp_path.glob(".tmp-*"))
    assert len(list(tmp_path.glob("0*"))) == 1

    def differ(folder: Path) -> dict[str, Any]:
        (folder / "result").write_text("abd")
        return {"length": 3}

    with pytest.raises(WorkerError, match="Two attempts of task 3 gave different results"):
        seal_part(tmp_path, 3, "0" * 64, differ)
    assert find_part(tmp_path, 3, "0" * 64) == part
    assert find_part(tmp_path, 3, "1" * 64) is None  # another input: the part is deleted
    assert find_part(tmp_path, 3, "0" * 64) is None


class LateExecutor:
    """Runs tasks at once, and shows their parts some time later, as a network file system may."""

    slots = workers = 1

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder, self._seconds = folder, seconds

    def submit(self, number: int, function: Any, argument: Any) -> None:
        self._result = Result(number, function(argument), "host:1", 0.1, 1)
        place = self._folder / f"{number:09d}"
        place.rename(hidden := place.with_name("hidden"))
        threading.Timer(self._seconds, hidden.rename, [place]).start()

    def wait(self, _: float | None = None) -> Result:
        return self._result

    def cancel(self) -> None:
        raise AssertionError


@pytest.mark.parametrize(("seconds", "waited"), [(0.5, 90.0), (2.0, 0.1)])
def test_a_part_that_is_seen_late_is_waited_for(
    seconds: float, waited: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs.job, "_VISIBLE_SECONDS", waited)
    late: Any = LateExecutor(tmp_path, seconds)
    found = jobs.Job(Distribution(late), tmp_path, "Writing", "letters").run([jobs.Task(7, "0" * 64, _write, "abc", 3)])
    if seconds < waited:
        assert [part.read("result") for _, part in found] == [b"abc"]
    else:
        with pytest.raises(WorkerError, match=r"finished task 7, but its part is not in .*: all machines must see"):
            list(found)


def test_a_worker_after_the_end_of_the_stage_fails(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="could not be written"):
        perform(request_of(tmp_path / "deleted", "abc"))
    assert not (tmp_path / "deleted").exists()


def test_a_damaged_part_is_refused(tmp_path: Path) -> None:
    perform(request_of(tmp_path, "abc"))
    part = find_part(tmp_path, 3, "0" * 64)
    assert part is not None
    (part.folder / "result").write_text("abd")
    with pytest.raises(Exception, match=r"result is damaged: its sha256"):
        part.read("result")


@pytest.mark.parametrize("name", jobs.describe_environment())
def test_other_workers_are_refused_by_name(name: str) -> None:
    wanted = jobs.describe_environment() | {name: "another"}
    with pytest.raises(MismatchError, match=rf"The worker .+:\d+ is refused: its {name} is .+ with another"):
        check_environment(wanted)


def test_workers_of_another_model_are_refused(
    tmp_path: Path, tiny: BaseModel, few: Path, executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model of a worker changed after the driver loaded it."""
    tiny.fingerprint  # noqa: B018 (it is computed once)
    monkeypatch.setitem(tiny.__dict__, "fingerprint", "f" * 64)
    distribution = Distribution(executor, threads=1)
    with pytest.raises(MismatchError, match=r"is refused: its model fingerprint is .+ with ffff"):
        extract(tiny, Corpus([few]), tmp_path / "memory", distribution=distribution)


def test_a_worker_with_another_arithmetic_is_refused(
    tmp_path: Path, tiny: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device of a worker cannot compute in the driver's number format."""
    wanted = replace(jobs.ModelSource.of(tiny), arithmetic="bfloat16")
    monkeypatch.setattr(jobs.worker, "load_model", lambda *_, **__: tiny)
    with pytest.raises(MismatchError, match=r"is refused: its arithmetic is float32, .* started with bfloat16"):
        perform(request_of(tmp_path, "abc", model=wanted))
    assert not list(tmp_path.iterdir())


def test_a_job_reports_throughput_and_slow_tasks(tmp_path: Path, executor: LocalExecutor) -> None:
    from ibidem.learn.jobs.job import Report, Task

    report = Report("Extracting", "tokens", Distribution(executor), tmp_path, 0)
    tasks = [Task(number, "0" * 64, _write, "", 600, 0.1 * number) for number in range(1, 4)]
    for task in tasks:
        report.start(task)
    for task in tasks[:2]:
        report.finish(task, Result(task.number, None, f"host:{task.number}", 3.0, 1 + task.number % 2))
        report.advance(task)
    (tmp_path / "running-000000003.json").write_text('{"worker": "slow:7"}')
    line = report.describe([3], time.monotonic() + 100)
    assert "2 tasks done" in line
    assert "2 workers, 200 tokens/s a worker" in line
    assert "1 attempts lost" in line
    assert "slow: task 3 on slow:7 (100 s, usually 3 s)" in line
    assert "min left" in line


def test_workers_need_an_executor(tmp_path: Path) -> None:
    from ibidem.cli.distribution import opened_distribution

    with pytest.raises(UsageError, match="--on local"), opened_distribution(None, 2, tmp_path, None, "cpu"):
        pass


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("on", ["slurm", "ray"])
@pytest.mark.parametrize("name", ["given", "none", "network"])
def test_other_executors_give_the_same_bytes(
    on: str, name: str, tmp_path: Path, tiny_folder: Path, few: Path, references: References
) -> None:
    if on == "ray" and find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'ibidem[ray]'")
    path = tmp_path / "memory"
    compactor = references.compactor(name)
    command = [sys.executable, "-c", SCRIPT, str(tiny_folder), str(few), str(path), name, on]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *(p for p in sys.path if p)])}
    subprocess.run([*command, *([str(compactor)] if compactor else [])], env=environment, check=True, timeout=1100)
    assert_same(path, references.get(name))
