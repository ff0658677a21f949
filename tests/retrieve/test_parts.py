"""A divided index finds what the whole one finds, whatever is hidden, removed or added, and its plan is checked."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.errors import UsageError
from ibidem.learn import index_memory
from ibidem.memory import Memory, remove_pairs, verify_folder
from ibidem.native import native
from ibidem.retrieve import (
    ArrayKeys,
    ExactIndex,
    IndexPlan,
    LoadedPart,
    LocalParts,
    NativeIndex,
    PartedIndex,
    PartPlan,
    build_index,
    divide,
    load_part,
    measure_recall,
    open_base_index,
    open_index,
    plan_digest,
    read_plan,
)
from ibidem.retrieve.memory_index import hide, join

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ibidem.retrieve import Found, Hidden, Rows

CPU = torch.device("cpu")


def parted(keys: np.ndarray, parts: int, setting: str = "exact", gone: np.ndarray | None = None) -> PartedIndex:
    """Build an index of these keys in parts; the parts of a memory lack the keys that are gone."""
    ranges = divide(len(keys), parts)
    lost = np.empty(0, np.int64) if gone is None else gone
    loaded = []
    for first, last in ranges:
        own = lost[(lost >= first) & (lost < last)] - first
        index = build_index(ArrayKeys(np.delete(keys[first:last], own, axis=0)), setting, seed=1, threads=1)
        assert isinstance(index, ExactIndex | NativeIndex)
        kind = "native" if isinstance(index, NativeIndex) else "exact"
        loaded.append(LoadedPart(index, PartPlan(first, last, kind), own))
    plan = IndexPlan(keys.shape[1], 0, "", tuple(part.plan for part in loaded))
    return PartedIndex(plan, LocalParts(loaded), lost)


class SomeParts(LocalParts):
    """Parts of which one does not answer."""

    def __init__(self, parts: LocalParts, absent: int) -> None:
        super().__init__(parts._parts)
        self._absent = absent

    def search(self, rows: Rows, hidden: Sequence[Hidden]) -> Sequence[Found | None]:
        found = list(super().search(rows, hidden))
        found[self._absent] = None
        return found


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 9),
    size=st.integers(1, 130),
    parts=st.integers(1, 7),
    k=st.integers(1, 40),
    hidden=st.floats(0, 1),
    removed=st.floats(0, 0.9),
)
def test_exact_parts_equal_the_whole_bit_for_bit(
    seed: int, size: int, parts: int, k: int, hidden: float, removed: float
) -> None:
    """Equal keys, keys that are gone and hidden keys included."""
    random = np.random.default_rng(seed)
    keys = random.standard_normal((size, 4)).astype(np.float16)
    keys[size // 2 :] = keys[: size - size // 2]  # equal keys in different parts
    gone = np.flatnonzero(random.random(size) < removed)[: size - parts]
    left = np.delete(keys, gone, axis=0)
    blocked = np.flatnonzero(random.random(len(left)) < hidden)
    queries = torch.from_numpy(random.standard_normal((7, 4)).astype(np.float32))
    queries[-1] = torch.nan
    divided = parted(keys, min(parts, size), gone=gone)
    whole = ExactIndex(ArrayKeys(left))
    assert divided.size == whole.size
    for mine, other in ((divided, whole), (hide(divided, blocked), hide(whole, blocked))):
        found, expected = mine.search(queries, k), other.search(queries, k)
        assert torch.equal(found.distances, expected.distances)
        assert torch.equal(found.entries, expected.entries)


def test_distances_that_differ_only_in_float64_keep_their_order() -> None:
    """Rounded to float32, both are as near; the second key is the nearer one."""
    keys = np.array([[1 + 2**-20, 0], [9, 9], [1 + 2**-21, 0], [9, 9]], np.float32)
    query = torch.tensor([[-1e3, 0.0]])
    whole = ExactIndex(ArrayKeys(keys)).search(query, 2)
    assert whole.entries.tolist() == [[2, 0]]
    assert float(whole.distances[0, 0]) == float(whole.distances[0, 1])
    assert parted(keys, 2).search(query, 2).entries.tolist() == [[2, 0]]


@pytest.mark.skipif(native() is None, reason="no native library")
@pytest.mark.parametrize("parts", [2, 4])
def test_native_parts_have_the_recall_of_the_whole(clustered: ArrayKeys, parts: int) -> None:
    keys = clustered.gather(np.arange(clustered.size))
    setting = "native"
    whole = measure_recall(build_index(clustered, setting, seed=1, threads=1), clustered, seed=3)
    assert measure_recall(parted(keys, parts, setting), clustered, seed=3) >= whole


@pytest.mark.skipif(native() is None, reason="no native library")
def test_native_parts_find_nothing_hidden_or_gone(small: np.ndarray) -> None:
    gone, hidden = np.arange(0, 900, 5), np.arange(0, 720, 3)
    built = parted(small, 3, "native")
    queries = torch.from_numpy(small[:60].astype(np.float32))
    found = PartedIndex(built.plan, built.searcher, gone).without(hidden).search(queries, 8)
    assert not np.isin(found.entries, hidden).any()
    left = np.delete(small, gone, axis=0)
    true = torch.from_numpy(left[found.entries.numpy()].astype(np.float32)) - queries[:, None]
    torch.testing.assert_close(true.square().sum(2), found.distances, rtol=1e-3, atol=1e-3)


def test_a_part_that_does_not_answer_is_left_out(small: np.ndarray) -> None:
    whole = parted(small, 3)
    assert isinstance(whole.searcher, LocalParts)
    partial = PartedIndex(whole.plan, SomeParts(whole.searcher, 1))
    queries = torch.from_numpy(small[:40].astype(np.float32))
    found = partial.search(queries, 8).entries
    assert not ((found >= 300) & (found < 600)).any()
    without = np.delete(small, np.arange(300, 600), axis=0)
    expected = ExactIndex(ArrayKeys(without)).search(queries, 8).entries
    assert torch.equal(found, torch.where(expected >= 300, expected + 300, expected))


def test_without_any_answer_nothing_is_found(small: np.ndarray) -> None:
    whole = parted(small, 1)
    assert isinstance(whole.searcher, LocalParts)
    found = PartedIndex(whole.plan, SomeParts(whole.searcher, 0)).search(torch.zeros(2, 16), 3)
    assert (found.entries == -1).all()
    assert (found.distances == torch.inf).all()


@pytest.mark.parametrize("parts", [0, 5, 2000])
def test_entries_are_not_divided_into_empty_parts(parts: int) -> None:
    with pytest.raises(UsageError, match="shards"):
        divide(4, parts)


# a memory


@pytest.fixture
def memory(tmp_path: Path, learnt: Memory) -> Memory:
    return Memory.open(shutil.copytree(learnt.path, tmp_path / "memory"))


def sharded(memory: Memory, setting: str = "exact", shards: int = 3) -> Memory:
    return index_memory(memory, setting, shards=shards, threads=1)[0]


def queries_of(memory: Memory, count: int = 50) -> torch.Tensor:
    keys = memory.search_keys.gather(np.arange(0, memory.entries, max(1, memory.entries // count)))
    return torch.from_numpy(keys.astype(np.float32)) + 0.01


def test_a_stored_plan_is_the_index_of_the_memory(memory: Memory) -> None:
    divided = sharded(memory)
    base = open_base_index(divided, None, CPU)
    assert isinstance(base.index, PartedIndex)
    assert base.covered == divided.entries
    expected = ExactIndex(divided.search_keys).search(queries_of(divided), 8)
    found = base.index.search(queries_of(divided), 8)
    assert torch.equal(found.entries, expected.entries)
    assert torch.equal(found.distances, expected.distances)


@pytest.mark.skipif(native() is None, reason="no native library")
def test_native_parts_are_stored_and_read_alone(memory: Memory) -> None:
    divided = sharded(memory, "native", 2)
    assert sorted(name for name in divided.manifest.artefacts if name.startswith("index")) == [
        "index_part_1",
        "index_part_2",
        "index_plan",
    ]
    assert verify_folder(divided.path)[1] == []
    plan = read_plan(divided)
    assert plan is not None
    second = load_part(divided, plan, 2, threads=1)
    assert second.index.size == plan.parts[1].size
    with pytest.raises(UsageError, match="parts 1 to 2"):
        load_part(divided, plan, 3)
    with pytest.raises(UsageError, match="parts 1 to 2"):
        load_part(divided, plan, 0)


def test_sealed_removals_shift_the_entries_of_a_plan(memory: Memory) -> None:
    """A part that is loaded before or after the removal answers with the same numbers."""
    divided = sharded(memory)
    plan = read_plan(divided)
    assert plan is not None
    before = LocalParts([load_part(divided, plan, number) for number in (1, 2, 3)])
    remove_pairs(divided, ids=[0, 3, divided.pairs // 2, divided.pairs - 1])
    sealed = divided.refresh().sealed()
    assert sealed.entries < divided.entries
    base = open_base_index(sealed, None, CPU)
    assert isinstance(base.index, PartedIndex)
    queries = queries_of(divided)
    expected = ExactIndex(sealed.search_keys).search(queries, 8)
    for searcher in (base.index.searcher, before):
        index = PartedIndex(base.index.plan, searcher, base.index._gone)
        found = join(type(base)(index, base.covered, base.removals).parts(sealed, np.empty(0, np.int64), CPU), 0, 0)
        assert isinstance(found, PartedIndex)
        got = found.search(queries, 8)
        assert torch.equal(got.entries, expected.entries)
        assert torch.equal(got.distances, expected.distances)


def test_one_index_replaces_the_parts(memory: Memory) -> None:
    divided = sharded(memory)
    assert plan_digest(divided)
    whole = index_memory(divided, "exact", threads=1)[0]
    assert plan_digest(whole) is None
    assert not any(name.startswith("index") for name in whole.manifest.artefacts)
    assert "shards" not in whole.manifest.stages["index"]


def test_the_digest_of_a_plan_depends_on_its_entries(memory: Memory, tmp_path: Path) -> None:
    copy = Memory.open(shutil.copytree(memory.path, tmp_path / "copy"))
    first = plan_digest(sharded(memory))
    assert plan_digest(sharded(copy)) == first
    assert plan_digest(sharded(copy, shards=2)) != first
    remove_pairs(copy, ids=[0])
    assert plan_digest(sharded(copy.refresh())) != first


def test_faiss_indexes_are_not_divided(memory: Memory) -> None:
    with pytest.raises(UsageError, match="auto, native or exact"):
        sharded(memory, "IVF4,Flat;nprobe=4")


def test_a_damaged_part_is_found_and_not_used(memory: Memory) -> None:
    divided = sharded(memory, "native" if native() is not None else "exact", 2)
    file = next(file for file in (divided.path / "artefacts").iterdir() if file.name.startswith("index_"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert [damage.file for damage in verify_folder(divided.path)[1]] == [f"artefacts/{file.name}"]
    reopened = Memory.open(divided.path)
    with pytest.warns(UserWarning, match="ibidem index"):
        index = open_index(reopened, None, CPU)
    assert index.size == divided.entries
