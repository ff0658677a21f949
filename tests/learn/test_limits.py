"""Stages that do not fit are refused before they begin, and large arrays are mapped."""

from __future__ import annotations

import shutil
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ibidem.errors import UsageError
from ibidem.learn import (
    ClusterSettings,
    PruneSettings,
    build_neighbour_graph,
    cluster_memory,
    index_memory,
    limits,
    prune_memory,
    tune,
    tuning,
)
from ibidem.learn.prune import neighbour_graph
from ibidem.learn.prune.allocation import allocate_exactly
from ibidem.memory import Memory, columns

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.model import BaseModel


@pytest.fixture
def memory(learnt: Memory, tmp_path: Path) -> Memory:
    return Memory.open(shutil.copytree(learnt.path, tmp_path / "memory"))


def test_a_stage_that_exceeds_the_ram_is_refused(
    memory: Memory, tiny: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "total_ram", lambda: 10 * memory.entries)
    before = memory.generation
    for stage in (
        lambda: cluster_memory(memory, ClusterSettings()),
        lambda: prune_memory(memory, PruneSettings()),
        lambda: prune_memory(memory, PruneSettings(groups="consistent")),
        lambda: tune(memory, tiny, again=True),
        lambda: index_memory(memory, "auto"),
    ):
        with pytest.raises(UsageError, match=rf"has {memory.entries:,} entries, .* in RAM"):
            stage()
    assert Memory.open(memory.path).generation == before
    index_memory(memory, "exact")
    monkeypatch.setattr(limits, "total_ram", lambda: None)
    prune_memory(memory, PruneSettings())


def test_the_paper_s_largest_memory_fits_into_24_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "total_ram", lambda: 24 << 30)
    for stage in limits.STAGE_BYTES:
        limits.check_room(stage, 154_000_000, "memory")
    with pytest.raises(UsageError, match=r"prune consistent .* 40 GB, and this machine has 26 GB"):
        limits.check_room("prune consistent", 400_000_000, "memory")


def test_numbers_beyond_their_types_are_refused(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    limits.check_count("entries", 5, 5, "learn less")
    with pytest.raises(UsageError, match=r"6 entries are more than 5, .*: learn less"):
        limits.check_count("entries", 6, 5, "learn less")
    monkeypatch.setattr("ibidem.learn.maintenance.LARGEST_NATIVE_INDEX", memory.entries - 1)
    with pytest.raises(UsageError, match="entries of an index are more than"):
        index_memory(memory, "auto")
    monkeypatch.setattr("ibidem.learn.prune.pruning.LARGEST_INT32", memory.entries - 1)
    with pytest.raises(UsageError, match="int32"):
        prune_memory(memory, PruneSettings(groups="consistent"))
    monkeypatch.setattr(columns, "_MOST_PAIRS", memory.pairs - 1)
    with pytest.raises(UsageError, match="the most that one memory can number"):
        Memory.open(memory.path).sentence_of_entries()


def test_allocation_beyond_three_thousand_million_is_refused() -> None:
    sizes = np.full(4, 700_000_000)
    assert allocate_exactly(sizes, Fraction(9, 10)).sum() == 2_520_000_000
    with pytest.raises(UsageError, match="prune smaller memories"):
        allocate_exactly(np.full(4, 900_000_000), Fraction(9, 10))


def test_a_mapped_graph_is_the_resident_one(learnt: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cpu")
    resident = build_neighbour_graph(learnt, 4, device=device, scratch=tmp_path)
    monkeypatch.setattr(neighbour_graph, "RESIDENT_BYTES", 0)
    mapped = build_neighbour_graph(learnt, 4, device=device, scratch=tmp_path)
    assert isinstance(mapped.entries, np.memmap)
    assert not isinstance(resident.entries, np.memmap)
    np.testing.assert_array_equal(mapped.entries, resident.entries)
    np.testing.assert_array_equal(mapped.distances, resident.distances)
    assert not list(tmp_path.iterdir())


@given(st.lists(st.integers(-3, 3)))
def test_numbers_that_occur_once(numbers: list[int]) -> None:
    counts = Counter(numbers)
    expected = [counts[number] == 1 for number in numbers]
    assert tuning._occurs_once(np.array(numbers, np.int64)).tolist() == expected
