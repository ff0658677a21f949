"""Search by the native index: a mapped file, never changed by a search."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.errors import MemoryFolderError
from ibidem.native import LANES, Probing
from ibidem.retrieve.ivf.file import NativeFile, open_file
from ibidem.retrieve.ivf.settings import NAME, NativeSettings
from ibidem.retrieve.neighbours import Neighbours, check_search

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.native import Ivf
    from ibidem.retrieve.ivf.plain import PlainIvf
    from ibidem.retrieve.keys import Keys

_REMEDY = "Build it again with `ibidem index`"
_COPY_BYTES = 1 << 26


@dataclass(frozen=True)
class NativeIndex:
    """An inverted file and how to search it.

    recall: recall@16 where it was measured; threads: for search, given None all that torch has; live: [blocks] a bit
    for each place, 0 for an entry that is passed over. Distances are those to the keys as the memory holds them.
    """

    file: NativeFile
    settings: NativeSettings
    recall: float | None = None
    threads: int | None = None
    live: NDArray[np.uint16] | None = None

    @property
    def supports_cuda_graph(self) -> bool:
        return False

    @property
    def size(self) -> int:
        """The number of keys, those that are passed over too."""
        return self.file.shape.size

    @property
    def dimension(self) -> int:
        """The number of components of a key."""
        return self.file.shape.dimension

    @property
    def description(self) -> str:
        """One line for cards and logs."""
        settings = self.settings
        parts = [
            f"native IVF of {settings.lists} lists, 2-bit residuals",
            f"{self.size} keys of {self.dimension} dimensions",
            f"nprobe {settings.nprobe}, gamma {settings.gamma:.3g}, refine {settings.refine}",
        ]
        parts += [] if self.recall is None else [f"recall@16 {self.recall:.3f}"]
        return ", ".join(parts)

    @property
    def ivf(self) -> Ivf | PlainIvf:
        """What does the searching."""
        return self.file.ivf

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """Find about the k nearest keys of each query; queries: [q, d], any float type, CPU or CUDA."""
        check_search(queries, k, self.dimension)
        distances, entries = self.ivf.search(queries, k, self.probing(k), self.live, self.threads)
        return Neighbours(distances.to(queries.device), entries.to(queries.device))

    def probing(self, k: int, *, brief: bool = False) -> Probing:
        """How far a search for k neighbours looks, or a brief one."""
        settings = self.settings.brief if brief else self.settings
        return Probing(settings.nprobe, settings.pool(k), settings.gamma, settings.block_gamma, settings.groups)

    def without(self, entries: NDArray[np.int64]) -> NativeIndex:
        """The same index, passing over these entries."""
        live = (self._occupied if self.live is None else self.live).copy()
        places = self._places[:, entries].reshape(-1)
        np.bitwise_and.at(live, places // LANES, ~(1 << (places % LANES)).astype(np.uint16))
        return replace(self, live=live)

    @cached_property
    def _occupied(self) -> NDArray[np.uint16]:
        """A bit [blocks] for each place that holds a key."""
        there = (self.file.lists.slots >= 0).reshape(-1, LANES)
        return np.packbits(there, axis=1, bitorder="little").view("<u2").reshape(-1)

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        """The first and the last place of each entry [2, size], which is the same for who has one."""
        lists = self.file.lists
        taken = np.flatnonzero(lists.slots >= 0)
        entries = lists.entries[lists.slots[taken]]
        places = np.empty((2, self.size), np.int64)
        places[0, entries[::-1]] = taken[::-1]
        places[1, entries] = taken
        return places

    def save(self, path: str | Path) -> dict[str, Any]:
        """Write the index to a file, all or nothing, and give what `load_native` must be told about it."""
        target = Path(path)
        beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        everything = self.file.bytes
        try:
            with beside.open("wb") as file:
                for begin in range(0, len(everything), _COPY_BYTES):
                    file.write(everything[begin : begin + _COPY_BYTES].data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(target)
        except OSError as error:
            raise MemoryFolderError(
                f"The index could not be written to {target}: {error}. See that the folder exists and has space, "
                "then run `ibidem index` again."
            ) from error
        finally:
            beside.unlink(missing_ok=True)
        settings = self.settings
        return {
            "kind": NAME,
            "lists": settings.lists,
            "nprobe": settings.nprobe,
            "gamma": settings.gamma,
            "refine": settings.refine,
            "notes": list(settings.notes),
            "size": self.size,
            "dimension": self.dimension,
            "recall": self.recall,
        }


def load_native(path: str | Path, info: Mapping[str, Any], keys: Keys, *, threads: int | None = None) -> NativeIndex:
    """Map an index that `save` wrote, with the info it gave, and refuse one that is not of these keys.

    It needs no native library, but is searched slowly without one.
    """
    try:
        settings = NativeSettings(
            lists=_at_least(1, int(info["lists"])),
            nprobe=_at_least(1, int(info["nprobe"])),
            gamma=_at_least(1, float(info["gamma"])),
            refine=_at_least(1, int(info["refine"])),
            notes=tuple(str(note) for note in info["notes"]),
        )
        recall = None if info["recall"] is None else float(info["recall"])
    except (KeyError, TypeError, ValueError) as error:
        raise MemoryFolderError(f"The description of the index {path} is incomplete ({error!r}). {_REMEDY}.") from error
    try:
        file = open_file(Path(path))
    except (OSError, ValueError) as error:
        raise MemoryFolderError(f"The index {path} cannot be read: {error}. {_REMEDY}.") from error
    found, expected = (file.shape.size, file.shape.dimension), (keys.size, keys.dimension)
    if found != expected:
        raise MemoryFolderError(
            f"The index {path} speaks of {found[0]} keys of {found[1]} dimensions, but the memory has {expected[0]} of "
            f"{expected[1]}. {_REMEDY}."
        )
    return NativeIndex(file, settings, recall, threads)


def _at_least(least: int, value: Any) -> Any:
    if not value >= least:
        raise ValueError(f"{value!r} is below {least}")
    return value
