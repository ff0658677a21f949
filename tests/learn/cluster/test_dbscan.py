"""DBSCAN gives the labels of scikit-learn's; its connected components are those of a graph traversal."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.errors import UsageError
from ibidem.learn.cluster import NOISE, dbscan
from ibidem.learn.cluster.dbscan import CELL_BYTES, RadiusQuery, dbscan_families, merge_linked

# The package exports a function of the same name.
dbscan_module = importlib.import_module("ibidem.learn.cluster.dbscan")


def oracle(points: np.ndarray, eps: float, min_samples: int) -> list[int]:
    """scikit-learn's labels, from float64 points: from float32 ones its own distances are off in the 7th digit."""
    from sklearn.cluster import DBSCAN

    return DBSCAN(eps=eps, min_samples=min_samples).fit(points.astype(np.float64)).labels_.tolist()


def tile_bytes(side: int) -> int:
    """A block of memory that makes tiles of this side."""
    return CELL_BYTES * side * side


def draw_points(kind: str, count: int, dimension: int, seed: int) -> np.ndarray:
    """Points of a kind; on a lattice many distances are just eps, and far is far from the origin."""
    generator = np.random.default_rng(seed)
    noise = generator.standard_normal((count, dimension))
    if kind == "blobs":
        centres = 4 * generator.standard_normal((6, dimension))
        points = centres[generator.integers(6, size=count)] + 0.4 * noise
    elif kind == "uniform":
        points = generator.random((count, dimension))
    elif kind == "lattice":
        points = generator.integers(0, 4, (count, dimension)).astype(float)
    elif kind == "duplicates":
        points = noise[generator.integers(max(1, count // 4), size=count)]
    else:
        points = 300 + 0.5 * noise
    return points.astype(np.float32)


def draw_eps(kind: str, points: np.ndarray, share: float) -> float:
    """An eps within which about this share of the pairs lie, but neither a distance itself nor nearly 0.

    There scikit-learn rounds: to its matrix products a point is not quite at distance 0 from itself.
    """
    if kind == "lattice":
        return float(np.sqrt(round(1 + share * points.shape[1])))
    some = points[:60].astype(np.float64)
    return float(np.quantile(np.sqrt(np.square(some[:, None] - some).sum(2)), share)) + 1e-3


KINDS = ("blobs", "uniform", "lattice", "duplicates", "far")


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    count=st.integers(1, 300),
    dimension=st.sampled_from([1, 2, 3, 8, 20, 64]),
    share=st.sampled_from([0.01, 0.03, 0.1, 0.3]),
    min_samples=st.integers(1, 9),
    side=st.sampled_from([None, 16, 100]),
    seed=st.integers(0, 2**32),
)
def test_labels_equal_those_of_scikit_learn(
    kind: str, count: int, dimension: int, share: float, min_samples: int, side: int | None, seed: int
) -> None:
    points = draw_points(kind, count, dimension, seed)
    eps = draw_eps(kind, points, share)
    found = dbscan(torch.from_numpy(points), eps, min_samples, block_bytes=None if side is None else tile_bytes(side))
    assert found.dtype == torch.int64
    assert found.tolist() == oracle(points, eps, min_samples)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dimension", "side"), [(1, 700), (5, 128), (16, 400), (64, 1500)])
def test_larger_sets_in_tiles_stored_and_recomputed(kind: str, dimension: int, side: int) -> None:
    points = draw_points(kind, 1500, dimension, dimension)
    eps = draw_eps(kind, points, 0.02)
    expected = oracle(points, eps, 4)
    found = [dbscan(torch.from_numpy(points), eps, 4, block_bytes=n) for n in (tile_bytes(side), 1500**2, None)]
    assert [labels.tolist() for labels in found] == [expected] * 3


def test_pairs_close_to_eps_are_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rough distances alone are wrong for points at a distance of just eps, far from the origin."""
    generator = np.random.default_rng(1)
    points = draw_points("far", 400, 64, 1)
    for row in range(0, 400, 2):
        step = generator.standard_normal(64)
        points[row + 1] = points[row] + (0.5 + 1e-7 * (row % 4 - 1)) * step / np.linalg.norm(step)
    expected = oracle(points, 0.5, 2)
    assert 0 < expected.count(-1) < 400
    for block in (None, tile_bytes(64)):
        assert dbscan(torch.from_numpy(points), 0.5, 2, block_bytes=block).tolist() == expected
    monkeypatch.setattr(dbscan_module, "flat_nonzero", lambda _mask: torch.empty(0, dtype=torch.int64))
    assert dbscan(torch.from_numpy(points), 0.5, 2).tolist() != expected


def count_tiles(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The shapes of all tiles that are computed from now on."""
    shapes: list[tuple[int, int]] = []
    compute = RadiusQuery.tile

    def spy(query: RadiusQuery, rows: Any, columns: Any) -> torch.Tensor:
        tile = compute(query, rows, columns)
        shapes.append(tuple(tile.shape[1:]))
        return tile

    monkeypatch.setattr(RadiusQuery, "tile", spy)
    return shapes


def test_tiles_have_the_allowed_size_and_none_is_computed_without_need(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = count_tiles(monkeypatch)
    generator = np.random.default_rng(0)
    points = torch.from_numpy(generator.standard_normal((1000, 3)).astype(np.float32))
    points[-10:] += 1000 * torch.arange(1, 11)[:, None]
    labels = dbscan(points, 10.0, 4, block_bytes=tile_bytes(100))
    assert labels.tolist() == [0] * 990 + [NOISE] * 10
    assert max(max(shape) for shape in shapes) == 100
    # Of 10 x 10 tiles half count neighbours; one row joins the blob; ten isolated points are compared with all of it.
    assert len(shapes) <= 55 + 11 + 10
    shapes.clear()
    dbscan(points, 10.0, 4, block_bytes=1000**2)
    assert len(shapes) == 10, "four tiles a side, each pair once, and then stored"


def test_a_long_chain_is_joined_in_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passing labels from neighbour to neighbour would need 3000 rounds here."""
    order = np.random.default_rng(0).permutation(3000)
    points = torch.from_numpy(order.astype(np.float32))[:, None]
    rounds: list[int] = []
    flatten = dbscan_module._flatten_trees
    monkeypatch.setattr(dbscan_module, "_flatten_trees", lambda roots: rounds.append(1) or flatten(roots))
    assert dbscan(points, 1.0, 2, block_bytes=tile_bytes(3000)).unique().tolist() == [0]
    assert len(rounds) <= 16


def test_families_of_a_batch_are_clustered_separately() -> None:
    generator = np.random.default_rng(2)
    families = [draw_points(KINDS[size % 4], size, 6, size) for size in generator.integers(1, 90, size=25)]
    padded = torch.full((25, 90, 6), torch.nan)
    for row, points in zip(padded, families, strict=True):
        row[: len(points)] = torch.from_numpy(points)
    labels = dbscan_families(padded, 1.1, 3)
    for row, points in zip(labels, families, strict=True):
        assert row[: len(points)].tolist() == oracle(points, 1.1, 3)
        assert (row[len(points) :] == NOISE).all()


@pytest.mark.parametrize("block_bytes", [None, tile_bytes(40)])
def test_points_that_are_not_finite_are_noise_and_change_no_other_label(block_bytes: int | None) -> None:
    points = draw_points("blobs", 200, 5, 3)
    expected = np.array(oracle(points, 1.0, 3))
    broken = np.insert(points, [0, 50, 200], np.float32([[np.nan] * 5, [np.inf] * 5, [3e38] * 5]), axis=0)
    found = dbscan(torch.from_numpy(broken), 1.0, 3, block_bytes=block_bytes).numpy()
    assert found[[0, 51, 202]].tolist() == [NOISE] * 3
    assert np.delete(found, [0, 51, 202]).tolist() == expected.tolist()
    everything = dbscan(torch.from_numpy(broken), 1e30, 3, block_bytes=block_bytes).numpy()
    assert np.flatnonzero(everything == NOISE).tolist() == [0, 51, 202]


def test_products_of_low_precision_are_replaced_by_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    points = draw_points("blobs", 150, 16, 4)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    types: list[torch.dtype] = []
    multiply = torch.baddbmm
    monkeypatch.setattr(
        torch, "baddbmm", lambda *rest, **named: types.append(rest[1].dtype) or multiply(*rest, **named)
    )
    assert dbscan(torch.from_numpy(points), 2.0, 4).tolist() == oracle(points, 2.0, 4)
    assert types == [torch.float64]


def test_half_precision_points_and_an_eps_of_zero() -> None:
    points = draw_points("duplicates", 120, 4, 5).astype(np.float16)
    expected = oracle(points.astype(np.float32), 1e-9, 4)
    assert dbscan(torch.from_numpy(points), 0.0, 4).tolist() == expected
    assert max(expected) > 0


def test_empty_input_and_errors() -> None:
    assert dbscan(torch.empty(0, 4), 1.0, 4).tolist() == []
    assert dbscan(torch.zeros(1, 4), 1.0, 1).tolist() == [0]
    assert dbscan(torch.zeros(3, 0), 1.0, 4).tolist() == [NOISE] * 3
    with pytest.raises(UsageError, match="eps = -1"):
        dbscan(torch.zeros(3, 2), -1.0, 4)
    with pytest.raises(UsageError, match="eps = nan"):
        dbscan(torch.zeros(3, 2), float("nan"), 4)
    with pytest.raises(UsageError, match="min_samples = 0"):
        dbscan(torch.zeros(3, 2), 1.0, 0)
    with pytest.raises(UsageError, match=r"shape \[3\]"):
        dbscan(torch.zeros(3), 1.0, 4)


def traverse(links: np.ndarray) -> list[int]:
    """The lowest node that each node can reach."""
    lowest = [-1] * len(links)
    for start in range(len(links)):
        stack = [start] if lowest[start] < 0 else []
        while stack:
            node = stack.pop()
            if lowest[node] < 0:
                lowest[node] = start
                stack += np.flatnonzero(links[node]).tolist()
    return lowest


@settings(max_examples=150, deadline=None)
@given(
    nodes=st.integers(1, 120),
    degree=st.sampled_from([0.5, 0.9, 1.0, 1.5, 3.0]),
    tree=st.booleans(),
    side=st.sampled_from([3, 17, 200]),
    seed=st.integers(0, 2**32),
)
def test_tiles_in_any_order_join_all_linked_nodes(nodes: int, degree: float, tree: bool, side: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    links = random.random((nodes, nodes)) < degree / nodes / 2
    if tree:  # long paths with numbers in no order
        links[:] = False
        order = random.permutation(nodes)
        links[order[1:], order[:-1]] = random.random(nodes - 1) < 0.95
    links = links | links.T | np.eye(nodes, dtype=bool)
    blocks = torch.split(torch.from_numpy(random.permutation(nodes)), side)
    tiles = [(rows, columns) for i, rows in enumerate(blocks) for columns in blocks[i:]]
    roots = torch.arange(nodes)
    for i in random.permutation(len(tiles)).tolist():
        rows, columns = tiles[i]
        tile = torch.from_numpy(links)[rows][:, columns][None]
        roots = merge_linked(roots, tile, rows[None], columns[None])
        assert roots[roots].equal(roots)
    assert roots.tolist() == traverse(links)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("kind", KINDS)
def test_cuda_gives_the_labels_of_the_cpu(kind: str) -> None:
    for count, dimension in ((37, 3), (900, 64), (5000, 512)):
        points = torch.from_numpy(draw_points(kind, count, dimension, count))
        eps = draw_eps(kind, points.numpy(), 0.02)
        expected = dbscan(points, eps, 4)
        for block_bytes in (None, tile_bytes(300)):
            found = dbscan(points.cuda(), eps, 4, block_bytes=block_bytes)
            assert found.is_cuda
            assert found.cpu().equal(expected)
