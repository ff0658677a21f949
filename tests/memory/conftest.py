from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ibidem.memory import Memory

from .samples import IDENTITY, MOMENT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An empty memory."""
    folder = tmp_path / "memory"
    Memory.create(folder, IDENTITY, seed=7, created=MOMENT)
    return folder
