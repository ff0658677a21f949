"""Indexes built from a setting, and what replaces an index that finds too little."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from ibidem.retrieve import ArrayKeys, ExactIndex, ListIndex, ScanIndex, build_index, builder
from ibidem.retrieve.builder import exact_index, int8_index, list_index
from ibidem.retrieve.index_settings import ListSettings

from .samples import draw_skewed

PROGRAM = """
import sys
sys.modules["faiss"] = None
import numpy, torch
from ibidem.retrieve import ArrayKeys, build_index
index = build_index(ArrayKeys(numpy.eye(4, dtype=numpy.float16)), "auto", seed=0)
print(index.search(torch.eye(4), 1).entries.flatten().tolist())
"""


def test_import_and_exact_search_without_faiss() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[0, 1, 2, 3]", done.stderr


def test_exact_search_on_the_cpu_has_an_error_bound() -> None:
    assert isinstance(exact_index(ArrayKeys(np.ones((3, 4), np.float16)), "cpu"), ExactIndex)


def test_int8_codes_with_low_recall_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ArrayKeys(draw_skewed(3000, 16))
    coded = int8_index(keys, torch.device("cpu"), seed=0)
    assert isinstance(coded, ScanIndex)
    assert "int8" in coded.description
    monkeypatch.setattr(builder, "INT8_RECALL", 1.1)
    with pytest.warns(UserWarning, match=r"below 1\.1"):
        plain = int8_index(keys, torch.device("cpu"), seed=0)
    assert "int8" not in plain.description


@pytest.mark.parametrize("setting", ["int8", "lists;nprobe=3"])
def test_gpu_settings_are_exact_on_a_cpu(setting: str) -> None:
    with pytest.warns(UserWarning, match="for a GPU"):
        index = build_index(ArrayKeys(np.ones((3, 4), np.float16)), setting, seed=0)
    assert isinstance(index, ExactIndex)


def test_nprobe_is_raised_until_recall_reaches_the_target() -> None:
    keys = ArrayKeys(draw_skewed(6000, 32))
    index = list_index(keys, ListSettings(64), torch.device("cpu"), seed=0)
    assert isinstance(index, ListIndex)
    assert index.recall is not None
    assert index.recall >= 0.99
    assert index.nprobe < index.lists
    given = list_index(keys, ListSettings(64, 2), torch.device("cpu"), seed=0)
    assert isinstance(given, ListIndex)
    assert given.nprobe == 2
    assert f"recall@16 {given.recall:.3f}" in given.description


def test_keys_without_clusters_are_searched_exactly() -> None:
    keys = np.random.default_rng(0).standard_normal((3000, 64)).astype(np.float16)
    with pytest.warns(UserWarning, match="the search is exact"):
        assert isinstance(list_index(ArrayKeys(keys), ListSettings(64), torch.device("cpu"), seed=0), ScanIndex)
