"""Lists for a GPU: what their plain form finds, and that kernels find the same, on CUDA or by Triton's interpreter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.errors import UsageError
from ibidem.native import has_triton
from ibidem.retrieve import ArrayKeys, ExactSettings, ListIndex, ScanIndex, partition, resolve
from ibidem.retrieve.building import list_index
from ibidem.retrieve.held import TILE
from ibidem.retrieve.settings import ListSettings

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_triton = pytest.mark.skipif(not has_triton(), reason="needs Triton")


def draw(count: int, dimension: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((30, dimension))
    own = np.minimum(generator.geometric(0.1, count), 30) - 1
    return (centres[own] + 0.3 * generator.standard_normal((count, dimension))).astype(np.float16)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 3000), st.integers(1, 40), st.integers(0, 99))
def test_every_key_lies_in_the_list_of_its_centroid(count: int, lists: int, seed: int) -> None:
    keys = torch.from_numpy(draw(count, 4, seed)).float()
    squares = keys.square().sum(1)
    squares[::7] = torch.inf
    found = partition.divide(keys, squares, lists, seed)
    order = found.order
    assert sorted(order[order >= 0].tolist()) == torch.isfinite(squares).nonzero()[:, 0].tolist()
    assert len(order) == TILE * int(found.starts[-1])
    sizes = found.starts[1:] - found.starts[:-1]
    assert all(1 <= size <= found.span for size in sizes.tolist())
    for piece, (start, end) in enumerate(zip(found.starts[:-1].tolist(), found.starts[1:].tolist(), strict=True)):
        own = order[start * TILE : end * TILE]
        mine = keys[own[own >= 0].long()]
        away = torch.cdist(mine.double(), found.centroids.double())
        assert (away[:, piece] <= away.amin(1) + 1e-3).all()


def test_the_same_seed_gives_the_same_lists() -> None:
    keys = torch.from_numpy(draw(2000, 16))
    squares = keys.float().square().sum(1)
    first, second = (partition.divide(keys, squares, 8, 5) for _ in range(2))
    assert torch.equal(first.order, second.order)
    assert torch.equal(first.centroids, second.centroids)


def test_looking_into_all_lists_is_exact() -> None:
    keys = draw(4000, 32)
    keys[17] = np.inf
    index = ListIndex(ArrayKeys(keys), "cpu", lists=20, nprobe=1000, seed=0)
    queries = torch.from_numpy(draw(40, 32, 1)).float()
    queries[3] = torch.nan
    expected = ScanIndex(ArrayKeys(keys), "cpu").search(queries, 8)
    found = index.search(queries, 8)
    assert index.nprobe == index.lists
    assert torch.equal(found.entries, expected.entries)
    torch.testing.assert_close(found.distances, expected.distances)


def test_no_usable_key_is_no_neighbour() -> None:
    index = ListIndex(ArrayKeys(np.full((3, 32), np.nan, np.float16)), "cpu", lists=2, nprobe=2, seed=0)
    found = index.search(torch.ones(2, 32), 3)
    assert found.entries.tolist() == [[-1] * 3] * 2
    assert torch.isinf(found.distances).all()


def test_a_setting_looks_as_far_as_recall_needs() -> None:
    keys = ArrayKeys(draw(6000, 32))
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


def test_settings() -> None:
    assert resolve("lists", 4_300_000, 64, device="cuda") == ListSettings(8_192)
    assert resolve(" lists; nprobe=96 ;lists=512", 1000, 64, device="cuda") == ListSettings(512, 96)
    assert resolve("int8", 1000, 64, device="cuda:1") == ExactSettings(coded=True)
    for wrong in ("lists;nprobe=0", "lists;probes=3", "lists;nprobe=1.5", "lists;"):
        with pytest.raises(UsageError, match="nprobe=128"):
            resolve(wrong, 1000, 64)
    with pytest.raises(UsageError, match="takes none"):
        resolve("int8;nprobe=3", 1000, 64, device="cuda")


@needs_triton
@pytest.mark.parametrize(("rows", "dimension", "nprobe"), [(5, 64, 3), (33, 32, 2), (17, 128, 1)])
def test_kernels_find_the_same(rows: int, dimension: int, nprobe: int) -> None:
    index = ListIndex(ArrayKeys(draw(1200, dimension)), DEVICE, lists=7, nprobe=nprobe, seed=0)
    index._keys = index._keys.half()  # on a CPU keys are held as float32
    queries = torch.from_numpy(draw(rows, dimension, 1)).float().to(DEVICE) + 0.01
    queries[2] = torch.nan
    plain = index._find(queries, 5, 9)
    fused = index._find_fused(queries, 5, 9)
    assert torch.equal(fused.entries, plain.entries)
    torch.testing.assert_close(fused.distances, plain.distances, rtol=1e-5, atol=1e-5)


@needs_triton
def test_the_limit_is_close_above_the_score_of_the_last_list() -> None:
    from ibidem.retrieve.kernels.lists import limit_probes

    scores = 10 * torch.randn(4, 50, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    scores[1, :20] = 1.5
    scores[2] = torch.inf
    scores[3] = -0.0
    there = torch.tensor([0, 1, 3])
    step = (scores.amax(1) - scores.amin(1))[there] / 2**16
    for probes in (1, 7, 50):
        last = scores.sort(dim=1).values[there, probes - 1]
        limits = limit_probes(scores, probes)
        assert (limits[there] >= last).all()  # never too low
        assert (limits[there] <= last + 1.01 * step).all()
        assert limits[2] == -torch.inf  # nobody can be asked


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("rows", [5, 40, 320])
def test_a_memory_of_full_size(rows: int) -> None:
    generator = np.random.default_rng(0)
    centres = generator.standard_normal((20_000, 64), dtype=np.float32)
    keys = centres[generator.choice(len(centres), 4_300_000)]
    keys = (keys + 0.4 * generator.standard_normal(keys.shape, dtype=np.float32)).astype(np.float16)
    index = ListIndex(ArrayKeys(keys), "cuda", lists=16_384, nprobe=64, seed=0)
    assert index._fused
    queries = torch.from_numpy(keys[generator.choice(len(keys), rows)]).cuda().float()
    queries += 0.1 * torch.randn(queries.shape, device="cuda")
    found, plain = index.search(queries, 8), index._find(queries, 8, 16)
    same = (found.entries[:, :, None] == plain.entries[:, None, :]).any(2).float().mean()
    assert same > 0.99
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        index.search(queries, 8)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        again = index.search(queries, 8)
    graph.replay()
    assert torch.equal(again.entries, found.entries)
