"""The nearest neighbours of every entry of a memory, found once for all pruning rates and combiners."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from ibidem.errors import MemoryFolderError, UsageError
from ibidem.learn.prune.groups import group_by_token
from ibidem.memory import INDEX_ARTEFACT
from ibidem.progress import Progress, silent
from ibidem.retrieve import build_index, join, open_base_index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.memory import Memory
    from ibidem.retrieve import Index, Keys

    # (memory, entries in the order of the search, neighbours of each) -> some entries, and their neighbours
    GraphTasks = Callable[[Memory, NDArray[np.integer[Any]], int], Iterator[tuple[NDArray[np.int64], "NeighbourGraph"]]]

# Neighbours are pruned too: the graph holds more of them, so that k remain.
_NEIGHBOURS_PER_K = 2
ROWS_PER_SEARCH = 1 << 15
# A larger graph is mapped from a file.
RESIDENT_BYTES = 1 << 30


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
    memory: Memory,
    count: int,
    *,
    device: torch.device,
    tasks: GraphTasks | None = None,
    scratch: Path | None = None,
    progress: Progress = silent,
) -> NeighbourGraph:
    """Search the `count` nearest other entries of every entry; the result depends on no combiner.

    Args:
        memory: The memory; its own index is searched on the CPU if it has one.
        count: Neighbours of each entry.
        device: Where to search.
        tasks: Searches in tasks; None searches in this process, with the same result.
        scratch: A folder for a temporary index, and for a graph of more than RESIDENT_BYTES, which is then mapped;
            None keeps any graph in RAM.
        progress: Receives the number of entries that are done.

    Returns:
        The graph, with K = `count`.
    """
    size = memory.entries
    graph = _allocate(size, count, scratch)
    # Entries of one token probe the same lists: one after the other, they find them in the cache.
    order = group_by_token(memory.values()).order
    found: Iterator[tuple[NDArray[np.int64], NeighbourGraph]]
    if tasks is not None:
        found = tasks(memory, order, count)
    else:
        index, keys = open_search(memory, device, scratch), memory.search_keys
        blocks = (order[start : start + ROWS_PER_SEARCH].astype(np.int64) for start in range(0, size, ROWS_PER_SEARCH))
        found = ((own, search_block(index, keys, own, count, device)) for own in blocks)
    done = 0
    for own, near in found:
        graph.entries[own], graph.distances[own] = near
        done += len(own)
        progress("Finding neighbours", done / size, done, "entries")
    return graph


def _allocate(size: int, count: int, scratch: Path | None) -> NeighbourGraph:
    """Make an empty graph, in RAM or in unnamed files, which end with the process."""
    if scratch is None or 8 * size * count <= RESIDENT_BYTES:
        return NeighbourGraph(np.empty((size, count), np.int32), np.empty((size, count), np.float32))
    try:
        with tempfile.TemporaryFile(dir=scratch) as entries, tempfile.TemporaryFile(dir=scratch) as distances:
            return NeighbourGraph(
                np.memmap(entries, np.int32, "w+", shape=(size, count)),
                np.memmap(distances, np.float32, "w+", shape=(size, count)),
            )
    except OSError as error:
        raise MemoryFolderError(
            f"The neighbours of {size:,} entries need {8 * size * count / 1e9:,.0f} GB in {scratch}: {error.strerror}. "
            "Make room, and run again."
        ) from error


def search_block(index: Index, keys: Keys, own: NDArray[np.int64], count: int, device: torch.device) -> NeighbourGraph:
    """Search the nearest other entries of some entries.

    Args:
        index: The index of all entries.
        keys: Their keys.
        own: [n] the entries to search for.
        count: Neighbours of each.
        device: Where to search.

    Returns:
        Entries and distances, both [n, count].
    """
    queries = torch.from_numpy(np.asarray(keys.gather(own), np.float32)).to(device)
    near = index.search(queries, count + 1)
    entries, distances = exclude_self(near.entries.cpu(), near.distances.float().cpu(), torch.from_numpy(own))
    return NeighbourGraph(entries.numpy(), distances.numpy())


def ensure_neighbour_graph(
    memory: Memory,
    count: int,
    graph: NeighbourGraph | None,
    *,
    device: torch.device,
    tasks: GraphTasks | None = None,
    scratch: Path | None = None,
    progress: Progress,
) -> NeighbourGraph:
    """Return the `count` nearest neighbours of a given graph, or build the graph where none is given.

    Args:
        memory: The memory.
        count: Neighbours of each entry.
        graph: A graph of this memory; None builds one.
        device: Where to search.
        tasks: Searches in tasks; None searches in this process.
        scratch: A folder for a large graph.
        progress: Receives the number of entries that are done.

    Raises:
        UsageError: The given graph belongs to another memory, or holds too few neighbours.
    """
    if graph is None:
        return build_neighbour_graph(memory, count, device=device, tasks=tasks, scratch=scratch, progress=progress)
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


def has_own_index(memory: Memory, device: torch.device) -> bool:
    """Return whether the neighbours are searched with the memory's own index.

    Args:
        memory: The memory.
        device: Where to search.
    """
    return device.type == "cpu" and memory.artefact(INDEX_ARTEFACT) is not None


def open_search(memory: Memory, device: torch.device, scratch: Path | None = None) -> Index:
    """Open the memory's own index, or build a temporary one: pruning changes the keys that an index would hold.

    Args:
        memory: The memory.
        device: Where to search.
        scratch: A folder for the file of a temporary index; None for the temporary folder of the system.
    """
    if has_own_index(memory, device):
        parts = open_base_index(memory, None, device).parts(memory, np.empty(0, np.int64), device)
        return join(parts, memory.entries, memory.dimension)
    return build_index(memory.search_keys, "auto", seed=memory.manifest.seed, device=device, scratch=scratch)
