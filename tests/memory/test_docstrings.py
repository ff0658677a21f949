"""The examples in the docstrings of the memory run and give what they show."""

from __future__ import annotations

import doctest
import importlib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["artefacts", "memory", "pairs"])
def test_examples_of_a_module(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples of a class come first; those of its methods continue them."""
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(f"ibidem.memory.{name}")
    examples = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    assert examples
    runner = doctest.DocTestRunner()
    names = vars(module).copy()
    for test in sorted(examples, key=lambda test: test.name):
        test.globs = names
        runner.run(test, clear_globs=False)
    assert runner.failures == 0
