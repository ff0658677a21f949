"""Moving a memory: in one step, never over another folder, never under a writer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ibidem.errors import LockedMemoryError, MemoryFolderError
from ibidem.memory import Memory, move_folder, writer_lock
from ibidem.memory.lock import HOLDER

from .samples import IDENTITY


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Memory.create(tmp_path / "one", IDENTITY).path


def test_a_moved_memory_is_whole(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "er" / "two"
    move_folder(folder, target)
    assert not folder.exists()
    assert Memory.open(target).verify() == []
    assert not (target / HOLDER).exists()
    with writer_lock(target):
        pass


def test_both_names_are_durable(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut the memory has its new name, and the old one is gone."""
    target = tmp_path / "deep" / "two"
    synced: list[Path] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if target.exists():
            synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    move_folder(folder, target)
    assert {folder.parent, target.parent} <= {*synced}


def test_nothing_is_replaced(folder: Path, tmp_path: Path) -> None:
    for target in (tmp_path / "file", tmp_path / "folder"):
        target.write_text("") if target.name == "file" else target.mkdir()
        with pytest.raises(MemoryFolderError, match="exists already"):
            move_folder(folder, target)
    assert Memory.open(folder).verify() == []


def test_a_writer_is_waited_for(folder: Path, tmp_path: Path) -> None:
    with writer_lock(folder), pytest.raises(LockedMemoryError):
        move_folder(folder, tmp_path / "two")
    move_folder(folder, tmp_path / "two")


def test_a_missing_memory(tmp_path: Path) -> None:
    with pytest.raises(MemoryFolderError, match="no memory"):
        move_folder(tmp_path / "none", tmp_path / "two")
