"""The nearest neighbours of every entry of a memory, found once for all pruning rates and combiners."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from ibidem.errors import UsageError
from ibidem.memory import INDEX_ARTEFACT
from ibidem.progress import Progress, silent
from ibidem.retrieve import build_index, join, open_base_index

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.memory import Memory
    from ibidem.retrieve import Index

# Neighbours are pruned too: the graph holds more of them, so that k remain.
_NEIGHBOURS_PER_K = 2
_ROWS_PER_SEARCH = 1 << 15


class NeighbourGraph(NamedTuple):
    """The nearest other entries of every entry, nearest first.

    Attributes:
        entries: [n, K] int32, -1 where there are fewer than K.
        distances: [n, K] float32, squared distances.
    """

    entries: NDArray[np.int32]
    distances: NDArray[np.float32]


def count_graph_neighbours(k: int) -> int:
    """Return how many neighbours of an entry the graph must hold so that a combiner of k can weight them.

    Args:
        k: The number of neighbours that the combiner weights.
    """
    return _NEIGHBOURS_PER_K * k


def build_neighbour_graph(
    memory: Memory, count: int, *, device: torch.device, progress: Progress = silent
) -> NeighbourGraph:
    """Search the `count` nearest other entries of every entry; the result depends on no combiner.

    Args:
        memory: The memory; its own index is searched on the CPU if it has one.
        count: Neighbours of each entry.
        device: Where to search.
        progress: Receives the number of entries that are done.

    Returns:
        The graph, with K = `count`.
    """
    index = _open_index(memory, device)
    keys, size = memory.search_keys, memory.entries
    graph = NeighbourGraph(np.empty((size, count), np.int32), np.empty((size, count), np.float32))
    # Entries of one token probe the same lists: one after the other, they find them in the cache.
    order = np.argsort(memory.values(), kind="stable")
    for start in range(0, size, _ROWS_PER_SEARCH):
        own = order[start : start + _ROWS_PER_SEARCH]
        queries = torch.from_numpy(np.asarray(keys.gather(own), np.float32)).to(device)
        near = index.search(queries, count + 1)
        entries, distances = exclude_self(near.entries.cpu(), near.distances.float().cpu(), torch.from_numpy(own))
        graph.entries[own], graph.distances[own] = entries.numpy(), distances.numpy()
        progress("Finding neighbours", (start + len(own)) / size, start + len(own), "entries")
    return graph


def ensure_neighbour_graph(
    memory: Memory, count: int, graph: NeighbourGraph | None, *, device: torch.device, progress: Progress
) -> NeighbourGraph:
    """Return the `count` nearest neighbours of a given graph, or build the graph where none is given.

    Args:
        memory: The memory.
        count: Neighbours of each entry.
        graph: A graph of this memory; None builds one.
        device: Where to search.
        progress: Receives the number of entries that are done.

    Raises:
        UsageError: The given graph belongs to another memory, or holds too few neighbours.
    """
    if graph is None:
        return build_neighbour_graph(memory, count, device=device, progress=progress)
    if graph.entries.shape[0] != memory.entries or graph.entries.shape[1] < count:
        raise UsageError(
            f"The neighbour graph has {graph.entries.shape[1]} neighbours of {graph.entries.shape[0]} entries, but "
            f"{count} of {memory.entries} are needed: build it again with build_neighbour_graph."
        )
    return NeighbourGraph(graph.entries[:, :count], graph.distances[:, :count])


def exclude_self(entries: Tensor, distances: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Remove from neighbours [n, K + 1] the entry itself [n], or the last one where it was not found -> [n, K].

    Args:
        entries: [n, K + 1] the nearest entries of each entry.
        distances: [n, K + 1] their distances.
        own: [n] the entry whose neighbours a row holds.

    Returns:
        Entries and distances, both [n, K].
    """
    itself = entries == own[:, None]
    itself[:, -1] |= ~itself.any(dim=1)
    shape = len(entries), entries.shape[1] - 1
    return entries[~itself].view(shape).int(), distances[~itself].view(shape)


def _open_index(memory: Memory, device: torch.device) -> Index:
    """Open the memory's own index, or build a temporary one: pruning changes the keys that an index would hold."""
    if device.type == "cpu" and memory.artefact(INDEX_ARTEFACT) is not None:
        parts = open_base_index(memory, None, device).parts(memory, np.empty(0, np.int64), device)
        return join(parts, memory.entries, memory.dimension)
    return build_index(memory.search_keys, "auto", seed=memory.manifest.seed, device=device)
