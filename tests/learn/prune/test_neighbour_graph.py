"""The neighbours of every entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from ibidem.errors import UsageError
from ibidem.learn import build_neighbour_graph
from ibidem.learn.prune.neighbour_graph import ensure_neighbour_graph, exclude_self
from ibidem.progress import silent

if TYPE_CHECKING:
    from ibidem.memory import Memory

CPU = torch.device("cpu")


def test_an_entry_is_not_its_own_neighbour() -> None:
    entries = torch.tensor([[4, 9, 2], [5, 6, 7]])
    distances = torch.tensor([[0.0, 1.0, 2.0], [0.0, 0.0, 3.0]])
    near, away = exclude_self(entries, distances, torch.tensor([9, 1]))
    assert near.tolist() == [[4, 2], [5, 6]]
    assert away.tolist() == [[0.0, 2.0], [0.0, 0.0]]


def test_the_graph_nearly_equals_brute_force(learnt: Memory) -> None:
    graph = build_neighbour_graph(learnt, 5, device=CPU)
    keys = torch.from_numpy(learnt.search_keys.read(0, learnt.entries).astype(np.float64))
    rows = torch.arange(0, learnt.entries, 20)
    distances = torch.cdist(keys[rows], keys).square()
    distances[torch.arange(len(rows)), rows] = torch.inf
    nearest = distances.topk(5, dim=1, largest=False).values.numpy()
    # The memory has an approximate index, which misses a few neighbours.
    assert np.isclose(graph.distances[rows], nearest, rtol=1e-3, atol=1e-5).mean() > 0.99
    assert not (graph.entries == np.arange(learnt.entries)[:, None]).any()


def test_a_larger_graph_is_cut_and_a_smaller_one_is_refused(learnt: Memory) -> None:
    graph = build_neighbour_graph(learnt, 5, device=CPU)
    cut = ensure_neighbour_graph(learnt, 3, graph, device=CPU, progress=silent)
    np.testing.assert_array_equal(cut.entries, graph.entries[:, :3])
    with pytest.raises(UsageError, match="build it again"):
        ensure_neighbour_graph(learnt, 6, graph, device=CPU, progress=silent)
