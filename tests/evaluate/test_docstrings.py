"""The examples in the docstrings of the evaluation run and give what they show."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["bench.benchmark", "bench.growth", "bootstrap", "evaluation", "machine"])
def test_the_examples_of_a_module(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"ibidem.evaluate.{name}"))
    assert found.attempted > 0
    assert found.failed == 0
