"""One writer at a time; a killed process leaves no lock."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from ibidem.errors import LockedMemoryError, MemoryFolderError
from ibidem.memory import Memory
from ibidem.memory.lock import is_being_written

from . import samples
from .samples import append, check_prefix, one

if TYPE_CHECKING:
    from pathlib import Path


def test_second_writer_gets_the_process_that_holds_the_lock(path: Path) -> None:
    command = [sys.executable, samples.__file__, str(path), "hold"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        wanted = rf"written by process {holder.pid} on {socket.gethostname()} since 20.*; wait for it or stop it"
        with pytest.raises(LockedMemoryError, match=wanted), Memory.open(path).edit():
            pytest.fail("two writers")
        assert Memory.open(path).generation == 1
        holder.kill()
    assert check_prefix(append(path, 1)) == 1


def test_lock_holds_within_one_process_and_is_released(path: Path) -> None:
    memory = Memory.open(path)
    with memory.edit():
        with pytest.raises(LockedMemoryError, match=f"process {os.getpid()} "), memory.edit():
            pytest.fail("two writers")
        with (
            pytest.raises(LockedMemoryError),
            memory.edit(),
        ):  # the refused writer must not have freed the lock
            pytest.fail("two writers")
    assert not (path / "lock.holder").exists()
    with memory.edit() as edit:
        edit.commit()


def test_forked_child_does_not_keep_the_lock(path: Path) -> None:
    with Memory.open(path).edit():
        child = os.fork()
        if child == 0:
            signal.pause()
    try:
        assert check_prefix(append(path, 1)) == 1
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_lock_with_unreadable_holder(path: Path) -> None:
    memory = Memory.open(path)
    with memory.edit():
        (path / "lock.holder").write_bytes(b"\xff[")
        with pytest.raises(LockedMemoryError, match="another process"), memory.edit():
            pytest.fail("two writers")


def test_the_holder_says_whether_a_writer_may_run(path: Path) -> None:
    assert not is_being_written(path)
    with Memory.open(path).edit():
        assert is_being_written(path)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    here, own = socket.gethostname(), os.getpid()
    holders = [({"pid": ended.pid, "host": here}, False), ({"pid": own, "host": here}, True)]
    holders += [({"pid": ended.pid, "host": "elsewhere"}, True), ({"pid": "x", "host": here}, True), ({}, True)]
    for holder, running in holders:
        (path / "lock.holder").write_text(json.dumps(holder))
        assert is_being_written(path) is running, holder
    (path / "lock.holder").write_bytes(b"\xff[")
    assert is_being_written(path)


def test_lock_creates_no_folder(tmp_path: Path, path: Path) -> None:
    memory = Memory.open(path)
    path.rename(tmp_path / "moved")
    with pytest.raises(MemoryFolderError, match="no memory"), memory.edit():
        pytest.fail("no folder")
    assert not path.exists()


def test_writer_waits_for_the_lock(path: Path) -> None:
    append(path, 1)
    memory = Memory.open(path)
    with memory.edit():
        started = time.monotonic()
        with pytest.raises(LockedMemoryError), memory.writing(lock_timeout=0.05):
            pass
        assert time.monotonic() - started >= 0.05
    released = threading.Event()

    def hold() -> None:
        with memory.edit():
            released.set()
            time.sleep(0.1)

    other = threading.Thread(target=hold)
    other.start()
    released.wait()
    with memory.writing() as writer:
        writer.record(one(7))
    other.join()
    assert Memory.open(path).active_pairs == 4
