"""The neighbour searches of pruning in tasks: each searches for some consecutive blocks of entries."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ibidem.learn.jobs import Context, Job, Task, describe_environment, save_array
from ibidem.learn.provenance import contents, digest, space
from ibidem.learn.prune import neighbour_graph
from ibidem.learn.prune.neighbour_graph import NeighbourGraph, has_own_index, open_search, search_block
from ibidem.memory import encode_document, rename, replace_file, unique_path
from ibidem.retrieve import FaissIndex, NativeIndex, build_index, load_faiss_index, load_native

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ibidem.learn.jobs import Distribution
    from ibidem.learn.prune.neighbour_graph import GraphTasks
    from ibidem.memory import Edit, Memory
    from ibidem.retrieve import Index

# The work folder of the searches.
TASKS = "neighbours"
_INDEX, _INFO = "index.bin", "index.json"


@dataclass(frozen=True)
class SearchOrder:
    """The argument of a task of searches.

    Attributes:
        blocks: The entries of each search.
        count: Neighbours of each entry.
    """

    blocks: list[NDArray[np.int64]]
    count: int


def search_part(order: SearchOrder, context: Context, folder: Path) -> dict[str, Any]:
    """Search the neighbours of some entries.

    Args:
        order: The entries.
        context: The memory, and the work folder with the index.
        folder: The folder of the part.

    Returns:
        The number of entries.
    """
    memory = context.memory
    assert memory is not None
    index = _open(memory, str(context.folder), str(context.device))
    found = [search_block(index, memory.search_keys, own, order.count, context.device) for own in order.blocks]
    save_array(folder, "entries", np.concatenate([graph.entries for graph in found]))
    save_array(folder, "distances", np.concatenate([graph.distances for graph in found]))
    return {"entries": sum(map(len, order.blocks))}


@lru_cache(maxsize=1)
def _open(memory: Memory, folder: str, device: str) -> Index:
    """Open the index that the driver has built, or the memory's own, or an exact one."""
    info_file = Path(folder) / _INFO
    if not info_file.exists():
        return open_search(memory, torch.device(device))
    info = json.loads(info_file.read_text("utf-8"))
    file = Path(folder) / _INDEX
    if info["kind"] == "native":
        return load_native(file, info, memory.search_keys, np.empty(0, np.int64))
    return load_faiss_index(file, info, memory.search_keys)


def graph_tasks(edit: Edit, device: torch.device, distribution: Distribution) -> GraphTasks:
    """Return a function that searches the neighbours of all entries in tasks.

    Args:
        edit: The edit of the memory, for the work folder.
        device: Where to search.
        distribution: Runs the tasks.
    """

    def search(
        memory: Memory, order: NDArray[np.integer[Any]], count: int
    ) -> Iterator[tuple[NDArray[np.int64], NeighbourGraph]]:
        known = digest(space(memory), contents(memory), memory.generation, count, device.type, describe_environment())
        folder = edit.workspace(TASKS, known)
        _save_index(memory, folder, device)
        rows = neighbour_graph.ROWS_PER_SEARCH
        step, size = max(1, distribution.task_rows // rows) * rows, len(order)

        def tasks() -> Iterator[Task]:
            for number, start in enumerate(range(0, size, step)):
                own = order[start : start + step].astype(np.int64)
                blocks = [own[first : first + rows] for first in range(0, len(own), rows)]
                content = sha256(f"{rows} {count} ".encode() + own.tobytes()).hexdigest()
                share = (start + len(own)) / size
                yield Task(number, content, search_part, SearchOrder(blocks, count), len(own), share)

        job = Job(distribution, folder, "Finding neighbours", "entries", memory=memory, device=device.type)
        for task, part in job.run(tasks()):
            assert isinstance(task.argument, SearchOrder)
            own = np.concatenate(task.argument.blocks)
            yield own, NeighbourGraph(part.array("entries"), part.array("distances"))

    return search


def _save_index(memory: Memory, folder: Path, device: torch.device) -> None:
    """Build the index that all workers search, unless the memory has one or search is exact."""
    if has_own_index(memory, device) or device.type != "cpu" or (folder / _INFO).exists():
        return
    index = build_index(memory.search_keys, "auto", seed=memory.manifest.seed, device=device, scratch=folder)
    if isinstance(index, FaissIndex | NativeIndex):
        temporary = unique_path(folder / _INDEX)
        info = index.save(temporary)
        rename(temporary, folder / _INDEX)
        kind = "faiss" if isinstance(index, FaissIndex) else "native"
        replace_file(folder / _INFO, encode_document({**info, "kind": kind}, "the index of the searches"))
