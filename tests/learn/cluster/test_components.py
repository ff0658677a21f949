"""Connected components, tile by tile, against a walk over the whole graph."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.learn.cluster.components import merge_linked


def walk(links: np.ndarray) -> list[int]:
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
def test_tiles_in_any_order_join_all_that_is_linked(
    nodes: int, degree: float, tree: bool, side: int, seed: int
) -> None:
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
    assert roots.tolist() == walk(links)
