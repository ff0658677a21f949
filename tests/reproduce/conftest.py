"""Plans and results for the tables' tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Results


@pytest.fixture
def plan() -> Plan:
    """The real thing with two seeds."""
    from dataclasses import replace

    from ibidem.reproduce.plan import full_plan

    return replace(full_plan(None), seeds=(1, 2))


@pytest.fixture
def results(tmp_path: Path) -> Results:
    from ibidem.reproduce.results import Results

    return Results(tmp_path / "results")
