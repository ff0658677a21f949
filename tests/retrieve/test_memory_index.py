"""The index with which a memory is opened: hidden entries are never found, and parts are searched as one index."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import faiss
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.errors import UsageError
from ibidem.learn import index_memory
from ibidem.memory import Memory, remove_pairs
from ibidem.native import native
from ibidem.retrieve import (
    ArrayKeys,
    ExactIndex,
    FaissIndex,
    NativeIndex,
    build_index,
    exact_part,
    memory_index,
    open_index,
)
from ibidem.retrieve.memory_index import CompositeIndex, FilteredIndex, hide, main_part

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.retrieve import Index

SETTINGS = [
    "Flat",
    "SQ8",
    "PQ8",
    "PQ8x4fs",
    "IVF32,Flat;nprobe=32",
    "IVF32,SQfp16;nprobe=32",
    "IVF32,PQ8;nprobe=32",
    "IVF32,PQ8x4fs;nprobe=32",
    "IVF16_HNSW8,SQ8;nprobe=16;ef_search=32",
    "HNSW16;ef_search=200",
    "PCA16,IVF32,SQ8;nprobe=32",
    "IVF32,PQ8,Refine(SQfp16);nprobe=32;k_factor=8",
]
CPU = torch.device("cpu")


class WithoutHiding:
    """An index that cannot hide entries."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self.size, self.dimension, self.description = index.size, index.dimension, index.description
        self.search = index.search
        self.supports_cuda_graph = False


def brute_force(keys: np.ndarray, queries: torch.Tensor, k: int, hidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    distances = np.square(queries.double().numpy()[:, None] - keys.astype(np.float64)[None]).sum(axis=2)
    distances[:, hidden] = np.inf
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    found = np.take_along_axis(distances, order, axis=1)
    return found, np.where(np.isinf(found), -1, order)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 3), st.integers(1, 40), st.floats(0, 1))
def test_hidden_entries_are_never_found(seed: int, k: int, share: float) -> None:
    """Both ways of hiding equal brute force over the remaining keys."""
    random = np.random.default_rng(seed)
    keys = random.standard_normal((150, 4)).astype(np.float16)
    keys[100:] = keys[:50]  # duplicates, some of them hidden
    hidden = np.flatnonzero(random.random(150) < share)
    queries = torch.from_numpy(random.standard_normal((9, 4)).astype(np.float32))
    queries[-1] = torch.nan
    expected = brute_force(keys, queries[:-1], k, hidden)
    index = ExactIndex(ArrayKeys(keys))
    for hiding in (hide(index, hidden), hide(WithoutHiding(index), hidden)):
        found = hiding.search(queries, k)
        np.testing.assert_allclose(found.distances[:-1, : expected[0].shape[1]], expected[0], rtol=1e-6)
        np.testing.assert_array_equal(found.entries[:-1, : expected[1].shape[1]], expected[1])
        assert (found.entries[-1] == -1).all()
    before = index.search(queries, 1).entries[:-1]
    np.testing.assert_array_equal(before, brute_force(keys, queries[:-1], 1, np.empty(0, int))[1])


def test_hiding_nothing_returns_the_index(small: np.ndarray) -> None:
    index = ExactIndex(ArrayKeys(small))
    assert hide(index, np.empty(0, np.int64)) is index


def test_keys_read_in_blocks_are_hidden_too(small: np.ndarray) -> None:
    index = ExactIndex(ArrayKeys(small), resident_bytes=0, block_rows=128)
    hidden = np.arange(0, 900, 3)
    queries = torch.from_numpy(small[:30].astype(np.float32))
    np.testing.assert_array_equal(
        hide(index, hidden).search(queries, 5).entries, brute_force(small, queries, 5, hidden)[1]
    )


@pytest.mark.parametrize("setting", SETTINGS)
def test_faiss_finds_no_hidden_entry(small: np.ndarray, setting: str) -> None:
    index = build_index(ArrayKeys(small), setting, seed=1, threads=1)
    hidden = np.arange(0, 900, 2)
    queries = torch.from_numpy(small[:60].astype(np.float32))
    hiding = hide(index, hidden)
    assert isinstance(hiding, FilteredIndex) == (setting in ("PQ8", "PQ8x4fs"))
    found = hiding.search(queries, 8)
    assert not np.isin(found.entries, hidden).any()
    assert (found.entries >= 0).all()
    assert (found.distances.diff(dim=1) >= 0).all()
    wide = hide(WithoutHiding(index), hidden).search(queries, 8)
    assert float((found.distances <= wide.distances * 1.05 + 1e-3).float().mean()) > 0.9
    assert (index.search(queries, 8).entries % 2 == 0).any()


@pytest.mark.parametrize("setting", SETTINGS)
def test_an_exact_part_has_the_distances_of_the_index(small: np.ndarray, setting: str) -> None:
    """The oracle has the same keys added to the index itself."""
    index = build_index(ArrayKeys(small[:800]), setting, seed=1, threads=1)
    assert isinstance(index, FaissIndex)
    queries = torch.from_numpy(small[::30].astype(np.float32)) + 0.05
    tail = exact_part(small[800:], 800, np.empty(0, np.int64), index, "cpu")
    outside = tail.search(queries, 100)
    grown = faiss.clone_index(index.index)
    grown.add(np.ascontiguousarray(small[800:], np.float32))
    inside = FaissIndex(grown, index.settings).search(queries, 900)
    compared = 0
    for row in range(len(queries)):
        far = dict(zip(inside.entries[row].tolist(), inside.distances[row].tolist(), strict=True))
        for entry, distance in zip(outside.entries[row].tolist(), outside.distances[row].tolist(), strict=True):
            if entry in far:  # an index with codes of 4 bits rounds its sums
                assert distance == pytest.approx(far[entry], rel=1e-3, abs=0.3 if "fs" in setting else 1e-3)
                compared += 1
    assert compared > 1000


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 5), st.integers(1, 30), st.integers(1, 100), st.floats(0, 0.9), st.floats(0, 0.9))
def test_joined_parts_equal_one_index_of_the_remaining_keys(
    seed: int, k: int, border: int, gone: float, hidden: float
) -> None:
    """Some keys of the main part are gone, some are hidden, and newer keys follow."""
    random = np.random.default_rng(seed)
    keys = random.standard_normal((120, 4)).astype(np.float16)
    lost = np.flatnonzero(random.random(border) < gone)
    left = np.delete(keys, lost, axis=0)
    first = border - len(lost)
    struck = np.flatnonzero(random.random(len(left)) < hidden)
    queries = torch.from_numpy(random.standard_normal((7, 4)).astype(np.float32))
    main = ExactIndex(ArrayKeys(keys[:border]))
    serials = np.delete(np.arange(border), lost)[struck[struck < first]]
    joined = CompositeIndex(
        [
            main_part(main, lost, serials),
            exact_part(keys[border:], first, struck[struck >= first] - first, main, "cpu"),
        ],
        len(left),
        4,
    )
    expected = brute_force(left, queries, k, struck)
    found = joined.search(queries, k)
    np.testing.assert_allclose(found.distances[:, : expected[0].shape[1]], expected[0], rtol=1e-6)
    np.testing.assert_array_equal(found.entries[:, : expected[1].shape[1]], expected[1])
    assert "exact" in joined.description


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


@pytest.mark.skipif(native() is None, reason="no native library here")
def test_a_native_index_is_loaded_after_pairs_were_removed_and_sealed(memory: Memory) -> None:
    """The index finds the remaining entries under their new numbers, by the keys in the new segments."""
    indexed, _ = index_memory(memory, "native;nprobe=1000000;prune_ratio=1000000;rerank=4000")
    ids = [pair.id for pair in indexed.sentences()]
    remove_pairs(indexed, ids=ids[::3])
    sealed = indexed.sealed()
    assert sealed.entries < indexed.entries
    base = memory_index.open_base_index(sealed, None, CPU)
    assert isinstance(base.index, NativeIndex)
    assert base.index.size == base.covered == sealed.entries
    assert not len(base.gone(sealed))
    queries = torch.from_numpy(sealed.search_keys.gather(np.arange(0, sealed.entries, 97)).astype(np.float32)) + 0.01
    found, true = (index.search(queries, 4) for index in (base.index, ExactIndex(sealed.search_keys)))
    torch.testing.assert_close(found.distances, true.distances, rtol=1e-4, atol=1e-5)
    more = remove_pairs(sealed, ids=[pair.id for pair in sealed.sentences()][:5])
    again = sealed.refresh().sealed()
    parts = base.parts(again, np.empty(0, np.int64), CPU)
    joined = memory_index.join(parts, again.entries, again.dimension)
    assert len(more) == 5
    true = ExactIndex(again.search_keys).search(queries, 4)
    torch.testing.assert_close(joined.search(queries, 4).distances, true.distances, rtol=1e-4, atol=1e-5)
