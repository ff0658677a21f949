"""The index of a memory: loaded or built, kept valid while entries are added and removed, searched by model states."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ibidem.compact import Compactor, place_compactor, restore_compactor
from ibidem.errors import DamagedMemoryError, MemoryFolderError
from ibidem.memory import COMPACTOR_ARTEFACT, INDEX_ARTEFACT, numbers_among, serials_of
from ibidem.native import native
from ibidem.retrieve.builder import build_index, exact_index
from ibidem.retrieve.composite import IndexPart, exact_part, join, main_part
from ibidem.retrieve.faiss_index import FaissIndex, load_faiss_index
from ibidem.retrieve.faiss_library import Recoder
from ibidem.retrieve.index import check_search
from ibidem.retrieve.ivf.index import load_native
from ibidem.retrieve.keys import FirstKeys
from ibidem.retrieve.settings import NATIVE, ExactSettings, is_for_gpu, resolve

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.memory import Artefact, Memory
    from ibidem.retrieve.index import Index, Neighbours


@dataclass(frozen=True)
class BaseIndex:
    """An index of the first entries of a memory, as they were numbered when the index was built.

    Attributes:
        index: the index, in the space of the memory's keys.
        covered: the number of entries that it covers.
        removals: how many of `Memory.removed_entries` had been removed when it was built.
    """

    index: Index
    covered: int
    removals: int

    def gone(self, memory: Memory) -> NDArray[np.int64]:
        """Return the keys of this index, by its own ascending numbers, that the memory no longer has."""
        known = np.sort(memory.removed_entries[: self.removals])
        own = np.sort(numbers_among(memory.removed_entries[self.removals :], known))
        return own[own < self.covered]

    def parts(self, memory: Memory, hidden: NDArray[np.int64], device: torch.device | str) -> list[IndexPart]:
        """Return the parts that cover all sealed entries of the memory: this index and what was added after it.

        Args:
            memory: the memory, in its current state.
            hidden: [n] ascending entries that must not be found.
            device: where the added entries are searched.

        Returns:
            At most two parts, for `join`.
        """
        gone = self.gone(memory)
        newer = self.covered - len(gone)
        own = serials_of(hidden[hidden < newer], gone)
        parts = [main_part(self.index, gone, own)] if self.covered else []
        keys = memory.search_keys.read(newer, memory.entries)
        recoder = self._recoder
        code = None if recoder is None else recoder.sealed
        if len(keys):
            parts.append(exact_part(keys, newer, hidden[hidden >= newer] - newer, self.index, device, code))
        return parts

    def tail_part(self, memory: Memory, device: torch.device | str) -> IndexPart:
        """Return the part that covers the entries of the memory's tail."""
        recoder = self._recoder
        code = None if recoder is None else recoder.tail
        removed = np.flatnonzero(~memory.tail.active_entries)
        return exact_part(memory.tail_keys(), memory.entries, removed, self.index, device, code)

    @cached_property
    def _recoder(self) -> Recoder | None:
        return Recoder(self.index.index) if isinstance(self.index, FaissIndex) else None


@dataclass(frozen=True)
class CompactedIndex:
    """An index of compact keys whose queries pass through the compactor first.

    Attributes:
        index: the index of the compact keys.
        compactor: maps a state of the model to a compact key.
    """

    index: Index
    compactor: Compactor

    @property
    def supports_cuda_graph(self) -> bool:
        """Whether a search can be captured in a CUDA graph."""
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
        """One line for memory cards and logs."""
        return (
            f"{self.index.description}, after {self.compactor.summary()['kind']} to {self.index.dimension} dimensions"
        )

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """Find the k nearest keys of each query [q, d] of the model's own dimension; see `Index.search`."""
        check_search(queries, k, self.dimension)
        return self.index.search(self.compactor(queries), k)


def compactor_of(memory: Memory) -> Compactor | None:
    """Load the compactor that made the compact keys of a memory.

    Args:
        memory: the memory.

    Returns:
        The compactor, or None where the keys are not compact.

    Raises:
        DamagedMemoryError: The compactor is missing, or does not belong to the keys.
    """
    if memory.layout.compact is None:
        return None
    stored = memory.artefact(COMPACTOR_ARTEFACT)
    if stored is None:
        raise DamagedMemoryError(f"{memory.path} has compact keys, but no compactor: restore it from a copy.")
    compactor = restore_compactor(stored.path.read_bytes())
    if (compactor.input_dimension, compactor.dimension) != (memory.identity.dimension, memory.layout.compact):
        raise DamagedMemoryError(f"The compactor of {memory.path} is not the one of its keys: restore it from a copy.")
    return compactor


def with_compactor(index: Index, memory: Memory, device: torch.device) -> Index:
    """Return an index of a memory's keys that takes states of the model as queries."""
    compactor = compactor_of(memory)
    return index if compactor is None else CompactedIndex(index, place_compactor(compactor, device))


def open_index(memory: Memory, setting: str | None, device: torch.device) -> Index:
    """Open an index of all sealed entries of a memory that takes states of the model as queries.

    Args:
        memory: the memory.
        setting: the index setting; None for that of the memory.
        device: where the index is searched.

    Returns:
        The stored index with an exact one of what was added after it; exact search on CUDA; or an index built now.
    """
    parts = open_base_index(memory, setting, device).parts(memory, np.empty(0, np.int64), device)
    return with_compactor(join(parts, memory.entries, memory.dimension), memory, device)


def open_base_index(memory: Memory, setting: str | None, device: torch.device) -> BaseIndex:
    """Open the index of a memory, in the space of its keys.

    An index is derived data: if the stored one is damaged or does not fit, a warning is given and one is built now.

    Args:
        memory: the memory.
        setting: the index setting; None for that of the memory.
        device: where the index is searched.

    Returns:
        The stored index, or one built now over all sealed entries.
    """
    keys = memory.search_keys
    stored_setting = memory.manifest.stages.get("index", {}).get("setting")
    if setting is not None and setting != stored_setting:
        index = build_index(keys, setting, seed=memory.manifest.seed, device=device)
    elif device.type == "cuda" and stored_setting is not None and is_for_gpu(stored_setting):
        index = build_index(keys, stored_setting, seed=memory.manifest.seed, device=device)
    elif setting is None and device.type == "cuda":
        index = exact_index(keys, device)
    else:
        wanted = setting or stored_setting or "auto"
        if setting is None and native() is None and wanted.startswith(NATIVE):
            wanted = "auto"  # the memory comes from a machine that has the native library
        try:
            if (stored := memory.artefact(INDEX_ARTEFACT)) is not None:
                return _load_stored(memory, stored)
            if not isinstance(resolve(wanted, keys.size, memory.dimension, device=device), ExactSettings):
                warnings.warn(
                    f"{memory.path} has no index stored for the CPU, so one is built now and at every start; "
                    f"`ibidem index -m {memory.path}` stores one.",
                    stacklevel=2,
                )
        except MemoryFolderError as damage:
            problem = str(damage).removesuffix(".")
            warnings.warn(f"{problem}. It is not used; `ibidem index -m {memory.path}` stores a new one.", stacklevel=2)
        index = build_index(keys, wanted, seed=memory.manifest.seed, device=device)
    return BaseIndex(index, keys.size, len(memory.removed_entries))


def _load_stored(memory: Memory, stored: Artefact) -> BaseIndex:
    """Load the stored index; reject one that covers more entries than the memory can have had."""
    try:
        size, removals = int(stored.info["size"]), int(stored.info.get("removals", 0))
    except (KeyError, TypeError, ValueError) as error:
        raise MemoryFolderError(f"The description of the index {stored.path} is incomplete ({error!r})") from error
    ever = memory.entries + len(memory.removed_entries) - removals
    keys = FirstKeys(memory.search_keys, min(size, ever))
    if stored.info.get("kind") != NATIVE:
        return BaseIndex(load_faiss_index(stored.path, stored.info, keys), size, removals)
    index = load_native(stored.path, stored.info, keys)
    if native() is None:
        warnings.warn(
            f"The index of {memory.path} is read without ibidem's native library, which is slow; "
            f"`ibidem index -m {memory.path}` builds one for this machine.",
            stacklevel=3,
        )
    return BaseIndex(index, size, removals)
