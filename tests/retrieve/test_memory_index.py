"""The index with which a memory is opened."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
import torch

from ibidem.errors import UsageError
from ibidem.learn import index_memory
from ibidem.memory import Memory
from ibidem.native import native
from ibidem.retrieve import ExactIndex, FaissIndex, NativeIndex, memory_index, open_index

if TYPE_CHECKING:
    from pathlib import Path

CPU = torch.device("cpu")


@pytest.fixture
def memory(tmp_path: Path, learnt: Memory) -> Memory:
    return Memory.open(shutil.copytree(learnt.path, tmp_path / "memory"))


def test_the_stored_setting_exact_is_kept(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact search is used even where the default for this size is another index."""
    indexed, _ = index_memory(memory, "exact")
    built = []
    monkeypatch.setattr(
        memory_index, "build_index", lambda keys, setting, **_: built.append(setting) or ExactIndex(keys)
    )
    open_index(indexed, None, CPU)
    assert built == ["exact"]


def test_the_stored_index_is_loaded_unless_another_setting_is_given(memory: Memory) -> None:
    indexed, _ = index_memory(memory, "Flat")
    assert isinstance(open_index(indexed, None, CPU), FaissIndex)
    assert isinstance(open_index(indexed, "Flat", CPU), FaissIndex)
    assert isinstance(open_index(indexed, "exact", CPU), ExactIndex)


@pytest.mark.skipif(native() is None, reason="no native library here")
def test_a_native_index_is_loaded_with_and_without_the_library(memory: Memory, request: pytest.FixtureRequest) -> None:
    indexed, built = index_memory(memory, "native")
    opened = open_index(indexed, None, CPU)
    assert isinstance(opened, NativeIndex)
    assert opened.description == built.description == indexed.manifest.stages["index"]["description"]
    queries = torch.randn(4, memory.dimension, generator=torch.Generator().manual_seed(1))
    found = built.search(queries, 8).entries
    assert torch.equal(opened.search(queries, 8).entries, found)
    request.getfixturevalue("no_native")
    with pytest.warns(UserWarning, match=r"without ibidem's native library.*ibidem index"):
        plain = open_index(indexed, None, CPU)
    assert torch.equal(plain.search(queries, 8).entries, found)
    stored = indexed.artefact("index")
    assert stored is not None
    stored.path.write_bytes(stored.path.read_bytes()[:-1])
    with pytest.warns(UserWarning, match=r"cannot be read.*ibidem index"):
        assert isinstance(open_index(indexed, None, CPU), ExactIndex)
    with pytest.raises(UsageError, match="native library"):
        open_index(memory, "native", CPU)
