"""The examples in the docstrings of decode, combine and compact run as they are shown."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest


@pytest.mark.parametrize(
    "name",
    [
        "combine.combiners",
        "combine.mixture",
        "compact.compactors",
        "decode.beam_search",
        "decode.explain",
        "decode.loaded_memory",
        "decode.logits_processor",
        "decode.scorer",
        "decode.text_splitter",
        "decode.translator",
    ],
)
def test_the_examples_run(name: str) -> None:
    found = doctest.testmod(import_module(f"ibidem.{name}"))
    assert found.attempted > 0
    assert found.failed == 0
