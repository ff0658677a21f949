"""Every executor returns what the functions return, starts lost tasks again, and reports errors by their class."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ibidem.errors import MismatchError, UsageError, WorkerError
from ibidem.executor import Executor, LocalExecutor, RayExecutor, SlurmExecutor, open_executor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

sys.path.insert(0, str(Path(__file__).parent))

import functions

Opener = "Callable[..., Executor]"


def open_local(_: Path, **options: int) -> Executor:
    return LocalExecutor(2, **options)


def open_slurm(folder: Path, **options: int) -> Executor:
    return SlurmExecutor(2, folder / "jobs", cluster="local", **options)


def open_ray(_: Path, **options: int) -> Executor:
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'ibidem[ray]'")
    import ray

    for left in (2, 1, 0):
        try:
            if not ray.is_initialized():  # once for all tests; it may take longer than Ray waits on a busy machine
                common = {"include_dashboard": False, "log_to_driver": False}  # another Ray may run on this machine
                ray.init(address="local", num_cpus=2, object_store_memory=80 << 20, **common)
            break
        except RuntimeError:
            ray.shutdown()
            if not left:
                raise
    return RayExecutor(2, **options)


@pytest.fixture(scope="module", autouse=True)
def stop_ray() -> Iterator[None]:
    yield
    if "ray" in sys.modules:
        sys.modules["ray"].shutdown()


@pytest.fixture(
    params=[
        pytest.param(open_local, id="local"),
        pytest.param(open_slurm, id="slurm", marks=pytest.mark.slow),
        pytest.param(open_ray, id="ray", marks=pytest.mark.slow),
    ]
)
def opener(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Executor]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    found: Callable[..., Executor] = request.param
    return found


@pytest.fixture
def executor(opener: Callable[..., Executor], tmp_path: Path) -> Iterator[Executor]:
    with opener(tmp_path) as opened:
        yield opened


def test_all_results_come_once_as_they_end(executor: Executor) -> None:
    for number in range(7):
        executor.submit(number, functions.sleep_and_square, number)
    assert executor.pending == 7
    found = {}
    while (result := executor.wait()) is not None:
        assert result.number not in found
        assert result.attempts == 1
        assert result.worker.rpartition(":")[2].isdigit()
        found[result.number] = result.value
    assert found == {number: number**2 for number in range(7)}
    assert (executor.pending, executor.wait()) == (0, None)


def test_printed_text_is_no_answer(executor: Executor) -> None:
    executor.submit(0, functions.square, 5)
    result = executor.wait()
    assert result is not None
    assert result.value == 25


def test_errors_keep_their_class_and_name_task_and_worker(executor: Executor) -> None:
    executor.submit(3, functions.refuse, None)
    with pytest.raises(MismatchError, match=r"another model \(task 3 on the worker .+:\d+\)"):
        executor.wait()
    executor.submit(4, functions.fail, None)
    with pytest.raises(WorkerError, match=r"(?s)Task 4 failed on the worker .*ValueError: a deliberate bug"):
        executor.wait()
    executor.submit(5, functions.square, 3)
    result = executor.wait()
    assert result is not None
    assert result.value == 9


def test_a_killed_task_is_started_again(executor: Executor, tmp_path: Path) -> None:
    folder = tmp_path / "calls"
    folder.mkdir()
    executor.submit(0, functions.die_until, (str(folder), 2))
    result = executor.wait()
    assert result is not None
    assert (result.value, result.attempts) == (2, 3)


def test_a_task_that_always_dies_fails(opener: Callable[..., Executor], tmp_path: Path) -> None:
    folder = tmp_path / "calls"
    folder.mkdir()
    with opener(tmp_path, attempts=2) as executor:
        executor.submit(6, functions.die_until, (str(folder), 99))
        with pytest.raises(WorkerError, match="worker of task 6 was lost 2 times"):
            executor.wait()
    assert len(list(folder.iterdir())) == 2


@pytest.mark.slow
@pytest.mark.parametrize("opener", [open_slurm, open_ray], indirect=True)
def test_a_worker_without_the_module_of_a_task_is_not_taken_for_a_lost_one(
    opener: Callable[..., Executor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opener(tmp_path) as executor:
        (tmp_path / "only_here.py").write_text("def answer(_):\n    return 1\n")
        monkeypatch.syspath_prepend(tmp_path)
        executor.submit(7, import_module("only_here").answer, None)
        with pytest.raises(WorkerError, match=r"Task 7 cannot be started .* No module named 'only_here'"):
            executor.wait()


@pytest.mark.slow
def test_ray_runs_no_more_tasks_than_workers(opener: Callable[..., Executor], tmp_path: Path) -> None:
    """The next task is queued at the cluster only if this has no CPU on which it would start at once."""
    if opener is not open_ray:
        pytest.skip("the others limit the tasks themselves")
    with opener(tmp_path) as full:
        assert (full.workers, full.slots) == (2, 4)
    with RayExecutor(1) as half:
        assert (half.workers, half.slots) == (1, 1)


@pytest.mark.slow
def test_ray_client(tmp_path: Path) -> None:
    """The driver is outside the cluster, and a worker is killed."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'ibidem[ray]'")
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        gcs, port = first.getsockname()[1], second.getsockname()[1]
    (tmp_path / "calls").mkdir()
    environment = os.environ | {
        "HOME": str(tmp_path),  # without a token
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *(path for path in sys.path if path)]),
        "RAY_AUTH_MODE": "disabled",
    }
    options = [f"--port={gcs}", f"--ray-client-server-port={port}", "--num-cpus=2", "--include-dashboard=false"]
    options += ["--object-store-memory=80000000", "--disable-usage-stats", "--block"]
    cluster = subprocess.Popen(
        [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", *options], env=environment
    )
    script = (
        "import sys; from pathlib import Path; import functions; from ibidem.executor import open_executor\n"
        "with open_executor(sys.argv[1], 2, folder=Path(sys.argv[2])) as executor:\n"
        "    for number in range(5): executor.submit(number, functions.sleep_and_square, number)\n"
        "    print(sorted(executor.wait().value for _ in range(5)))\n"
        "    executor.submit(0, functions.die_until, (str(Path(sys.argv[2], 'calls')), 2))\n"
        "    print(executor.wait().attempts)\n"
    )
    try:
        deadline, done = time.monotonic() + 200, None
        while (done is None or done.returncode) and time.monotonic() < deadline:  # until the cluster has started
            command = [sys.executable, "-c", script, f"ray://127.0.0.1:{port}", str(tmp_path)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done is not None
        assert done.stdout.splitlines() == ["[0, 1, 4, 9, 16]", "3"], done.stderr
    finally:
        cluster.terminate()
        cluster.wait(60)


@pytest.mark.slow
@pytest.mark.parametrize("address", ["ray:", "ray://"])
def test_a_ray_cluster_that_is_gone_is_an_error_at_once(tmp_path: Path, address: str) -> None:
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'ibidem[ray]'")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    script = (
        "import sys; from pathlib import Path; from ibidem.executor import open_executor\n"
        "open_executor(sys.argv[1], 1, folder=Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", script, f"{address}127.0.0.1:{port}", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert f"127.0.0.1:{port} cannot be reached (no program listens at" in done.stderr


@pytest.mark.slow
def test_the_address_of_a_cluster_that_is_gone_does_not_matter(tmp_path: Path) -> None:
    """Ray keeps the address of the last cluster of a machine after that was killed."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'ibidem[ray]'")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="r"))  # the names of Ray's sockets must be short
    (folder / "ray").mkdir()
    (folder / "ray" / "ray_current_cluster").write_text(f"127.0.0.1:{port}")
    script = (
        "import sys; from pathlib import Path; import functions; from ibidem.executor import open_executor\n"
        "with open_executor('ray', 1, folder=Path(sys.argv[1])) as executor:\n"
        "    executor.submit(0, functions.square, 4)\n"
        "    print(executor.wait().value)\n"
    )
    environment = os.environ | {"RAY_TMPDIR": str(folder), "RAY_AUTH_MODE": "disabled"}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *(path for path in sys.path if path)])
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=250)
    shutil.rmtree(folder, ignore_errors=True)
    assert done.stdout.split() == ["16"], done.stderr[-2_000:]


def test_cancelled_tasks_give_no_results(executor: Executor, tmp_path: Path) -> None:
    never = tmp_path / "never"
    for number in range(3):
        executor.submit(number, functions.wait_for, str(never))
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("never.*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert executor.wait(timeout=0.1) is None
    executor.cancel()
    assert executor.pending == 0
    executor.submit(0, functions.square, 4)
    result = executor.wait()
    assert result is not None
    assert result.value == 16


def test_threads_are_limited(opener: Callable[..., Executor], tmp_path: Path) -> None:
    if opener is open_slurm:
        pytest.skip("Slurm itself limits the threads of a job")
    with opener(tmp_path, threads=1) as executor:
        executor.submit(0, functions.threads, None)
        result = executor.wait()
        assert result is not None
        assert result.value == "1"


def test_local_workers_end_with_their_driver(tmp_path: Path) -> None:
    """A driver that is killed leaves no process behind, though its workers run a task that never ends."""
    script = (
        "import sys, time; sys.path.insert(0, sys.argv[1])\n"
        "import functions\n"
        "from ibidem.executor import LocalExecutor\n"
        "executor = LocalExecutor(2)\n"
        "for number in range(2): executor.submit(number, functions.wait_for, sys.argv[2])\n"
        "executor.wait()\n"
    )
    command = [sys.executable, "-c", script, str(Path(__file__).parent), str(tmp_path / "never")]
    driver = subprocess.Popen(command)
    deadline = time.monotonic() + 60
    while len(found := list(tmp_path.glob("never.*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    driver.kill()
    driver.wait()
    workers = [int(file.suffix[1:]) for file in found]
    assert len(workers) == 2
    while any(is_alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_alive(pid) for pid in workers)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_result_that_cannot_be_pickled_is_an_error() -> None:
    with LocalExecutor(1) as executor:
        executor.submit(0, functions.unpicklable, None)
        with pytest.raises(WorkerError, match="cannot be pickled"):
            executor.wait()


def test_a_worker_that_exits_is_lost() -> None:
    with LocalExecutor(1, attempts=1) as executor:
        executor.submit(0, functions.exit_interpreter, None)
        with pytest.raises(WorkerError, match="lost 1 times"):
            executor.wait()


def test_a_worker_that_cannot_be_started_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of Python was deleted, or the machine has no memory for another process."""
    monkeypatch.setattr(sys, "executable", "/missing/python")
    with LocalExecutor(1) as executor:
        executor.submit(4, functions.square, 3)
        with pytest.raises(WorkerError, match=r"cannot be started: .*/missing/python.* \(task 4 on the worker .+\)"):
            executor.wait(60)


def test_a_job_that_slurm_refuses_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("srun", "sbatch"):
        (programs / name).write_text("#!/bin/sh\necho 'sbatch: error: invalid partition specified: gpu' >&2\nexit 1\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    with open_executor("slurm:gpu", 2, folder=tmp_path / "jobs") as executor:
        with pytest.raises(WorkerError, match=r"job of task 3 cannot be queued .* invalid partition specified: gpu"):
            executor.submit(3, functions.square, 3)
        assert executor.pending == 0


@pytest.mark.parametrize("on", ["", "spark", "ray://", "ray:", "slurm:", "local:2"])
def test_unknown_executors_are_refused(on: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Unknown executor"):
        open_executor(on, 2, folder=tmp_path)


def test_invalid_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Invalid number of workers 0"):
        open_executor("local", 0, folder=tmp_path)
    with pytest.raises(UsageError, match="--workers"):
        open_executor("slurm:cpu", folder=tmp_path)
    with LocalExecutor(1) as executor:
        executor.submit(0, functions.square, 4)
        with pytest.raises(UsageError, match="pending already"):
            executor.submit(0, functions.square, 4)
    with pytest.raises(UsageError, match="closed"):
        executor.submit(1, functions.square, 4)


def test_slurm_without_slurm_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="Slurm cannot be used here"):
        open_executor("slurm:cpu", 2, folder=tmp_path)
