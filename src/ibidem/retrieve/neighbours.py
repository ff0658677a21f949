"""What a search answers, what an index offers, and the checks every index makes of its queries."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ibidem.errors import UsageError

# Below this squared length neither a product of two vectors nor their squared distance can overflow float32.
LARGEST_SQUARE = 2.0**120


class Neighbours(NamedTuple):
    """The nearest keys of each query, nearest first, on the queries' device.

    distances: [q, k] float32, squared L2, inf where there is no neighbour;
    entries: [q, k] int64, -1 where there is no neighbour.
    """

    distances: Tensor
    entries: Tensor


class Index(Protocol):
    """A searchable form of a memory's keys."""

    @property
    def size(self) -> int:
        """The number of keys."""
        ...

    @property
    def dimension(self) -> int:
        """The number of components of a key."""
        ...

    @property
    def description(self) -> str:
        """One line for cards and logs."""
        ...

    @property
    def supports_cuda_graph(self) -> bool:
        """Whether a search can be recorded in a CUDA graph: it stays on the device and never waits for it."""
        ...

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """Find the k nearest keys of each query; queries: [q, d], any float type, CPU or CUDA."""
        ...


def check_search(queries: Tensor, k: int, dimension: int) -> None:
    """Refuse queries of the wrong shape, and a k below one."""
    if queries.ndim != 2 or queries.shape[1] != dimension:
        raise UsageError(
            f"Search got queries of shape {list(queries.shape)}, but this index holds keys of {dimension} "
            f"dimensions. Give queries of shape [any, {dimension}], made by the same model and compactor."
        )
    if k < 1:
        raise UsageError(f"Search was asked for k = {k} neighbours. Ask for 1 or more.")


def clean_queries(queries: Tensor) -> tuple[Tensor, Tensor]:
    """Put zeros in the place of queries that have no distance to anything (NaN, inf, overflow).

    queries: [q, d]; gives them as [q, d] float32, and [q] bool, true where the query is usable.
    """
    plain = queries.detach().to(torch.float32)
    usable = plain.double().square().sum(1) < LARGEST_SQUARE
    return plain.masked_fill(~usable[:, None], 0.0), usable


def blank_unusable(distances: Tensor, entries: Tensor, usable: Tensor) -> Neighbours:
    """Give the rows of unusable queries no neighbours; distances, entries: [q, k], usable: [q] bool."""
    unusable = ~usable[:, None]
    return Neighbours(distances.masked_fill(unusable, torch.inf), entries.masked_fill(unusable, -1))
