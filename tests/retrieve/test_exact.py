"""Exact search against brute force in float64, and its scores against their error bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.errors import MemoryFolderError, UsageError
from ibidem.retrieve import ArrayKeys, ExactIndex, Neighbours, exact
from ibidem.retrieve import keys as keys_module
from ibidem.retrieve.exact import error_bound, keep_nearest, lowest_by_tiles, make_scorer, order_rows, split_float16

if TYPE_CHECKING:
    from collections.abc import Iterator


def brute_force(keys: np.ndarray, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Sort all keys by (float64 distance, entry); returns [q, k] distances and entries, padded."""
    wide = keys.astype(np.float64)
    distances = np.full((len(queries), k), np.inf)
    entries = np.full((len(queries), k), -1)
    for row, query in enumerate(queries.astype(np.float64)):
        found = np.square(query - wide).sum(1)
        order = np.lexsort((np.arange(len(keys)), found))[:k]
        distances[row, : len(order)], entries[row, : len(order)] = found[order], order
    return distances, entries


def assert_exact(found: Neighbours, keys: np.ndarray, queries: np.ndarray, k: int) -> None:
    """Check distances, order and entries; entries may differ only where float64 distances are equal."""
    distances, entries = brute_force(keys, queries, k)
    assert found.distances.dtype == torch.float32
    assert found.entries.dtype == torch.int64
    assert found.distances.shape == found.entries.shape == (len(queries), k)
    np.testing.assert_allclose(found.distances.cpu().numpy(), distances, rtol=2e-7)
    for row, (mine, true) in enumerate(zip(found.entries.cpu().numpy(), entries, strict=True)):
        real = mine[mine >= 0]
        assert len(np.unique(real)) == len(real) == (true >= 0).sum()
        exact_distances = np.square(queries[row].astype(np.float64) - keys[real].astype(np.float64)).sum(1)
        np.testing.assert_allclose(exact_distances, distances[row][true >= 0], rtol=1e-12)


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Draw keys with duplicates and near-duplicates, far from or near the origin, and queries among them."""
    count = draw(st.sampled_from([0, 1, 5, 127, 128, 129, 400, 1000]))
    dimension = draw(st.sampled_from([1, 3, 8, 64]))
    offset = draw(st.sampled_from([0.0, 3.0, 100.0]))
    distinct = draw(st.sampled_from([1, 7, 1000]))
    spread = draw(st.sampled_from([0.0, 0.01, 1.0]))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    centres = generator.standard_normal((distinct, dimension)) + offset
    keys = centres[generator.integers(distinct, size=count)]
    keys = (keys + spread * generator.standard_normal(keys.shape)).astype(np.float16)
    queries = centres[generator.integers(distinct, size=9)].astype(np.float32)
    queries[:5] += spread * generator.standard_normal((5, dimension), dtype=np.float32)
    if count:
        queries[-2:] = keys[generator.integers(count, size=2)]
    return keys, queries


@settings(max_examples=120, deadline=None)
@given(
    problem=problems(),
    k=st.sampled_from([1, 4, 16, 64, 200]),
    block_rows=st.sampled_from([None, 1, 128, 130, 300]),
    resident_bytes=st.sampled_from([None, 0]),
    halves=st.booleans(),
)
def test_exact_search_equals_brute_force(
    problem: tuple[np.ndarray, np.ndarray],
    k: int,
    block_rows: int | None,
    resident_bytes: int | None,
    halves: bool,
) -> None:
    keys, queries = problem
    with pytest.MonkeyPatch.context() as patch:
        if halves:  # The scores of CUDA, with the one product that the CPU lacks done in float32.
            patch.setattr(keys_module, "resident_type", lambda _device, _source: torch.float16)
        index = ExactIndex(ArrayKeys(keys), block_rows=block_rows, resident_bytes=resident_bytes)
    assert_exact(index.search(torch.from_numpy(queries), k), keys, queries, k)


def test_resident_and_streamed_keys_give_the_same(clustered: ArrayKeys) -> None:
    queries = torch.from_numpy(clustered.gather(np.arange(0, 6000, 97)).astype(np.float32)) + 0.1
    whole = ExactIndex(clustered)
    streamed = ExactIndex(clustered, block_rows=1000, resident_bytes=0)
    assert "float32 on cpu" in whole.description
    assert "read in blocks" in streamed.description
    for mine, other in zip(whole.search(queries, 16), streamed.search(queries, 16), strict=True):
        assert torch.equal(mine, other)


def test_duplicates_beyond_the_shortlist_take_the_second_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = np.random.default_rng(0).standard_normal((3000, 16)).astype(np.float16)
    keys[5::7] = keys[5]
    passes = []
    second = ExactIndex._measure_all_below
    monkeypatch.setattr(
        ExactIndex,
        "_measure_all_below",
        lambda index, queries, *rest: passes.append(len(queries)) or second(index, queries, *rest),
    )
    queries = torch.from_numpy(keys[[5, 6]].astype(np.float32))
    found = ExactIndex(ArrayKeys(keys), block_rows=256).search(queries, 8)
    assert passes == [1]
    assert found.entries[0].tolist() == [5 + 7 * n for n in range(8)]
    assert found.distances[0].tolist() == [0.0] * 8
    assert_exact(found, keys, keys[[5, 6]].astype(np.float32), 8)


def test_far_from_the_origin_where_approximate_scores_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among keys of length 800 the four best approximate scores are not the four nearest keys."""
    generator = np.random.default_rng(3)
    keys = (100 + 0.5 * generator.standard_normal((4000, 64))).astype(np.float32)
    queries = keys[:40] + np.float32(0.01)
    index = ExactIndex(ArrayKeys(keys))
    assert_exact(index.search(torch.from_numpy(queries), 4), keys, queries, 4)
    scores, entries = index._shortlist(torch.from_numpy(queries), 4)
    rough = np.sort(entries.gather(1, scores.argsort(dim=1)).numpy(), 1)
    assert (rough != np.sort(brute_force(keys, queries, 4)[1], 1)).any()
    monkeypatch.setattr(exact, "_CPU_SCORES", 128)
    assert_exact(index.search(torch.from_numpy(queries), 4), keys, queries, 4)


def test_float32_keys_and_half_queries() -> None:
    keys = np.random.default_rng(1).standard_normal((500, 12)).astype(np.float32)
    queries = torch.from_numpy(keys[:20]).half()
    found = ExactIndex(ArrayKeys(keys)).search(queries, 5)
    assert_exact(found, keys, queries.float().numpy(), 5)


def test_search_is_exact_where_float32_products_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = np.random.default_rng(1).standard_normal((900, 24)).astype(np.float16)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    monkeypatch.setattr("ibidem.retrieve.exact._FLOAT64_ELEMENTS", 10_000)
    queries = keys[:9].astype(np.float32) + np.float32(0.1)
    assert_exact(ExactIndex(ArrayKeys(keys)).search(torch.from_numpy(queries), 7), keys, queries, 7)


@pytest.mark.parametrize("resident_bytes", [None, 0])
def test_keys_and_queries_that_are_not_finite(resident_bytes: int | None) -> None:
    generator = np.random.default_rng(2)
    keys = generator.standard_normal((300, 6)).astype(np.float16)
    sound = keys.copy()
    keys[[3, 7, 200], [0, 5, 2]] = np.nan, np.inf, -np.inf
    queries = generator.standard_normal((6, 6)).astype(np.float32)
    queries[0, 1], queries[2, 0], queries[3, 3], queries[4] = np.nan, np.inf, -np.inf, 3e38
    found = ExactIndex(ArrayKeys(keys), resident_bytes=resident_bytes).search(torch.from_numpy(queries), 300)
    for row in (0, 2, 3, 4):
        assert found.entries[row].eq(-1).all()
        assert found.distances[row].isinf().all()
    for row in (1, 5):
        assert set(found.entries[row].tolist()) == set(range(300)) - {3, 7, 200} | {-1}
        order = brute_force(sound, queries[[row]], 300)[1][0]
        assert found.entries[row, :297].tolist() == [e for e in order if e not in (3, 7, 200)]


def test_no_keys_and_no_queries() -> None:
    keys = np.ones((3, 4), dtype=np.float16)
    assert ExactIndex(ArrayKeys(keys)).search(torch.ones(0, 4), 5).entries.shape == (0, 5)
    found = ExactIndex(ArrayKeys(keys[:0])).search(torch.ones(2, 4), 5)
    assert found.entries.tolist() == [[-1] * 5] * 2
    assert found.distances.isinf().all()


class ShortBlocks(ArrayKeys):
    """Keys whose blocks are shorter than requested, as at the end of a segment."""

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        for block in super().blocks(rows):
            yield block[: len(block) // 3]
            yield block[len(block) // 3 :]


@pytest.mark.parametrize("resident_bytes", [None, 0])
def test_blocks_of_any_length(resident_bytes: int | None) -> None:
    keys = np.random.default_rng(4).standard_normal((1000, 8)).astype(np.float16)
    index = ExactIndex(ShortBlocks(keys), block_rows=384, resident_bytes=resident_bytes)
    queries = keys[::50].astype(np.float32)
    assert_exact(index.search(torch.from_numpy(queries), 9), keys, queries, 9)


class LostKeys(ArrayKeys):
    """Keys that announce one more than there are."""

    @property
    def size(self) -> int:
        return super().size + 1


def test_messages() -> None:
    keys = np.ones((3, 4), dtype=np.float16)
    index = ExactIndex(ArrayKeys(keys))
    with pytest.raises(UsageError, match=r"shape \[2, 5\].*4 dimensions"):
        index.search(torch.ones(2, 5), 1)
    with pytest.raises(UsageError, match="k = 0"):
        index.search(torch.ones(2, 4), 0)
    with pytest.raises(UsageError, match="'cpu' and 'cuda', not on 'meta'"):
        ExactIndex(ArrayKeys(keys), "meta")
    with pytest.raises(UsageError, match="no device 'tpu9'"):
        ExactIndex(ArrayKeys(keys), "tpu9")
    with pytest.raises(UsageError, match="block_rows = 0"):
        ExactIndex(ArrayKeys(keys), block_rows=0)
    with pytest.raises(UsageError, match="float64"):
        ArrayKeys(np.ones((3, 4)))
    with pytest.raises(MemoryFolderError, match=r"should be 4 .* 3 were read"):
        ExactIndex(LostKeys(keys))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("offset", [0.0, 3.0, 100.0])
@pytest.mark.parametrize("resident_bytes", [None, 0])
@pytest.mark.parametrize("key_type", [np.float16, np.float32])
def test_exact_search_on_cuda(offset: float, resident_bytes: int | None, key_type: type) -> None:
    generator = np.random.default_rng(6)
    keys = (offset + 3 * generator.standard_normal((5000, 64))).astype(key_type)
    keys[1::9] = keys[1]
    queries = (keys[:50] + 0.1 * generator.standard_normal((50, 64))).astype(np.float32)
    queries[0] = keys[1]
    index = ExactIndex(ArrayKeys(keys), "cuda", block_rows=1024, resident_bytes=resident_bytes)
    for device in ("cuda", "cpu"):
        found = index.search(torch.from_numpy(queries).to(device), 16)
        assert found.entries.device.type == found.distances.device.type == device
        assert_exact(found, keys, queries, 16)


@settings(max_examples=60, deadline=None)
@given(
    dimension=st.sampled_from([1, 16, 64, 512]),
    offset=st.sampled_from([0.0, 1.0, 100.0]),
    magnitude=st.integers(-40, 12),
    key_type=st.sampled_from([torch.float16, torch.float32]),
    seed=st.integers(0, 2**32),
)
def test_scores_are_within_their_error_bound(
    dimension: int, offset: float, magnitude: int, key_type: torch.dtype, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    keys = (offset + torch.randn(256, dimension, generator=generator)).to(key_type)
    queries = (offset + torch.randn(8, dimension, generator=generator)) * 2.0**magnitude
    squares = keys.double().square().sum(1)
    true = squares - 2 * queries.double() @ keys.double().T
    rough = make_scorer(queries, key_type)(keys, squares.float())
    bound = error_bound(queries.double().norm(dim=1), float(squares.max().sqrt()), dimension, key_type)
    error = (rough.double() - true).abs().amax(1)
    assert (error <= bound).all()
    assert (bound <= 1e-2 * (true.abs().amax(1) + squares.max())).all()


def test_the_float16_parts_sum_to_the_query() -> None:
    rows = [
        [1.0, 2.0 / 3, -3e-5],
        [0.0, 0.0, 0.0],
        [1e-30, -7e-31, 1e-40],
        [3e17, 1.0, -2.5e17],
        [1e-44, 0.0, 0.0],
    ]
    queries = torch.tensor(rows)
    high, low, scale = split_float16(queries)
    assert high.isfinite().all()
    back = (high.double() + low.double()) * scale.double()
    error = (back - queries.double()).abs()
    largest = queries.double().abs().amax(1, keepdim=True)
    allowed = torch.maximum(queries.double().abs() * 2.0**-22, largest * 2.0**-38)
    assert (error[:4] <= allowed[:4]).all()
    assert error[4].max() <= 1e-37


@pytest.mark.parametrize("wanted", [1, 5, 9, 10, 500, 5000])
def test_lowest_by_tiles_equals_a_sort(wanted: int) -> None:
    scores = torch.from_numpy(np.random.default_rng(0).integers(0, 50, (7, 1280)).astype(np.float32))
    found, columns = lowest_by_tiles(scores, wanted)
    assert torch.equal(found.sort(1).values, scores.sort(1).values[:, :wanted])
    assert torch.equal(scores.gather(1, columns), found)
    assert all(len(set(row)) == min(wanted, 1280) for row in columns.tolist())


def test_equal_distances_are_ordered_by_entry() -> None:
    distances = torch.tensor([[2.0, 1.0, 1.0, torch.inf, 1.0]])
    entries = torch.tensor([[4, 9, 3, -1, 7]])
    assert order_rows(distances, entries, 4)[1].tolist() == [[3, 7, 9, 4]]


def test_keep_nearest_of_each_row() -> None:
    row = torch.tensor([1, 0, 1, 1, 0])
    distance = torch.tensor([2.0, 5.0, 1.0, 1.0, 4.0])
    entry = torch.tensor([0, 1, 2, 3, 4])
    kept = keep_nearest(row, distance, entry, 2)
    assert [part.tolist() for part in kept] == [[0, 0, 1, 1], [4.0, 5.0, 1.0, 1.0], [4, 1, 2, 3]]
