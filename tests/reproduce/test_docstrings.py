"""The examples in the docstrings of the reproduction run and give what they show."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "name",
    [
        "ibidem.reproduce",
        "ibidem.reproduce.data",
        "ibidem.reproduce.grid",
        "ibidem.reproduce.plan",
        "ibidem.reproduce.report",
        "ibidem.reproduce.results",
        "ibidem.reproduce.rows.translation",
        "ibidem.reproduce.tables.pruning",
        "ibidem.reproduce.tables.speed",
        "ibidem.reproduce.workspace",
    ],
)
def test_the_examples_of_a_module(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0
    assert found.failed == 0
