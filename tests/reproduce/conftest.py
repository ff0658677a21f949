"""Plans, results and settings for the tests of tables and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Results
    from ibidem.reproduce.workspace import RunSettings


@pytest.fixture
def plan() -> Plan:
    """The plan of full runs with two seeds."""
    from dataclasses import replace

    from ibidem.reproduce.plan import full_plan

    return replace(full_plan(None), seeds=(1, 2))


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """An empty results folder."""
    from ibidem.reproduce.results import Results

    return Results(tmp_path / "results")


@pytest.fixture(scope="session")
def own_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder of our own sentences."""
    from ibidem.reproduce.data import write_own_data

    return write_own_data(tmp_path_factory.mktemp("own")).folder


@pytest.fixture
def setting(tmp_path: Path, own_data: Path, tiny_folder: Path) -> RunSettings:
    """The setting of a quick run with the tiny model on a CPU."""
    from ibidem.reproduce.workspace import RunSettings

    return RunSettings(own_data, tmp_path / "work", tmp_path / "results", str(tiny_folder), "cpu", smoke=True)
