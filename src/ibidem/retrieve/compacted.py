"""Search in a compact space with queries of the model's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ibidem.compact import Compactor, place_compactor, restore_compactor
from ibidem.errors import DamagedMemoryError
from ibidem.retrieve.neighbours import check_search

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ibidem.memory import Memory
    from ibidem.retrieve.neighbours import Index, Neighbours

INDEX_ARTEFACT = "compactor"


@dataclass(frozen=True)
class CompactedIndex:
    """An index of compact keys, and the compactor that every query passes through."""

    index: Index
    compactor: Compactor

    @property
    def supports_cuda_graph(self) -> bool:
        """Whether a search can be recorded."""
        return self.index.supports_cuda_graph

    @property
    def size(self) -> int:
        """The number of keys."""
        return self.index.size

    @property
    def dimension(self) -> int:
        """The number of components of a query."""
        return self.compactor.input_dimension

    @property
    def description(self) -> str:
        """One line for cards and logs."""
        return (
            f"{self.index.description}, after {self.compactor.summary()['kind']} to {self.index.dimension} dimensions"
        )

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """Find the k nearest keys of each query [q, d], d as before compaction."""
        check_search(queries, k, self.dimension)
        return self.index.search(self.compactor(queries), k)


def compactor_of(memory: Memory) -> Compactor | None:
    """The compactor that made a memory's compact keys; None where it has none."""
    if memory.layout.compact is None:
        return None
    stored = memory.artefact(INDEX_ARTEFACT)
    if stored is None:
        raise DamagedMemoryError(f"{memory.path} has compact keys, but no compactor: restore it from a copy.")
    compactor = restore_compactor(stored.path.read_bytes())
    if (compactor.input_dimension, compactor.dimension) != (memory.identity.dimension, memory.layout.compact):
        raise DamagedMemoryError(f"The compactor of {memory.path} is not the one of its keys: restore it from a copy.")
    return compactor


def accept_states(index: Index, memory: Memory, device: torch.device) -> Index:
    """An index of a memory's keys that takes the model's own states as queries."""
    compactor = compactor_of(memory)
    return index if compactor is None else CompactedIndex(index, place_compactor(compactor, device))
