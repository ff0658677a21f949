"""Copies in object storage: what is published is complete, and nothing published is ever overwritten."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("obstore")

from typer.testing import CliRunner

from ibidem.cli.app import app
from ibidem.errors import DamagedMemoryError, MemoryFolderError, UsageError
from ibidem.memory import LostRaceError, Memory, Replica, Store, verify_folder

from .samples import IDENTITY, append, one, pairs_of, record

if TYPE_CHECKING:
    from collections.abc import Iterator


def pull(url: str, folder: Path) -> Memory:
    with Replica(folder, Store(url)) as replica:
        replica.update()
    assert verify_folder(folder)[1] == []
    return Memory.open(folder)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


@pytest.fixture
def full(path: Path) -> Path:
    append(path, 1, 2)
    record(path, one(7), removed=(0,))
    return path


def check_pushes(full: Path, url: str, tmp_path: Path) -> None:
    """Push and pull after each change, and from two places at the same time."""
    first = Store(url).push(full)
    assert (first.number, first.generation) == (1, Memory.open(full).generation)
    again = Store(url).push(full)
    assert (again.number, again.uploaded) == (1, 0)
    copy = tmp_path / "copies" / "memory"
    assert pairs_of(pull(url, copy)) == pairs_of(Memory.open(full))
    record(full, one(8))
    assert (Store(url).push(full).number, Store(url).push(full).uploaded) == (2, 0)
    append(full, 3)
    assert Store(url).push(full).number == 3
    assert pairs_of(pull(url, copy)) == pairs_of(Memory.open(full))
    # Two pushes that start from the same state: one is published.
    record(full, one(9))
    barrier = threading.Barrier(2)
    found: list[Any] = []

    def push() -> None:
        store = Store(url)
        create = store._create

        def create_together(number: int, content: bytes) -> None:
            barrier.wait(20)
            create(number, content)

        store._create = create_together  # type: ignore[method-assign]
        try:
            found.append(store.push(full))
        except LostRaceError as error:
            found.append(error)

    threads = [threading.Thread(target=push) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {type(one).__name__ for one in found} == {"Push", "LostRaceError"}
    assert pairs_of(pull(url, copy)) == pairs_of(Memory.open(full))
    assert "nothing was published" in str(next(one for one in found if isinstance(one, LostRaceError)))


def test_push_and_pull(full: Path, url: str, tmp_path: Path) -> None:
    check_pushes(full, url, tmp_path)


def test_the_commands(full: Path, url: str, tmp_path: Path) -> None:
    run = CliRunner().invoke
    assert "state 1, generation 3" in run(app, ["push", "-m", str(full), url]).stdout
    assert "up to date" in run(app, ["push", "-m", str(full), url, "--keep", "2"]).stdout
    copy = str(tmp_path / "copy")
    assert "verified" in run(app, ["pull", "-m", copy, url]).stdout
    assert '"changed": false' in run(app, ["pull", "-m", copy, url, "--json"]).stdout
    assert isinstance(run(app, ["pull", "-m", copy, "http://a"]).exception, UsageError)


def test_killed_pushes_leave_the_last_state(full: Path, url: str, tmp_path: Path) -> None:
    Store(url).push(full)
    known = [pairs_of(Memory.open(full))]
    randomness = random.Random(2)
    for number in range(6):
        append(full, 3 + number)
        known.append(pairs_of(Memory.open(full)))
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                Store(url).push(full)
            os._exit(0)
        time.sleep(randomness.random() * 0.05)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        shutil.rmtree(tmp_path / "copies", ignore_errors=True)
        assert pairs_of(pull(url, tmp_path / "copies" / "memory")) in known
    Store(url).push(full)
    assert pairs_of(pull(url, tmp_path / "copies" / "memory")) == known[-1]


def test_what_a_killed_push_left_is_used(full: Path, url: str, tmp_path: Path) -> None:
    store = Store(url)

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    store._create = fail  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        store.push(full)
    with pytest.raises(MemoryFolderError, match="ibidem push"):
        pull(url, tmp_path / "copy")
    objects = sorted((tmp_path / "store" / "objects").iterdir())
    objects[0].write_bytes(objects[0].read_bytes() + b"x")  # one that was written in part
    done = Store(url).push(full)
    assert (done.number, done.uploaded) == (1, 1)
    assert pairs_of(pull(url, tmp_path / "copy")) == pairs_of(Memory.open(full))


def test_damage_in_the_store(full: Path, url: str, tmp_path: Path) -> None:
    Store(url).push(full)
    copy = tmp_path / "copies" / "memory"
    before = pairs_of(pull(url, copy))
    old = set((tmp_path / "store" / "objects").iterdir())
    append(full, 3)
    Store(url).push(full)
    shutil.copytree(tmp_path / "copies", tmp_path / "kept", symlinks=True)
    for damaged in sorted(set((tmp_path / "store" / "objects").iterdir()) - old):
        content = damaged.read_bytes()
        if not content:
            continue
        shutil.rmtree(tmp_path / "copies")
        shutil.copytree(tmp_path / "kept", tmp_path / "copies", symlinks=True)
        damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(DamagedMemoryError, match="sha256"):
            pull(url, copy)
        damaged.unlink()
        with pytest.raises(MemoryFolderError, match="has no file"):
            pull(url, copy)
        assert pairs_of(Memory.open(copy)) == before
        again = Store(url).push(full)
        assert (again.number, again.uploaded, damaged.read_bytes()) == (2, 1, content)
    state = tmp_path / "store" / "states" / "000000000002.json"
    content = state.read_bytes()
    state.write_bytes(content.replace(b'"format": 1', b'"format": 2', 1))
    with pytest.raises(DamagedMemoryError, match="checksum"):
        pull(url, copy)
    state.write_bytes(content)
    assert pairs_of(pull(url, copy)) == pairs_of(Memory.open(full))


def test_a_damaged_memory_is_not_published(full: Path, url: str) -> None:
    file = full / "segments" / "000001" / "keys.bin"
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    with pytest.raises(DamagedMemoryError):
        Store(url).push(full)
    with pytest.raises(MemoryFolderError, match="no memory"):
        Store(url).read_view("")


def test_a_damaged_journal_is_not_published(full: Path, url: str) -> None:
    (file,) = (full / "journals").iterdir()
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DamagedMemoryError, match=file.name):
        Store(url).push(full)
    with pytest.raises(MemoryFolderError, match="no memory"):
        Store(url).read_view("")


def test_old_states_are_deleted(full: Path, url: str, tmp_path: Path) -> None:
    for number in range(3, 8):
        append(full, number)
        Store(url).push(full, keep=2)
    assert [path.name for path in sorted((tmp_path / "store" / "states").iterdir())] == [
        "000000000004.json",
        "000000000005.json",
    ]
    kept = Store(url)
    needed = kept._objects_of(4) | kept._objects_of(5)
    assert {path.name for path in (tmp_path / "store" / "objects").iterdir()} == needed
    assert pairs_of(pull(url, tmp_path / "copy")) == pairs_of(Memory.open(full))


def test_a_damaged_old_state_is_reported(full: Path, url: str, tmp_path: Path) -> None:
    Store(url).push(full)
    append(full, 3)
    Store(url).push(full)
    (tmp_path / "store" / "states" / "000000000001.json").write_text("{}")
    append(full, 4)
    objects = sorted((tmp_path / "store" / "objects").iterdir())
    with pytest.raises(DamagedMemoryError, match=r"000000000001\.json is damaged"):
        Store(url).push(full, keep=1)
    assert set(objects) <= set((tmp_path / "store" / "objects").iterdir()), "nothing is deleted"
    assert pairs_of(pull(url, tmp_path / "copy")) == pairs_of(Memory.open(full))


def test_another_memory_or_an_older_one_is_refused(full: Path, url: str, tmp_path: Path) -> None:
    shutil.copytree(full, tmp_path / "older")
    append(full, 3)
    Store(url).push(full)
    with pytest.raises(MemoryFolderError, match="pull the newer"):
        Store(url).push(tmp_path / "older")
    Memory.create(tmp_path / "other", IDENTITY)
    with pytest.raises(MemoryFolderError, match="another memory"):
        Store(url).push(tmp_path / "other")


def test_unknown_storage() -> None:
    for url in ("ftp://a/b", "http://a/b", "memory://a"):
        with pytest.raises(UsageError, match="Unknown storage"):
            Store(url)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A local server with the API of S3, in an environment of its own: botocore cannot share that of this project."""
    given = os.environ.get("IBIDEM_MOTO_SERVER")
    program = Path(given) if given else tmp_path_factory.mktemp("moto") / "bin" / "moto_server"
    if not given:
        folder = program.parents[1]
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
        done = subprocess.run([folder / "bin" / "pip", "install", "-q", "moto[server]>=5.1"], check=False, timeout=600)
        if done.returncode:
            pytest.skip("moto cannot be installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        for _ in range(300):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{address}/moto-api/", timeout=5).close()
                break
            time.sleep(0.1)
        urllib.request.urlopen(urllib.request.Request(f"{address}/bucket", method="PUT"), timeout=10).close()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", address)
            patch.setenv("AWS_ACCESS_KEY_ID", "test")
            patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
            patch.setenv("AWS_REGION", "us-east-1")
            yield "s3://bucket/memories/it"
    finally:
        process.kill()
        process.wait(20)


@pytest.mark.slow
def test_a_server_with_the_api_of_s3(full: Path, s3: str, tmp_path: Path) -> None:
    check_pushes(full, s3, tmp_path)
    for number in range(5, 9):
        append(full, number)
        Store(s3).push(full, keep=2)
    assert Store(s3)._numbers() == [7, 8]
    assert pairs_of(pull(s3, tmp_path / "another")) == pairs_of(Memory.open(full))


PUSH = (
    "import sys; from pathlib import Path; from ibidem.memory import Store; store = Store(sys.argv[1]); print();"
    "sys.stdout.flush(); store.push(Path(sys.argv[2]))"
)


@pytest.mark.slow
def test_killed_pushes_to_a_server(full: Path, s3: str, tmp_path: Path) -> None:
    url = f"{s3}-kills"
    Store(url).push(full)
    known = [pairs_of(Memory.open(full))]
    randomness, killed = random.Random(3), 0
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    for number in range(6):
        append(full, 3 + number)
        known.append(pairs_of(Memory.open(full)))
        command = [sys.executable, "-c", PUSH, url, str(full)]
        child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        before = Store(url)._sizes().keys()
        deadline = time.monotonic() + 60
        while number % 2 and Store(url)._sizes().keys() == before and time.monotonic() < deadline:
            time.sleep(0.001)  # the push has begun
        time.sleep(randomness.random() * 0.03)
        child.kill()
        killed += child.wait(30) < 0
        child.stdout.close()
        assert pairs_of(pull(url, tmp_path / f"copy-{number}")) in known
    assert killed
    Store(url).push(full)
    assert pairs_of(pull(url, tmp_path / "copy")) == known[-1]


@pytest.mark.slow
def test_damage_and_old_states_on_a_server(full: Path, s3: str, tmp_path: Path) -> None:
    url, copy = f"{s3}-damage", tmp_path / "copy"
    store = Store(url)
    shutil.copytree(full, tmp_path / "older")
    store.push(full)
    before = pairs_of(pull(url, copy))
    old = store._sizes().keys()
    append(full, 3)
    store.push(full)
    damaged = f"objects/{next(name for name, size in store._sizes().items() if name not in old and size)}"
    content = bytes(store._api.get(store._store, damaged).bytes())
    store._api.put(store._store, damaged, content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DamagedMemoryError, match="sha256"):
        pull(url, copy)
    store._api.delete(store._store, damaged)
    with pytest.raises(MemoryFolderError, match="has no file"):
        pull(url, copy)
    assert pairs_of(Memory.open(copy)) == before
    again = store.push(full)
    assert (again.number, again.uploaded) == (2, 1)  # what is missing is uploaded again
    assert pairs_of(pull(url, copy)) == pairs_of(Memory.open(full))
    with pytest.raises(MemoryFolderError, match="pull the newer"):
        Store(url).push(tmp_path / "older")
    # A pusher that has read a former state when another one publishes: its push fails, and the next one goes on.
    late = Store(url)
    former = late._newest()
    append(full, 4)
    Store(url).push(full)
    append(full, 5)
    late._newest = lambda: former  # type: ignore[method-assign]
    with pytest.raises(LostRaceError, match="nothing was published"):
        late.push(full)
    assert Store(url).push(full).number == 4
    assert pairs_of(pull(url, copy)) == pairs_of(Memory.open(full))
