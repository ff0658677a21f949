"""The scan against brute force in float64: in torch on the CPU, by kernels on CUDA."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.retrieve import ArrayKeys, Neighbours, ScanIndex
from ibidem.retrieve.builder import exact_index
from ibidem.retrieve.gpu import scan
from ibidem.retrieve.gpu.scan import pick_nearest

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


def true_distances(keys: np.ndarray, queries: np.ndarray) -> np.ndarray:
    return np.square(queries.astype(np.float64)[:, None] - keys.astype(np.float64)[None]).sum(2)


def assert_nearest(found: Neighbours, keys: np.ndarray, queries: np.ndarray, k: int) -> None:
    """Check that the k nearest are found up to rounding, with true distances and each entry once."""
    true = true_distances(keys, queries)
    width = min(k, len(keys))
    entries, distances = found.entries.cpu().numpy(), found.distances.cpu().numpy()
    assert entries.shape == distances.shape == (len(queries), k)
    assert (entries[:, width:] == -1).all()
    assert np.isinf(distances[:, width:]).all()
    for row in range(len(queries)):
        mine = entries[row, :width]
        assert len(set(mine.tolist())) == width
        np.testing.assert_allclose(distances[row, :width], true[row, mine], rtol=1e-5, atol=1e-5)
        best = np.sort(true[row])[:width]
        # Rounding a query to float16 moves it by 2^-11 of its length at most.
        slack = 1e-5 + 2**-9 * np.linalg.norm(queries[row]) * np.sqrt(best)
        assert (np.sort(true[row, mine]) <= best + slack).all()


def clustered(generator: np.random.Generator, count: int, dimension: int, offset: float) -> np.ndarray:
    centres = generator.standard_normal((40, dimension)) + offset
    return (centres[generator.integers(40, size=count)] + 0.3 * generator.standard_normal((count, dimension))).astype(
        np.float16
    )


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from([1, 5, 127, 128, 129, 3000]),
    st.sampled_from([3, 16, 64]),
    st.sampled_from([0.0, 2.0]),
    st.sampled_from([1, 8, 40]),
    st.integers(0, 2**32),
)
def test_scan_finds_the_nearest(count: int, dimension: int, offset: float, k: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    keys = clustered(generator, count, dimension, offset)
    queries = clustered(generator, 7, dimension, offset).astype(np.float32) + np.float32(1e-3)
    assert_nearest(ScanIndex(ArrayKeys(keys), "cpu").search(torch.from_numpy(queries), k), keys, queries, k)


def test_many_queries_are_searched_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(3)
    keys, queries = clustered(generator, 600, 16, 0.0), torch.from_numpy(clustered(generator, 11, 16, 0.0)).float()
    index = ScanIndex(ArrayKeys(keys), "cpu")
    whole = index.search(queries, 4)
    monkeypatch.setattr(scan, "MINIMA", 3 * 5)
    parts = index.search(queries, 4)
    assert torch.equal(whole.entries, parts.entries)
    assert torch.equal(whole.distances, parts.distances)


def test_equal_distances_are_ordered_by_entry() -> None:
    keys = np.zeros((500, 16), np.float16)
    keys[200:] = 1
    found = ScanIndex(ArrayKeys(keys), "cpu").search(torch.ones(1, 16), 8)
    assert found.distances.tolist() == [[0.0] * 8]
    assert found.entries.tolist() == [sorted(found.entries[0].tolist())]
    assert min(found.entries[0].tolist()) >= 200


def test_keys_and_queries_that_are_not_finite() -> None:
    keys = np.ones((300, 16), np.float16)
    keys[::2] = np.nan
    queries = torch.ones(3, 16)
    queries[1] = torch.nan
    queries[2] = 1e30
    found = ScanIndex(ArrayKeys(keys), "cpu").search(queries, 200)
    assert (found.entries[0, :150] % 2 == 1).all()
    assert (found.entries[0, 150:] == -1).all()
    assert (found.entries[1] == -1).all()
    assert torch.isinf(found.distances[1]).all()
    assert not torch.isnan(found.distances).any()


def test_an_empty_index_finds_nothing() -> None:
    index = ScanIndex(ArrayKeys(np.empty((0, 16), np.float16)), "cpu")
    assert index.search(torch.ones(2, 16), 3).entries.tolist() == [[-1] * 3] * 2
    assert index.search(torch.ones(0, 16), 3).entries.shape == (0, 3)


def test_packed_order_equals_sorting_by_distance_and_entry() -> None:
    distances = torch.tensor([[0.5, 0.0, 0.5, torch.inf, 3e38, 1e-40]])
    entries = torch.tensor([[9, 2**32 - 1, 3, 1, 0, 4]])
    near, chosen = pick_nearest(distances, entries, 6)
    assert chosen.tolist() == [[2**32 - 1, 4, 3, 9, 0, -1]]
    assert torch.equal(near, distances.sort(dim=1).values)


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("dimension", [16, 32, 48, 64, 128, 512])
@pytest.mark.parametrize("rows", [1, 20, 70, 321])
def test_kernels_find_the_nearest(dimension: int, rows: int) -> None:
    generator = np.random.default_rng(rows)
    keys = clustered(generator, 9001, dimension, 1.0)
    keys[5::7] = keys[5]
    queries = clustered(generator, rows, dimension, 1.0).astype(np.float32) + np.float32(1e-3)
    index = exact_index(ArrayKeys(keys), "cuda")
    assert isinstance(index, ScanIndex)
    for k in (1, 16):
        assert_nearest(index.search(torch.from_numpy(queries).cuda(), k), keys, queries, k)
    assert index.search(torch.from_numpy(queries), 4).entries.device.type == "cpu"


@pytest.mark.gpu
@needs_cuda
def test_a_search_can_be_captured_in_a_cuda_graph() -> None:
    generator = np.random.default_rng(1)
    keys = clustered(generator, 5000, 64, 0.0)
    index = ScanIndex(ArrayKeys(keys), "cuda")
    queries = torch.zeros(8, 64, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        index.search(queries, 8)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = index.search(queries, 8)
    fresh = clustered(generator, 8, 64, 0.0).astype(np.float32)
    queries.copy_(torch.from_numpy(fresh))
    graph.replay()
    assert_nearest(found, keys, fresh, 8)


@pytest.mark.parametrize("dimension", [16, 64])
def test_int8_codes_find_the_nearest(dimension: int) -> None:
    generator = np.random.default_rng(8)
    keys = clustered(generator, 5000, dimension, 1.0)
    keys[11] = np.nan
    index = ScanIndex(ArrayKeys(keys), "cpu", coded=True)
    queries = torch.from_numpy(clustered(generator, 60, dimension, 1.0)).float()
    assert "int8" in index.description
    assert_nearest(index.search(queries, 8), np.nan_to_num(keys, nan=1e3), queries.numpy(), 8)
    assert torch.equal(index.without_codes().search(queries, 8).entries, index.search(queries, 8).entries)


def test_int8_codes_of_no_keys_and_of_equal_keys() -> None:
    assert ScanIndex(ArrayKeys(np.empty((0, 16), np.float16)), "cpu", coded=True).search(torch.ones(1, 16), 2).entries[
        0
    ].tolist() == [-1, -1]
    keys = np.full((40, 16), 3.0, np.float16)
    found = ScanIndex(ArrayKeys(keys), "cpu", coded=True).search(torch.ones(1, 16), 2)
    assert found.entries.tolist() == [[0, 1]]
    assert found.distances.tolist() == [[64.0, 64.0]]
