"""A writer that is killed, or has no disk space left, leaves the last committed state."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ibidem.errors import (
    CommittedError,
    MemoryFolderError,
)
from ibidem.memory import Memory

from . import samples
from .samples import IDENTITY, MOMENT, append, check_prefix, files_of, hook, one, pairs_of, record, rows_of, sample

KILLS = 15


def test_writer_killed_at_random_times(path: Path) -> None:
    """Each writer continues where the one before was killed; readers see complete generations meanwhile."""
    moments = random.Random(5)
    reached = 0
    for kill in range(KILLS):
        command = [sys.executable, samples.__file__, str(path), "append"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
            begun = time.monotonic()
            for _ in range(kill % 3):
                reached = int(writer.stdout.readline())
                assert check_segments_only(Memory.open(path)) >= reached
            # About the time of the commits so far, so that a slow machine is killed during a step too.
            end = time.monotonic() + moments.uniform(0, 1) * max(0.02, (time.monotonic() - begun) / 2)
            while time.monotonic() < end:
                assert check_segments_only(Memory.open(path)) >= reached
            writer.kill()
            reached = max([reached, *map(int, writer.stdout.read().split())])
        memory = Memory.open(path)
        assert memory.verify() == []
        assert check_prefix(memory) >= reached
        reached = check_prefix(memory)
    assert reached >= KILLS - KILLS // 3
    append(path, reached + 1)
    uninterrupted = path.parent / "uninterrupted"
    Memory.create(uninterrupted, IDENTITY, seed=7, created=MOMENT)
    append(uninterrupted, *range(1, reached + 2))
    mine, theirs = files_of(path), files_of(uninterrupted)
    assert mine.keys() == theirs.keys()
    assert all(mine[name] == theirs[name] for name in mine if not name.startswith("manifest"))


def check_segments_only(memory: Memory) -> int:
    """Check as `check_prefix`, without the artefact, which a newer generation may remove."""
    count = len(memory.manifest.segments)
    expected = [text for number in range(1, count + 1) for text in sample(number).sources]
    assert [pair.source for pair in memory.sentences()] == expected
    return count


def count_steps(path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    steps: list[str] = []
    with monkeypatch.context() as patch:
        hook(patch, steps.append)
        append(path, 2)
    return len(steps)


@pytest.fixture
def base(path: Path) -> Path:
    append(path, 1)
    return path


def test_edit_killed_at_every_step(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = tmp_path / "finished"
    shutil.copytree(base, finished)
    steps = count_steps(finished, monkeypatch)
    assert steps > 20
    states = set()
    for last in range(steps):
        folder = tmp_path / f"killed-{last}"
        shutil.copytree(base, folder)
        child = os.fork()
        if child == 0:
            left = iter(range(last))
            hook(monkeypatch, lambda _: None if next(left, None) is not None else os._exit(9))  # noqa: B023
            append(folder, 2)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        memory = Memory.open(folder)
        assert memory.verify() == []
        states.add(check_prefix(memory))
        if memory.generation == 2:
            append(folder, 2)
        else:
            with memory.edit():
                pass
        assert files_of(folder) == files_of(finished)
    assert states == {1, 2}


def test_disk_full_at_every_step(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old generation stays, and the same edit succeeds once there is disk space."""
    finished = tmp_path / "finished"
    shutil.copytree(base, finished)
    steps = count_steps(finished, monkeypatch)
    for step in range(steps):
        folder = tmp_path / f"full-{step}"
        shutil.copytree(base, folder)
        with monkeypatch.context() as patch:
            errors = append_with_one_failure(folder, patch, step, OSError(errno.ENOSPC, "No space left on device"))
        assert len(errors) == 1
        assert "No space left on device" in str(errors[0])
        assert ("stays at its last committed generation" in str(errors[0])) == (step < steps - 1)
        assert ("is committed" in str(errors[0])) == isinstance(errors[0], CommittedError) == (step == steps - 1)
        memory = Memory.open(folder)
        assert memory.verify() == []
        assert check_prefix(memory) == 2
        # The manifest that a failed commit had put in place counts as the previous one.
        same = set(files_of(finished)) - {"artefacts/index-000002.bin"}
        assert set(files_of(folder)) - {"artefacts/index-000002.bin"} == same


def append_with_one_failure(
    folder: Path, patch: pytest.MonkeyPatch, bad: int, failure: OSError
) -> list[MemoryFolderError]:
    """Commit sample 2; the step `bad` fails once, and each failed change is repeated."""
    steps = 0
    errors = []

    def act(_: str) -> None:
        nonlocal steps
        steps += 1
        if steps == bad + 1:
            raise failure

    with Memory.open(folder).edit() as edit:
        hook(patch, act)
        for change in (
            lambda: edit.append_segment(sample(2)),
            lambda: edit.put_artefact("index", "bin", b"index 2", {"segments": 2}),
            lambda: edit.commit(MOMENT),
        ):
            try:
                change()
            except CommittedError as error:
                errors.append(error)
                assert edit.memory.generation == Memory.open(folder).generation == 3
            except MemoryFolderError as error:
                errors.append(error)
                assert Memory.open(folder).verify() == []
                change()
    return errors


def test_failed_sync_of_a_commit_keeps_its_segments(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit whose last sync fails is committed: closing the edit must not remove its segment."""
    steps = 0

    def act(_: str) -> None:
        nonlocal steps
        steps += 1
        if steps == total:
            raise OSError(errno.EIO, "Input/output error")

    def fail() -> None:
        with Memory.open(base).edit() as edit:
            edit.append_segment(sample(2))
            edit.put_artefact("index", "bin", b"index 2", {"segments": 2})
            edit.commit()

    shutil.copytree(base, base.parent / "counted")
    total = count_steps(base.parent / "counted", monkeypatch)
    hook(monkeypatch, act)
    with pytest.raises(MemoryFolderError, match="Input/output error"):
        fail()
    assert check_prefix(Memory.open(base)) == 2
    assert Memory.open(base).verify() == []


def test_file_size_limit(base: Path) -> None:
    """The operating system refuses a part of a write."""
    before = files_of(base)
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            with Memory.open(base).edit() as edit:
                edit.append_segment(sample(2, pairs=5000))
                os._exit(1)
        except MemoryFolderError as error:
            os._exit(0 if "File too large" in str(error) else 2)
        finally:
            os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert files_of(base) == before
    assert check_prefix(append(base, 2)) == 2


def test_files_are_synced_before_they_are_renamed(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Power loss: all content is synced before its rename, each rename before the next, the manifest last."""
    synced: set[Path] = set()
    renamed: list[Path] = []
    waiting: list[Path] = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.add(path)
        waiting[:] = [parent for parent in waiting if parent != path]
        real_fsync(descriptor)

    def replace(source: Path, target: Path) -> None:
        assert waiting == [], f"{target} is renamed before {waiting} is synced"
        assert source in synced
        if source.is_dir():
            assert set(source.iterdir()) <= synced
        renamed.append(target.relative_to(base))
        waiting.append(target.parent)
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    append(base, 2)
    assert waiting == []
    assert [str(path) for path in renamed] == [
        "segments/000002",
        "artefacts/index-000003.bin",
        "manifest.previous.json",
        "manifest.json",
    ]


def check_kills(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, every: int) -> None:
    """Kill a writer before a step: the memory has the state before or after, and the next writer continues from it."""
    memory = append(path, 1, 2)
    with memory.edit() as edit:
        edit.keep_snapshot("kept")
        edit.keep_entries(np.arange(memory.entries) % 2 == 0)
        edit.commit(MOMENT)
    if change != "first":
        record(path, one(7), removed=(0,))

    def act(folder: Path) -> None:
        if change in ("record", "first"):
            record(folder, one(8), removed=(1,))
        elif change == "seal":
            Memory.open(folder).sealed()
        else:
            with Memory.open(folder).edit() as edit:
                edit.restore_snapshot("kept")
                edit.forget_snapshot("kept")
                edit.commit(MOMENT)

    finished = tmp_path / "finished"
    shutil.copytree(path, finished)
    steps: list[str] = []
    with monkeypatch.context() as patch:
        hook(patch, steps.append)
        act(finished)
    before, after = pairs_of(Memory.open(path)), pairs_of(Memory.open(finished))
    assert len(steps) >= (1 if change == "record" else 2)
    for last in range(0, len(steps), every):
        folder = tmp_path / f"killed-{last}"
        shutil.copytree(path, folder)
        child = os.fork()
        if child == 0:
            left = iter(range(last))
            hook(monkeypatch, lambda _: None if next(left, None) is not None else os._exit(9))  # noqa: B023
            act(folder)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        memory = Memory.open(folder)
        assert memory.verify() == []
        assert pairs_of(memory) in (before, after)
        with memory.writing() as writer:  # a writer accepts a record that was not committed
            memory = writer.memory
        assert pairs_of(memory) in (before, after)
        added = {id: row[:4] for id, row in rows_of(one(9), memory.tail.next_id).items()}
        assert pairs_of(record(folder, one(9))) == pairs_of(memory) | added
        assert pairs_of(Memory.open(folder).sealed()) == pairs_of(memory) | added


@pytest.mark.parametrize(("change", "every"), [("record", 1), ("first", 1), ("seal", 7), ("restore", 13)])
def test_journal_writer_killed_at_some_steps(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, every: int
) -> None:
    check_kills(path, tmp_path, monkeypatch, change, every)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["seal", "restore"])
def test_journal_writer_killed_at_every_step(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    check_kills(path, tmp_path, monkeypatch, change, 1)
