"""Sealing the journal and rebuilding the index."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ibidem.learn import MemoryWriter, maintain, maintenance

if TYPE_CHECKING:
    from ibidem.memory import Memory
    from ibidem.model import BaseModel


@pytest.fixture
def memory(tmp_path: Path, learnt: Memory) -> Path:
    """A copy of the learnt memory that may be changed."""
    return Path(shutil.copytree(learnt.path, tmp_path / "memory"))


def test_journals_are_sealed_and_indexes_rebuilt_when_due(
    tiny: BaseModel, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = MemoryWriter(memory, tiny)
    generation = writer.memory.generation
    writer.add_pair("Eins", "One")
    assert writer.maintain().generation == generation  # nothing is due
    monkeypatch.setattr(maintenance, "SEAL_BYTES", 100)
    with writer.memory.writing():
        assert writer.maintain().generation == generation  # another writer holds the lock
    sealed = writer.maintain()
    assert (sealed.generation, bool(sealed.tail)) == (generation + 1, False)
    assert sealed.fitted_entries < sealed.entries
    monkeypatch.setattr(maintenance, "EXACT_BELOW", 2)
    monkeypatch.setattr(maintenance, "MERGE_SHARE", 10**9)
    merged = writer.maintain()
    assert merged.generation == generation + 2
    assert merged.fitted_entries == merged.entries
    assert maintain(merged, tiny.device).generation == generation + 2
    monkeypatch.setattr(maintenance, "SEAL_REMOVED", 0)
    monkeypatch.setattr(maintenance, "SEAL_BYTES", 10**9)
    writer.remove([0])
    assert not writer.maintain().tail
