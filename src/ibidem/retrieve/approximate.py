"""Search by a faiss index: saved beside the memory, loaded again, never changed by a search."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ibidem.errors import MemoryFolderError
from ibidem.retrieve.library import limit_threads, load_faiss, reason, search_parameters
from ibidem.retrieve.neighbours import Neighbours, blank_unusable, check_search, clean_queries
from ibidem.retrieve.settings import FaissSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.retrieve.keys import Keys

_REMEDY = "Build it again with `ibidem index`"


@dataclass(frozen=True)
class FaissIndex:
    """A built faiss index and how to search it.

    index: the faiss index; recall: recall@16 where it was measured; threads: for search, given None all that torch has;
    selector: of the entries that may be found, given None all.
    Distances are faiss's own: those to the coded keys, approximate where the codes are.
    """

    index: Any
    settings: FaissSettings
    recall: float | None = None
    threads: int | None = None
    selector: Any = None

    @property
    def supports_cuda_graph(self) -> bool:
        return False

    @property
    def size(self) -> int:
        """The number of keys."""
        return int(self.index.ntotal)

    @property
    def dimension(self) -> int:
        """The number of components of a key."""
        return int(self.index.d)

    @property
    def description(self) -> str:
        """One line for cards and logs."""
        parts = [f"faiss {self.settings.factory}", f"{self.size} keys of {self.dimension} dimensions"]
        for name in ("nprobe", "ef_search", "k_factor"):
            value = getattr(self.settings, name)
            parts += [] if value is None else [f"{name} {value:g}"]
        parts += [] if self.recall is None else [f"recall@16 {self.recall:.3f}"]
        return ", ".join(parts)

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """Find about the k nearest keys of each query; queries: [q, d], any float type, CPU or CUDA."""
        check_search(queries, k, self.dimension)
        clean, usable = clean_queries(queries.cpu())
        settings = self.settings
        parameters = search_parameters(
            self.index, settings.nprobe, settings.ef_search, settings.k_factor, self.selector
        )
        distances = np.full((len(clean), k), np.inf, dtype=np.float32)
        entries = np.full((len(clean), k), -1, dtype=np.int64)
        # faiss takes k above the number of keys badly in some indexes (fast scan, refine).
        width = min(k, self.size)
        if width and len(clean):
            with limit_threads(self.threads):
                found = self.index.search(np.ascontiguousarray(clean.numpy()), width, params=parameters)
            distances[:, :width], entries[:, :width] = found
        nearness = torch.from_numpy(distances).clamp_(min=0).masked_fill_(torch.from_numpy(entries < 0), torch.inf)
        answer = blank_unusable(nearness, torch.from_numpy(entries), usable)
        return Neighbours(answer.distances.to(queries.device), answer.entries.to(queries.device))

    def without(self, entries: NDArray[np.int64]) -> FaissIndex | None:
        """This index, in which these entries are not found; None where faiss cannot do that with its kind."""
        visible = np.ones(self.size, np.uint8)
        visible[entries] = 0
        chosen = load_faiss().IDSelectorBitmap(np.packbits(visible, bitorder="little"))
        hiding = replace(self, selector=chosen)
        try:
            hiding.search(torch.zeros(1, self.dimension), 1)
        except RuntimeError:
            return None
        return hiding

    def save(self, path: str | Path) -> dict[str, Any]:
        """Write the index to a file, all or nothing, and give what `load_index` must be told about it."""
        faiss = load_faiss()
        target = Path(path)
        beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            faiss.write_index(self.index, str(beside))
            _sync(beside)
            beside.replace(target)
            _sync(target.parent)
        except (OSError, RuntimeError) as error:
            raise MemoryFolderError(
                f"The index could not be written to {target}: {reason(error)}. See that the folder "
                "exists and has space, then run `ibidem index` again."
            ) from error
        finally:
            beside.unlink(missing_ok=True)
        return {
            "kind": "faiss",
            "factory": self.settings.factory,
            "nprobe": self.settings.nprobe,
            "ef_search": self.settings.ef_search,
            "k_factor": self.settings.k_factor,
            "notes": list(self.settings.notes),
            "size": self.size,
            "dimension": self.dimension,
            "recall": self.recall,
            "faiss": faiss.__version__,
        }


def load_index(path: str | Path, info: Mapping[str, Any], keys: Keys, *, threads: int | None = None) -> FaissIndex:
    """Read an index that `save` wrote, with the info it gave, and refuse one that is not of these keys."""
    faiss = load_faiss()
    try:
        settings = FaissSettings(
            factory=str(info["factory"]),
            nprobe=_optional(info["nprobe"], int),
            ef_search=_optional(info["ef_search"], int),
            k_factor=_optional(info["k_factor"], float),
            notes=tuple(str(note) for note in info["notes"]),
        )
        recall = _optional(info["recall"], float, least=0)
        announced = (int(info["size"]), int(info["dimension"]))
    except (KeyError, TypeError, ValueError) as error:
        raise MemoryFolderError(f"The description of the index {path} is incomplete ({error!r}). {_REMEDY}.") from error
    try:
        index = faiss.read_index(str(path))
    except (RuntimeError, MemoryError) as error:
        raise MemoryFolderError(f"The index {path} cannot be read: {reason(error)}. {_REMEDY}.") from error
    expected = (keys.size, keys.dimension)
    for what, found in (("description", announced), ("file", (index.ntotal, index.d))):
        if found != expected:
            raise MemoryFolderError(
                f"The {what} of the index {path} speaks of {found[0]} keys of {found[1]} dimensions, but the "
                f"memory has {expected[0]} of {expected[1]}. {_REMEDY}."
            )
    return FaissIndex(index, settings, recall, threads)


def _optional(value: Any, kind: type[Any], least: int = 1) -> Any:
    if value is None:
        return None
    number = kind(value)
    if not number >= least:
        raise ValueError(f"{value!r} is below {least}")
    return number


def _sync(path: Path) -> None:
    """Have the system put a file, or a folder's names, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
