"""A power cut keeps only what was synced: acknowledged changes survive, whichever writer was killed before."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ibidem.memory import Memory

from .samples import (
    IDENTITY,
    MOMENT,
    hook,
    one,
    pairs_of,
    record,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Killed(BaseException):
    """Raised to end a writer at a step."""


class Disk:
    """The part of a folder that survives a power cut: content of synced files, names in synced directories."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {root.stat().st_ino: {}}
        self._held: list[int] = []  # the inode number of an open file is not reused

    def sync(self, descriptor: int) -> None:
        """Record the content that a call of fsync makes durable."""
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        status = os.fstat(descriptor)
        self._held.append(os.dup(descriptor))
        if stat.S_ISDIR(status.st_mode):
            entries = {entry.name: entry.stat(follow_symlinks=False) for entry in os.scandir(path)}
            self._names[status.st_ino] = {name: found.st_ino for name, found in entries.items()}
            for name, found in entries.items():
                if stat.S_ISDIR(found.st_mode):
                    self._names.setdefault(found.st_ino, {})
                else:
                    self._held.append(os.open(path / name, os.O_RDONLY))
        else:
            self._contents[status.st_ino] = path.read_bytes()

    def write(self, target: Path) -> Path:
        """Write the surviving files to another folder."""
        self._write(self.root.stat().st_ino, target)
        return target

    def close(self) -> None:
        for descriptor in self._held:
            os.close(descriptor)

    def _write(self, inode: int, target: Path) -> None:
        target.mkdir()
        for name, entry in self._names[inode].items():
            if entry in self._names:
                self._write(entry, target / name)
            else:
                (target / name).write_bytes(self._contents.get(entry, b""))


class Machine:
    """Runs writers on a disk, kills them at a step, and cuts the power."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._patch = monkeypatch
        self._count = 0

    def disk(self) -> Disk:
        """Replace the disk by an empty one."""
        self._count += 1
        root = self._folder / f"disk-{self._count}"
        root.mkdir()
        return Disk(root)

    def run(self, disk: Disk, act: Callable[[Path], object], steps: int | None = None) -> int:
        """Run a writer, or end it before its step number `steps`; return the number of its steps."""
        taken = 0

        def step(_: str) -> None:
            nonlocal taken
            if taken == steps:
                raise Killed
            taken += 1

        with self._patch.context() as patch:
            real = os.fsync

            def fsync(descriptor: int) -> None:
                real(descriptor)
                disk.sync(descriptor)

            patch.setattr(os, "fsync", fsync)
            hook(patch, step)
            try:
                act(disk.root / "memories" / "mine")
            except Killed:
                assert steps is not None
        return taken

    def cut(self, disk: Disk) -> Path:
        """Return the folder after a power cut."""
        self._count += 1
        return disk.write(self._folder / f"left-{self._count}") / "memories" / "mine"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    return Machine(tmp_path, monkeypatch)


def add(number: int) -> Callable[[Path], Memory]:
    """Create the memory if it is missing and add a pair, as `MemoryWriter` does."""

    def act(path: Path) -> Memory:
        if not Memory.exists(path):
            Memory.create(path, IDENTITY, created=MOMENT)
        return record(path, one(number))

    return act


def targets(path: Path) -> set[str]:
    memory = Memory.open(path)
    assert memory.verify() == []
    return {row[1] for row in pairs_of(memory).values()}


def texts(*numbers: int) -> set[str]:
    return {one(number).targets[0] for number in numbers}


def check_every_kill(
    machine: Machine, before: list[Callable[[Path], object]], killed: Callable[[Path], object], kept: set[str]
) -> int:
    """Kill a writer at each step, add a pair with the next writer, and cut the power; return the number of kills."""
    count = 0
    while True:
        disk = machine.disk()
        for act in before:
            machine.run(disk, act)
        taken = machine.run(disk, killed, count)
        left = machine.cut(disk)
        if kept:
            assert targets(left) >= kept
        elif Memory.exists(left):
            targets(left)
        machine.run(disk, add(8))
        found = targets(machine.cut(disk))
        disk.close()
        assert found >= texts(8) | kept, f"killed before step {count}"
        if taken < count:
            return count
        count += 1


def test_acknowledged_pair_survives_after_a_killed_add(machine: Machine) -> None:
    assert check_every_kill(machine, [], add(7), set()) > 12


def test_acknowledged_pairs_survive_a_killed_second_add(machine: Machine) -> None:
    assert check_every_kill(machine, [add(7)], add(9), texts(7)) >= 4


def seal(path: Path) -> None:
    Memory.open(path).sealed()


def keep(path: Path) -> None:
    with Memory.open(path).edit() as edit:
        edit.keep_snapshot("unpruned")
        edit.keep_entries(np.arange(edit.memory.entries) % 2 == 0)
        edit.commit()


@pytest.mark.slow
@pytest.mark.parametrize("stage", [seal, keep])
def test_acknowledged_pairs_survive_a_killed_stage(machine: Machine, stage: Callable[[Path], None]) -> None:
    assert check_every_kill(machine, [add(7)], stage, texts(7)) > 12
