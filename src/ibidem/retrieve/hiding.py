"""Entries that are still in an index but must never be found again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch

from ibidem.retrieve.neighbours import Neighbours, check_search

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.retrieve.neighbours import Index


@runtime_checkable
class Hiding(Protocol):
    """An index that can pass over entries while it searches."""

    def without(self, entries: NDArray[np.int64]) -> Index | None:
        """This index, in which these entries, which rise, are not found; None where its kind cannot do that."""
        ...


def hide(index: Index, entries: NDArray[np.int64]) -> Index:
    """The index without these entries, which rise: by its own means, or by looking for more and dropping some."""
    if not len(entries):
        return index
    hidden = index.without(entries) if isinstance(index, Hiding) else None
    return hidden or FilteredIndex(index, torch.from_numpy(entries))


@dataclass(frozen=True)
class FilteredIndex:
    """An index whose answers are freed of hidden entries; queries that are left with too few are asked again, for more.

    hidden: [n] int64, rising.
    """

    index: Index
    hidden: Tensor

    @property
    def supports_cuda_graph(self) -> bool:
        return False

    @property
    def size(self) -> int:
        """The number of keys, hidden ones counted in."""
        return self.index.size

    @property
    def dimension(self) -> int:
        """The number of components of a key."""
        return self.index.dimension

    @property
    def description(self) -> str:
        """One line for cards and logs."""
        return f"{self.index.description}, {len(self.hidden)} of them hidden"

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """Find the k nearest keys of each query that are not hidden."""
        check_search(queries, k, self.dimension)
        hidden = self.hidden.to(queries.device)
        width = min(k + min(k, len(hidden)), max(self.size, k))
        distances, entries = _drop(self.index.search(queries, width), hidden, k)
        while width < self.size:
            short = (entries[:, -1] < 0).nonzero()[:, 0]
            if not len(short):
                break
            width = min(2 * width, self.size)
            distances[short], entries[short] = _drop(self.index.search(queries[short], width), hidden, k)
        return Neighbours(distances, entries)


def _drop(found: Neighbours, hidden: Tensor, k: int) -> Neighbours:
    """The k nearest of what was found, hidden entries left out."""
    struck = torch.isin(found.entries, hidden, assume_unique=False)
    distances = found.distances.masked_fill(struck, torch.inf)
    order = distances.argsort(dim=1, stable=True)[:, :k]
    return Neighbours(distances.gather(1, order), found.entries.masked_fill(struck, -1).gather(1, order))
