"""Several indexes searched as one: the sealed one, and small exact ones of what came after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ibidem.retrieve.approximate import FaissIndex
from ibidem.retrieve.coding import is_transformed, recode, transform
from ibidem.retrieve.exact import ExactIndex
from ibidem.retrieve.hiding import hide
from ibidem.retrieve.keys import ArrayKeys
from ibidem.retrieve.neighbours import Neighbours, check_search

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.retrieve.keys import Floats
    from ibidem.retrieve.neighbours import Index


@dataclass(frozen=True)
class IndexPart:
    """An index and what its numbers mean in the whole: `first` is that of its first key.

    gone: [n] int64, rising, the keys that the whole no longer counts: those after them move down.
    view: the faiss index in whose space the distances are to be measured, where that is not the keys' own.
    """

    index: Index
    first: int
    gone: Tensor
    view: FaissIndex | None = None

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """The k nearest keys with their numbers in the whole."""
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
    """Indexes of consecutive entries as one index; the parts' distances must mean the same."""

    parts: Sequence[IndexPart]
    size: int
    dimension: int

    @property
    def supports_cuda_graph(self) -> bool:
        return False

    @property
    def description(self) -> str:
        """One line for cards and logs."""
        first, *others = [part.index.description for part in self.parts]
        return f"{first}, and {' and '.join(others)}" if others else first

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """Find the k nearest keys of each query, by distance and then by entry."""
        check_search(queries, k, self.dimension)
        found = [part.search(queries, k) for part in self.parts]
        distances = torch.cat([part.distances for part in found], dim=1)
        entries = torch.cat([part.entries for part in found], dim=1)
        order = distances.argsort(dim=1, stable=True)[:, :k]
        return Neighbours(distances.gather(1, order), entries.gather(1, order))


def main_part(index: Index, gone: NDArray[np.int64], hidden: NDArray[np.int64]) -> IndexPart:
    """The part of an index from which some keys are `gone` and some more are `hidden`; both rise."""
    return IndexPart(hide(index, np.union1d(gone, hidden)), 0, torch.from_numpy(gone))


def exact_part(
    keys: Floats,
    first: int,
    hidden: NDArray[np.int64],
    like: Index,
    device: torch.device | str,
    code: Callable[[Floats], Floats] | None = None,
) -> IndexPart:
    """An exact index of keys [n, d], numbered from `first`, whose distances compare with those of the index `like`.

    code: gives the keys as the codes of `like` would be read, in place of `recode`.
    """
    nothing = torch.empty(0, dtype=torch.int64)
    if not isinstance(like, FaissIndex):
        return IndexPart(hide(ExactIndex(ArrayKeys(keys), device), hidden), first, nothing)
    coded = recode(like.index, np.ascontiguousarray(keys, dtype=np.float32)) if code is None else code(keys)
    index = ExactIndex(ArrayKeys(coded), device)
    return IndexPart(hide(index, hidden), first, nothing, like if is_transformed(like.index) else None)
