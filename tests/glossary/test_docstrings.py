"""The examples in the docstrings of glossary run as they are shown."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest


@pytest.mark.parametrize("name", ["formats", "glossary", "inflection", "matcher"])
def test_the_examples_run(name: str) -> None:
    found = doctest.testmod(import_module(f"ibidem.glossary.{name}"))
    assert found.attempted > 0
    assert found.failed == 0
