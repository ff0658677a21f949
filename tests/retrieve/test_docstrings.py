"""The examples in the docstrings of retrieval run and give what they show."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["builder", "exact", "index", "index_settings", "keys", "memory_index", "recall"])
def test_the_examples_of_a_module(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"ibidem.retrieve.{name}"))
    assert found.attempted > 0
    assert found.failed == 0
