"""Several indexes searched as one, and indexes from which some entries are hidden.

A memory that changed since its index was built is searched as that index, without the removed entries, and small exact
indexes of what was added later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import torch

from ibidem.retrieve.exact import ExactIndex
from ibidem.retrieve.faiss_index import FaissIndex
from ibidem.retrieve.faiss_library import is_transformed, recode, transform
from ibidem.retrieve.index import Neighbours, check_search
from ibidem.retrieve.keys import ArrayKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.retrieve.index import Index
    from ibidem.retrieve.keys import Floats


@runtime_checkable
class SupportsHiding(Protocol):
    """An index that can skip entries while it searches."""

    def without(self, entries: NDArray[np.int64]) -> Index | None:
        """Return an index that does not find these ascending entries; None where that is impossible."""
        ...


@dataclass(frozen=True)
class FilteredIndex:
    """Remove hidden entries from the results of an index, and search again for queries that have too few left.

    Attributes:
        index: the index to search.
        hidden: [n] int64, ascending.
    """

    index: Index
    hidden: Tensor

    @property
    def supports_cuda_graph(self) -> bool:
        """False: the number of searches depends on the results."""
        return False

    @property
    def size(self) -> int:
        """The number of keys, including hidden ones."""
        return self.index.size

    @property
    def dimension(self) -> int:
        """The number of components of a key."""
        return self.index.dimension

    @property
    def description(self) -> str:
        """One line for memory cards and logs."""
        return f"{self.index.description}, {len(self.hidden)} of them hidden"

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """Find the k nearest keys of each query [q, d] that are not hidden; see `Index.search`."""
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


def hide(index: Index, entries: NDArray[np.int64]) -> Index:
    """Return an index that does not find these ascending entries, by its own means or by filtering its results."""
    if not len(entries):
        return index
    hidden = index.without(entries) if isinstance(index, SupportsHiding) else None
    return hidden or FilteredIndex(index, torch.from_numpy(entries))


@dataclass(frozen=True)
class IndexPart:
    """An index of some consecutive entries of a whole.

    Attributes:
        index: the index of the part.
        first: the number in the whole of the first key.
        gone: [n] int64, ascending, the keys of the part that the whole no longer counts: later keys move down.
        view: the faiss index in whose space distances are measured; None for the space of the keys.
    """

    index: Index
    first: int
    gone: Tensor
    view: FaissIndex | None = None

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """Find the k nearest keys of each query [q, d], with their numbers in the whole."""
        if self.view is not None:
            seen = transform(self.view.index, queries.detach().float().cpu().numpy())
            queries = torch.from_numpy(np.ascontiguousarray(seen)).to(queries.device)
        distances, entries = self.index.search(queries, k)
        numbers = self.first + entries
        if len(self.gone):
            numbers -= torch.searchsorted(self.gone.to(entries.device), entries)
        return Neighbours(distances, torch.where(entries < 0, -1, numbers))


@dataclass(frozen=True)
class CompositeIndex:
    """Search indexes of consecutive entries as one index; their distances must be comparable.

    Attributes:
        parts: the parts, in the order of their entries.
        size: the number of keys.
        dimension: the number of components of a query.
    """

    parts: Sequence[IndexPart]
    size: int
    dimension: int

    @property
    def supports_cuda_graph(self) -> bool:
        """False: a part may search on the CPU."""
        return False

    @property
    def description(self) -> str:
        """One line for memory cards and logs."""
        first, *others = [part.index.description for part in self.parts]
        return f"{first}, and {' and '.join(others)}" if others else first

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """Find the k nearest keys of each query [q, d], by distance and then by entry; see `Index.search`."""
        check_search(queries, k, self.dimension)
        found = [part.search(queries, k) for part in self.parts]
        distances = torch.cat([part.distances for part in found], dim=1)
        entries = torch.cat([part.entries for part in found], dim=1)
        order = distances.argsort(dim=1, stable=True)[:, :k]
        return Neighbours(distances.gather(1, order), entries.gather(1, order))


def join(parts: Sequence[IndexPart], size: int, dimension: int) -> Index:
    """Join parts to one index; a single part that is the whole and has no gone keys is its own index."""
    if len(parts) == 1 and not parts[0].first and not len(parts[0].gone) and parts[0].view is None:
        return parts[0].index
    return CompositeIndex(parts, size, dimension)


def main_part(index: Index, gone: NDArray[np.int64], hidden: NDArray[np.int64]) -> IndexPart:
    """Make the first part from an index of which some keys are gone and others hidden.

    Args:
        index: the index.
        gone: [n] ascending keys that the whole no longer counts.
        hidden: [m] ascending keys that the whole counts and must not find.

    Returns:
        The part, which begins at entry 0.
    """
    return IndexPart(hide(index, np.union1d(gone, hidden)), 0, torch.from_numpy(gone))


def exact_part(
    keys: Floats,
    first: int,
    hidden: NDArray[np.int64],
    like: Index,
    device: torch.device | str,
    code: Callable[[Floats], Floats] | None = None,
) -> IndexPart:
    """Make a part with exact search whose distances are comparable with those of another index.

    Args:
        keys: [n, d].
        first: the number in the whole of the first key.
        hidden: [m] ascending, the keys of this part that must not be found.
        like: the other index.
        device: where the part is searched.
        code: recodes the keys like the codes of `like`; None for `recode`.

    Returns:
        The part.
    """
    none_gone = torch.empty(0, dtype=torch.int64)
    if not isinstance(like, FaissIndex):
        return IndexPart(hide(ExactIndex(ArrayKeys(keys), device), hidden), first, none_gone)
    coded = recode(like.index, np.ascontiguousarray(keys, dtype=np.float32)) if code is None else code(keys)
    index = ExactIndex(ArrayKeys(coded), device)
    return IndexPart(hide(index, hidden), first, none_gone, like if is_transformed(like.index) else None)


def _drop(found: Neighbours, hidden: Tensor, k: int) -> Neighbours:
    """Return the k nearest of a result that are not hidden."""
    dropped = torch.isin(found.entries, hidden, assume_unique=False)
    distances = found.distances.masked_fill(dropped, torch.inf)
    order = distances.argsort(dim=1, stable=True)[:, :k]
    return Neighbours(distances.gather(1, order), found.entries.masked_fill(dropped, -1).gather(1, order))
