"""The Index protocol, its search result, and what all indexes share: query checks and index files."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor

from ibidem.errors import MemoryFolderError, UsageError
from ibidem.memory import fill_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ibidem.retrieve.keys import Keys

# Below this squared length neither a product of two vectors nor their squared distance can overflow float32.
LARGEST_SQUARE = 2.0**120
REBUILD = "Build it again with `ibidem index`"


class Neighbours(NamedTuple):
    """The nearest keys of each query, nearest first, on the device of the queries.

    Attributes:
        distances: [q, k] float32, squared L2 distances, inf where there is no neighbour.
        entries: [q, k] int64, entry numbers, -1 where there is no neighbour.
    """

    distances: Tensor
    entries: Tensor


class Index(Protocol):
    """A searchable form of the keys of a memory.

    Examples:
        >>> import numpy as np, torch
        >>> from ibidem.retrieve import ArrayKeys, build_index
        >>> index = build_index(ArrayKeys(np.eye(4, dtype=np.float16)), "exact", seed=0)
        >>> index.search(torch.eye(4)[:2], k=1).entries.tolist()
        [[0], [1]]
    """

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
        """One line for memory cards and logs."""
        ...

    @property
    def supports_cuda_graph(self) -> bool:
        """Whether a search can be captured in a CUDA graph: it runs on the device without synchronising."""
        ...

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """Find the k nearest keys of each query.

        Args:
            queries: [q, d], any float type, on the CPU or on CUDA.
            k: neighbours for each query, at least 1.

        Returns:
            Distances and entries, each [q, k].

        Raises:
            UsageError: The queries have the wrong shape, or k is below 1.
        """
        ...


def check_search(queries: Tensor, k: int, dimension: int) -> None:
    """Reject queries of the wrong shape and a k below 1.

    Args:
        queries: what the caller gave as queries.
        k: neighbours for each query.
        dimension: components of a key of the index.

    Raises:
        UsageError: The shape is not [q, dimension], or k is below 1.
    """
    if queries.ndim != 2 or queries.shape[1] != dimension:
        raise UsageError(
            f"Search got queries of shape {list(queries.shape)}, but this index holds keys of {dimension} "
            f"dimensions. Give queries of shape [any, {dimension}], made by the same model and compactor."
        )
    if k < 1:
        raise UsageError(f"Search got k = {k}. Give 1 or more.")


def clean_queries(queries: Tensor) -> tuple[Tensor, Tensor]:
    """Replace queries that have no finite distances (NaN, inf, overflow) by zeros.

    Args:
        queries: [q, d].

    Returns:
        The queries as [q, d] float32, and [q] bool, true where the query is usable.
    """
    plain = queries.detach().to(torch.float32)
    usable = plain.double().square().sum(1) < LARGEST_SQUARE
    return plain.masked_fill(~usable[:, None], 0.0), usable


def blank_unusable(distances: Tensor, entries: Tensor, usable: Tensor) -> Neighbours:
    """Remove the neighbours of unusable queries.

    Args:
        distances: [q, k] float32.
        entries: [q, k] int64.
        usable: [q] bool, see `clean_queries`.

    Returns:
        The result, with inf and -1 for unusable queries.
    """
    unusable = ~usable[:, None]
    return Neighbours(distances.masked_fill(unusable, torch.inf), entries.masked_fill(unusable, -1))


def no_neighbours(queries: Tensor, k: int) -> Neighbours:
    """Return the result of a search that finds nothing.

    Args:
        queries: [q, d]; the result is on their device.
        k: columns of the result.

    Returns:
        inf and -1, each [q, k].
    """
    distances = queries.new_full((len(queries), k), torch.inf, dtype=torch.float32)
    return Neighbours(distances, torch.full_like(distances, -1, dtype=torch.int64))


def write_file(target: Path, write: Callable[[Path], None]) -> None:
    """Write an index file atomically: `write` fills a temporary file, which then replaces the target.

    Args:
        target: the path of the index file.
        write: writes to the path that it gets, and raises OSError where that fails.

    Raises:
        MemoryFolderError: The file cannot be written.
    """
    try:
        fill_file(target, write)
    except OSError as error:
        raise MemoryFolderError(
            f"The index could not be written to {target}: {error}. See that the folder exists and has space, "
            "then run `ibidem index` again."
        ) from error


def check_shape(what: str, size: int, dimension: int, keys: Keys) -> None:
    """Reject a stored index whose number of keys or dimensions differs from that of the memory.

    Args:
        what: names the index in the message, as in 'index memories/it/index'.
        size: keys in the stored index.
        dimension: components of a key of the stored index.
        keys: the keys of the memory.

    Raises:
        MemoryFolderError: One of the two numbers differs.
    """
    if (size, dimension) != (keys.size, keys.dimension):
        raise MemoryFolderError(
            f"The {what} has {size} keys of {dimension} dimensions, but the memory has {keys.size} of "
            f"{keys.dimension}. {REBUILD}."
        )
