"""A backup is a verified copy of one generation, also while other processes write."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
from typer.testing import CliRunner

from ibidem.cli.app import app
from ibidem.errors import DamagedMemoryError, LockedMemoryError, MemoryFolderError
from ibidem.memory import Memory, back_up, verify_folder, writer_lock
from ibidem.memory import backup as backup_module

from . import samples
from .samples import append, check_prefix, files_of, hook, one, pairs_of, record, rows

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def full(path: Path) -> Path:
    """A memory with segments, removed pairs, a snapshot and a journal."""
    append(path, 1, 2)
    record(path, one(7), removed=(0,))
    with Memory.open(path).edit() as edit:
        edit.keep_snapshot("unpruned")
        edit.keep_entries(np.arange(edit.memory.entries) % 2 == 0)
        edit.commit()
    record(path, one(8), removed=(1,))
    return path


def test_copy_is_equal_and_independent(full: Path, tmp_path: Path) -> None:
    before = files_of(full)
    made = back_up(full, tmp_path / "backups" / "monday")
    assert (made.generation, made.records) == (Memory.open(full).generation, 1)
    assert files_of(full) == before
    assert verify_folder(made.path)[1] == []
    assert rows_with_pruned(Memory.open(made.path)) == rows_with_pruned(Memory.open(full))
    copied = files_of(made.path)
    needed = {name for name in before if name not in ("manifest.previous.json", "journals.json")}
    assert {name for name in needed if copied.get(name) == before[name]} >= needed - unneeded(full)
    inodes = [file.stat().st_ino for file in full.rglob("*") if file.is_file()]
    assert not [file for file in made.path.rglob("*") if file.is_file() and file.stat().st_ino in inodes]
    for memory in (full, made.path):
        record(memory, one(9))
        with Memory.open(memory).edit() as edit:
            edit.restore_snapshot("unpruned")
            edit.commit()
        assert Memory.open(memory).verify() == []
    assert pairs_of(Memory.open(made.path)) == pairs_of(Memory.open(full))


def rows_with_pruned(memory: Memory) -> object:
    return pairs_of(memory), memory.rows().tolist(), memory.values().tolist(), memory.tail_keys().tolist()


def unneeded(folder: Path) -> set[str]:
    """Return the files that only the previous generation needs."""
    kept = back_up(folder, folder.parent / "needed").path
    return set(files_of(folder)) - set(files_of(kept))


def test_backup_of_a_backup_restores_a_lost_memory(full: Path, tmp_path: Path) -> None:
    expected = rows_with_pruned(Memory.open(full))
    back_up(full, tmp_path / "copy")
    full.rename(tmp_path / "damaged")
    back_up(tmp_path / "copy", full)
    assert rows_with_pruned(Memory.open(full)) == expected


def test_backup_while_another_process_commits(path: Path, tmp_path: Path) -> None:
    """Each copy holds a whole prefix of the other process's commits, at least those before the backup started."""
    command = [sys.executable, samples.__file__, str(path), "append slowly"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        reached = [0]
        reader = threading.Thread(target=lambda: reached.extend(map(int, writer.stdout or ())))
        reader.start()
        copies = 0
        while copies < 4 or reached[-1] < 4:
            before = reached[-1]
            try:
                made = back_up(path, tmp_path / f"copy-{copies}")
            except MemoryFolderError as error:
                if "changes faster than it can be copied" not in str(error):
                    raise
                continue  # on a busy machine
            assert check_prefix(Memory.open(made.path)) >= before
            copies += 1
        writer.kill()
        reader.join()


def test_backup_while_changes_are_recorded_and_sealed(path: Path, tmp_path: Path) -> None:
    """At every file operation of the backup another thread of control commits; the copy is a state that existed."""
    states = [pairs_of(Memory.open(path))]
    busy = False

    def act(_: str) -> None:
        nonlocal busy
        if busy or len(states) > 12:
            return
        busy = True
        try:
            memory = record(path, one(len(states)), removed=(len(states) - 3,) if len(states) > 2 else ())
            states.append(pairs_of(memory))
            if len(states) % 2:
                Memory.open(path).sealed()
        finally:
            busy = False

    with pytest.MonkeyPatch.context() as patch:
        hook(patch, act)
        made = back_up(path, tmp_path / "copy")
    assert len(states) > 10
    memory = Memory.open(made.path)
    assert pairs_of(memory) in states
    assert len(rows(memory)) == memory.active_pairs


@pytest.mark.parametrize("kind", ["memory", "file", "inside", "same", "around", "link"])
def test_targets_that_are_refused(full: Path, tmp_path: Path, kind: str) -> None:
    other = tmp_path / "other"
    if kind == "memory":
        Memory.create(other, samples.IDENTITY)
    elif kind == "file":
        other.write_text("text")
    elif kind == "link":
        (tmp_path / "empty").mkdir()
        other.symlink_to(tmp_path / "empty")
    target = {"inside": full / "segments" / "copy", "same": full, "around": full.parent}.get(kind, other)
    before = files_of(tmp_path)
    with pytest.raises(MemoryFolderError, match="give"):
        back_up(full, target)
    assert files_of(tmp_path) == before


def test_damaged_memory_gives_no_copy(full: Path, tmp_path: Path) -> None:
    file = next(full.glob("segments/*/values.bin"))
    file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:])
    with pytest.raises(DamagedMemoryError, match=r"values\.bin is damaged"):
        back_up(full, tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["memory"]


def test_copy_is_verified(full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = backup_module._copy_state

    def copy_with_a_flipped_bit(folder: Path, target: Path) -> object:
        state = real(folder, target)
        file = next(target.glob("segments/*/sources.bin"))
        file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:])
        return state

    monkeypatch.setattr(backup_module, "_copy_state", copy_with_a_flipped_bit)
    with pytest.raises(MemoryFolderError, match=r"differs from what was read: segments/.*sources\.bin"):
        back_up(full, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_killed_or_failed_backup_leaves_no_folder_and_can_be_repeated(full: Path, tmp_path: Path) -> None:
    steps: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        hook(patch, steps.append)
        back_up(full, tmp_path / "whole")
    assert len(steps) > 40
    for last in range(0, len(steps), 17):
        target = tmp_path / f"killed-{last}"
        child = os.fork()
        if child == 0:
            left = iter(range(last))
            with pytest.MonkeyPatch.context() as patch:
                hook(patch, lambda _: None if next(left, None) is not None else os._exit(9))  # noqa: B023
                back_up(full, target)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        assert not target.exists() or verify_folder(target)[1] == []
        if not target.exists():
            fail_once(full, target, last // 2)
            assert not target.exists()
            back_up(full, target)
        assert files_of(target) == files_of(tmp_path / "whole")
        assert not list(tmp_path.glob(".tmp-*"))


def fail_once(folder: Path, target: Path, last: int) -> None:
    left = iter(range(last))

    def act(_: str) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        hook(patch, act)
        with pytest.raises(MemoryFolderError, match="No space left on device"):
            back_up(folder, target)


def test_two_backups_to_one_target(full: Path, tmp_path: Path) -> None:
    (tmp_path / ".tmp-copy").mkdir()
    with writer_lock(tmp_path / ".tmp-copy"), pytest.raises(LockedMemoryError):
        back_up(full, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_command(full: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["backup", "-m", str(full), str(tmp_path / "copy")])
    assert result.exit_code == 0, result.output
    assert "1 changes of the journal" in result.output
    assert "verified" in result.output
    result = CliRunner().invoke(app, ["backup", "-m", str(tmp_path / "copy"), str(tmp_path / "second"), "--json"])
    assert result.exit_code == 0, result.output
    assert f'"path": "{tmp_path / "second"}"' in result.output
