"""The examples in the docstrings of the model run and give what they show."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["model.base", "model.decoding", "model.loading", "model.tokens", "wording"])
def test_examples_of_a_module(name: str) -> None:
    """The examples of a class come first; those of its methods continue them."""
    module = importlib.import_module(f"ibidem.{name}")
    examples = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    assert examples
    runner = doctest.DocTestRunner()
    names = vars(module).copy()
    for test in sorted(examples, key=lambda test: test.name):
        test.globs = names
        runner.run(test, clear_globs=False)
    assert runner.failures == 0
