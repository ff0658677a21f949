"""The index of a memory: loaded or built, kept valid while entries are added and removed, searched by model states.

A memory that changed since its index was built is searched as that index, without the removed entries, and small exact
indexes of what was added later.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import torch

from ibidem.compact import Compactor, place_compactor, restore_compactor
from ibidem.errors import DamagedMemoryError, MemoryFolderError
from ibidem.memory import COMPACTOR_ARTEFACT, INDEX_ARTEFACT, serials_of
from ibidem.native import native
from ibidem.retrieve.builder import build_index, exact_index
from ibidem.retrieve.exact import ExactIndex
from ibidem.retrieve.faiss_index import FaissIndex, load_faiss_index
from ibidem.retrieve.faiss_library import Recoder, is_transformed, recode, transform
from ibidem.retrieve.index import Neighbours, check_search
from ibidem.retrieve.index_settings import NATIVE, ExactSettings, is_for_gpu, resolve
from ibidem.retrieve.ivf.index import load_native
from ibidem.retrieve.keys import ArrayKeys, FirstKeys
from ibidem.retrieve.parts import LocalParts, PartedIndex, gone_entries, load_part, read_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.memory import Artefact, Memory
    from ibidem.retrieve.index import Index
    from ibidem.retrieve.keys import Floats
    from ibidem.retrieve.parts import IndexPlan, PartSearcher


@runtime_checkable
class SupportsHiding(Protocol):
    """An index that can skip entries while it searches."""

    def without(self, entries: NDArray[np.int64]) -> Index | None:
        """Return an index that does not find some entries.

        Args:
            entries: [n], ascending entries to hide.

        Returns:
            The index, which shares the keys; None where this kind of index cannot hide entries.
        """
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
    """Return an index that does not find these ascending entries, by its own means or by filtering its results.

    Args:
        index: the index.
        entries: [n], ascending entries to hide.

    Returns:
        The index itself where there is nothing to hide.
    """
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
        """Find the nearest keys of the part, with their numbers in the whole.

        Args:
            queries: [q, d], in the space of the memory's keys.
            k: neighbours for each query, at least 1.

        Returns:
            Distances and entries, each [q, k].
        """
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
    """Join parts to one index.

    Args:
        parts: one or more, in the order of their entries.
        size: entries of the whole.
        dimension: components of a query.

    Returns:
        A `CompositeIndex`; the index of the part where a single part is the whole and has no gone keys.

    Examples:
        >>> first, second = np.eye(4, dtype=np.float16)[:3], np.eye(4, dtype=np.float16)[3:]
        >>> base, none = ExactIndex(ArrayKeys(first)), np.empty(0, np.int64)
        >>> whole = join([main_part(base, none, none), exact_part(second, 3, none, base, "cpu")], size=4, dimension=4)
        >>> whole.search(torch.eye(4), k=1).entries.flatten().tolist()
        [0, 1, 2, 3]
    """
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

    See `join` for an example.

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
        """Return the keys of this index that the memory no longer has.

        Args:
            memory: the memory, in its current state.

        Returns:
            [n] int64, ascending, numbered as in this index.
        """
        return gone_entries(memory, self.covered, self.removals)

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
        """Return the part that covers the entries of the memory's tail.

        Args:
            memory: the memory, in its current state.
            device: where the part is searched.
        """
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
    """Return an index of a memory's keys that takes states of the model as queries.

    Args:
        index: an index of the memory's keys.
        memory: the memory.
        device: where the compactor runs.

    Returns:
        A `CompactedIndex`; the index itself where the keys are not compact.

    Raises:
        DamagedMemoryError: The compactor is missing, or does not belong to the keys.
    """
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
        record = memory.manifest.artefacts.get(INDEX_ARTEFACT)
        if record is not None and record.info.get("kind") == NATIVE:
            keys.chunks()  # verifies the keys: damaged ones are an error, a damaged index is not
        problem = None
        try:
            if (plan := read_plan(memory)) is not None:
                parts = LocalParts([load_part(memory, plan, number + 1) for number in range(len(plan.parts))])
                return parted_base(memory, plan, parts)
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
        index = build_index(keys, wanted, seed=memory.manifest.seed, device=device)
        if problem is not None:  # and not in the keys, which the index refers to
            warnings.warn(f"{problem}. It is not used; `ibidem index -m {memory.path}` stores a new one.", stacklevel=2)
    return BaseIndex(index, keys.size, len(memory.removed_entries))


def parted_base(memory: Memory, plan: IndexPlan, searcher: PartSearcher) -> BaseIndex:
    """Join the parts of a divided index to the index of the first entries of a memory.

    Args:
        memory: The memory.
        plan: Its plan.
        searcher: Searches the parts.
    """
    gone = gone_entries(memory, plan.size, plan.removals)
    index = PartedIndex(plan, searcher, gone)
    return BaseIndex(index, index.size, len(memory.removed_entries))


def _load_stored(memory: Memory, stored: Artefact) -> BaseIndex:
    """Load the stored index; reject one that covers more entries than the memory can have had."""
    try:
        size, removals = int(stored.info["size"]), int(stored.info.get("removals", 0))
    except (KeyError, TypeError, ValueError) as error:
        raise MemoryFolderError(f"The description of the index {stored.path} is incomplete ({error!r})") from error
    ever = memory.entries + len(memory.removed_entries) - removals
    if stored.info.get("kind") != NATIVE:
        keys = FirstKeys(memory.search_keys, min(size, ever))
        return BaseIndex(load_faiss_index(stored.path, stored.info, keys), size, removals)
    gone = gone_entries(memory, size, removals)
    left = min(size, ever) - len(gone)
    index = load_native(stored.path, stored.info, FirstKeys(memory.search_keys, left), gone)
    if native() is None:
        warnings.warn(
            f"The index of {memory.path} is read without ibidem's native library, which is slow; "
            f"`ibidem index -m {memory.path}` builds one for this machine.",
            stacklevel=3,
        )
    return BaseIndex(index, left, len(memory.removed_entries))
