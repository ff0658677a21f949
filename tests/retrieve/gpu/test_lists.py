"""The inverted file of a GPU: its lists, its search in torch, and the same search by kernels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.retrieve import ArrayKeys, ListIndex, ScanIndex
from ibidem.retrieve.gpu.lists import partition
from ibidem.retrieve.keys import TILE

from ..samples import draw_skewed


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 3000), st.integers(1, 40), st.integers(0, 99))
def test_every_key_lies_in_the_list_of_its_centroid(count: int, lists: int, seed: int) -> None:
    keys = torch.from_numpy(draw_skewed(count, 4, seed)).float()
    squares = keys.square().sum(1)
    squares[::7] = torch.inf
    found = partition(keys, squares, lists, seed)
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
    keys = torch.from_numpy(draw_skewed(2000, 16))
    squares = keys.float().square().sum(1)
    first, second = (partition(keys, squares, 8, 5) for _ in range(2))
    assert torch.equal(first.order, second.order)
    assert torch.equal(first.centroids, second.centroids)


def test_probing_all_lists_is_exact() -> None:
    keys = draw_skewed(4000, 32)
    keys[17] = np.inf
    index = ListIndex(ArrayKeys(keys), "cpu", lists=20, nprobe=1000, seed=0)
    queries = torch.from_numpy(draw_skewed(40, 32, 1)).float()
    queries[3] = torch.nan
    expected = ScanIndex(ArrayKeys(keys), "cpu").search(queries, 8)
    found = index.search(queries, 8)
    assert index.nprobe == index.lists
    assert torch.equal(found.entries, expected.entries)
    torch.testing.assert_close(found.distances, expected.distances)


def test_keys_that_are_not_finite_are_never_found() -> None:
    index = ListIndex(ArrayKeys(np.full((3, 32), np.nan, np.float16)), "cpu", lists=2, nprobe=2, seed=0)
    found = index.search(torch.ones(2, 32), 3)
    assert found.entries.tolist() == [[-1] * 3] * 2
    assert torch.isinf(found.distances).all()


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
