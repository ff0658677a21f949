"""The examples in the docstrings of the combiners run and give what they show."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["combiners", "mixture", "storage"])
def test_examples_of_a_module(name: str) -> None:
    module = importlib.import_module(f"ibidem.combine.{name}")
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0
