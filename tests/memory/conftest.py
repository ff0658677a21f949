"""Fixtures: an empty memory, and one with three records in its journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ibidem.memory import Memory

from .samples import IDENTITY, MOMENT, Case, files_of, one, record

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def case(tmp_path: Path) -> Case:
    path = tmp_path / "memory"
    Memory.create(path, IDENTITY, created=MOMENT)
    states, places = [files_of(path)], [0]
    for number, removed in ((7, ()), (8, (0,)), (9, ())):
        memory = record(path, one(number), removed)
        states.append(files_of(path))
        places.append(memory.tail.journals[-1].end)
    return Case(path, states, places)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An empty memory."""
    folder = tmp_path / "memory"
    Memory.create(folder, IDENTITY, seed=7, created=MOMENT)
    return folder
