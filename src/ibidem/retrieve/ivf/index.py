"""Search of the native index: a mapped file that no search changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.errors import MemoryFolderError
from ibidem.native import LANES, SearchLimits
from ibidem.retrieve.index import REBUILD, Neighbours, check_search, check_shape, write_file
from ibidem.retrieve.ivf.file import NativeFile, open_file
from ibidem.retrieve.settings import NATIVE, NativeSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.native import Ivf
    from ibidem.retrieve.ivf.reference import ReferenceIvf
    from ibidem.retrieve.keys import Keys

_COPY_BYTES = 1 << 26


@dataclass(frozen=True)
class NativeIndex:
    """An inverted file of 2-bit codes and its search settings.

    Candidates are found by codes and reranked by the distance to the keys as the memory holds them.

    Attributes:
        file: the mapped file.
        settings: how it was built and is searched.
        recall: recall@16, None if it was not measured.
        threads: the most threads of a search; None for as many as torch uses.
        live: [blocks] uint16, one bit for each place, 0 for an entry that must not be found; None for all.
    """

    file: NativeFile
    settings: NativeSettings
    recall: float | None = None
    threads: int | None = None
    live: NDArray[np.uint16] | None = None

    @property
    def supports_cuda_graph(self) -> bool:
        """False: the index is searched on the CPU."""
        return False

    @property
    def size(self) -> int:
        """The number of keys, including hidden ones."""
        return self.file.shape.size

    @property
    def dimension(self) -> int:
        """The number of components of a key."""
        return self.file.shape.dimension

    @property
    def description(self) -> str:
        """One line for memory cards and logs."""
        settings = self.settings
        parts = [
            f"native IVF of {settings.lists} lists, 2-bit residuals",
            f"{self.size} keys of {self.dimension} dimensions",
            f"nprobe {settings.nprobe}, prune ratio {settings.prune_ratio:.3g}, rerank {settings.rerank}",
        ]
        parts += [] if self.recall is None else [f"recall@16 {self.recall:.3f}"]
        return ", ".join(parts)

    @property
    def ivf(self) -> Ivf | ReferenceIvf:
        """The implementation that searches the file: the native library, or numpy where there is none."""
        return self.file.ivf

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """Find about the k nearest keys of each query [q, d]; see `Index.search`."""
        check_search(queries, k, self.dimension)
        distances, entries = self.ivf.search(queries, k, self.probing(k), self.live, self.threads)
        return Neighbours(distances.to(queries.device), entries.to(queries.device))

    def probing(self, k: int, *, reduced: bool = False) -> SearchLimits:
        """Return the search parameters of the native library.

        Args:
            k: neighbours for each query.
            reduced: search a quarter of the lists.

        Returns:
            The parameters.
        """
        settings = self.settings.reduced if reduced else self.settings
        return SearchLimits(
            settings.nprobe, settings.rerank_for(k), settings.prune_ratio, settings.block_prune_ratio, settings.groups
        )

    def without(self, entries: NDArray[np.int64]) -> NativeIndex:
        """Return an index of the same file that does not find these entries."""
        live = (self._occupied if self.live is None else self.live).copy()
        places = self._places[:, entries].reshape(-1)
        np.bitwise_and.at(live, places // LANES, ~(1 << (places % LANES)).astype(np.uint16))
        return replace(self, live=live)

    def save(self, path: str | Path) -> dict[str, Any]:
        """Write the index to a file, atomically.

        Args:
            path: the file to write or replace.

        Returns:
            The description that `load_native` needs, for JSON.

        Raises:
            MemoryFolderError: The file cannot be written.
        """
        content = self.file.bytes

        def write(target: Path) -> None:
            with target.open("wb") as file:
                for begin in range(0, len(content), _COPY_BYTES):
                    file.write(content[begin : begin + _COPY_BYTES].data)

        write_file(Path(path), write)
        settings = self.settings
        return {
            "kind": NATIVE,
            "lists": settings.lists,
            "nprobe": settings.nprobe,
            "gamma": settings.prune_ratio,
            "refine": settings.rerank,
            "notes": list(settings.notes),
            "size": self.size,
            "dimension": self.dimension,
            "recall": self.recall,
        }

    @cached_property
    def _occupied(self) -> NDArray[np.uint16]:
        """A bit for each place that holds a key, [blocks]."""
        occupied = (self.file.lists.slots >= 0).reshape(-1, LANES)
        return np.packbits(occupied, axis=1, bitorder="little").view("<u2").reshape(-1)

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        """The first and the last place of each entry, [2, size]; they are equal for an entry that has only one."""
        lists = self.file.lists
        taken = np.flatnonzero(lists.slots >= 0)
        entries = lists.entries[lists.slots[taken]]
        places = np.empty((2, self.size), np.int64)
        places[0, entries[::-1]] = taken[::-1]
        places[1, entries] = taken
        return places


def load_native(path: str | Path, info: Mapping[str, Any], keys: Keys, *, threads: int | None = None) -> NativeIndex:
    """Map an index that `NativeIndex.save` wrote; without the native library its search is slow.

    Args:
        path: the file.
        info: the description that `save` returned.
        keys: the keys that the index must have been built from.
        threads: the most threads of a search; None for as many as torch uses.

    Returns:
        The index.

    Raises:
        MemoryFolderError: The file or its description is damaged, or belongs to other keys.
    """
    try:
        settings = NativeSettings(
            lists=_at_least_one(int(info["lists"])),
            nprobe=_at_least_one(int(info["nprobe"])),
            prune_ratio=_at_least_one(float(info["gamma"])),
            rerank=_at_least_one(int(info["refine"])),
            notes=tuple(str(note) for note in info["notes"]),
        )
        recall = None if info["recall"] is None else float(info["recall"])
    except (KeyError, TypeError, ValueError) as error:
        raise MemoryFolderError(f"The description of the index {path} is incomplete ({error!r}). {REBUILD}.") from error
    try:
        file = open_file(Path(path))
    except (OSError, ValueError) as error:
        raise MemoryFolderError(f"The index {path} cannot be read: {error}. {REBUILD}.") from error
    check_shape(f"index {path}", file.shape.size, file.shape.dimension, keys)
    return NativeIndex(file, settings, recall, threads)


def _at_least_one(value: Any) -> Any:
    if not value >= 1:
        raise ValueError(f"{value!r} is below 1")
    return value
