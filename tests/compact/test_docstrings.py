"""The examples in the docstrings of the compactors run and give what they show."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["compactors", "storage"])
def test_examples_of_a_module(name: str) -> None:
    module = importlib.import_module(f"ibidem.compact.{name}")
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0
