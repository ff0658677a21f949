"""An index that is divided into parts over consecutive entries: its plan, its parts, and how they are searched as one.

Every part numbers its entries as they were numbered when the plan was made, and keeps these numbers when entries are
removed later. So a part, and the client that joins the parts, may have read different generations of the memory.
"""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from ibidem.errors import MemoryFolderError, UsageError
from ibidem.memory import INDEX_PLAN_ARTEFACT, index_part_artefact, numbers_among, serials_of
from ibidem.native import SearchMode
from ibidem.retrieve.exact import ExactIndex
from ibidem.retrieve.index import REBUILD, Neighbours, check_search
from ibidem.retrieve.index_settings import NATIVE
from ibidem.retrieve.ivf.index import NativeIndex, load_native
from ibidem.retrieve.keys import RangeKeys

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from ibidem.memory import Memory

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]

MOST_PARTS = 1024
_EXACT = "exact"
_FORMAT = 1
_NONE: Ids = np.empty(0, np.int64)


class _Notes(threading.local):
    """The sets that the searches of a thread note missing parts in."""

    def __init__(self) -> None:
        self.sets: list[set[int]] = []


_notes = _Notes()


@contextmanager
def noted_missing() -> Iterator[set[int]]:
    """Yield a set that receives the numbers of the parts, from 1, which do not answer a search of this thread.

    Examples:
        >>> with noted_missing() as missing:
        ...     pass
        >>> missing
        set()
    """
    missing: set[int] = set()
    _notes.sets.append(missing)
    try:
        yield missing
    finally:
        _notes.sets.pop()


class Rows(NamedTuple):
    """Queries for all parts.

    Attributes:
        queries: [rows, d] float32.
        modes: [rows] uint8, the `SearchMode` of each query.
        group_size: This many consecutive rows are hypotheses of one sentence.
        k: Neighbours for each query.
    """

    queries: NDArray[np.float32]
    modes: NDArray[np.uint8]
    group_size: int
    k: int


class Found(NamedTuple):
    """What a part found, nearest first.

    Attributes:
        distances: [rows, k] float32, or float64 from exact search; inf where there is no neighbour.
        entries: [rows, k], numbered from the first entry of the part; -1 where there is no neighbour.
    """

    distances: Floats
    entries: Ids


class Hidden(NamedTuple):
    """Entries of a part that must not be found.

    Attributes:
        id: A digest of the entries; 0 where there are none.
        entries: [n] ascending, numbered from the first entry of the part.
    """

    id: int
    entries: Ids


NOTHING_HIDDEN = Hidden(0, _NONE)


@dataclass(frozen=True)
class PartPlan:
    """One part of a plan.

    Attributes:
        first: The first entry, as it was numbered when the plan was made.
        last: The entry after the last.
        kind: "exact" or "native".
        info: The description of a native index, as `NativeIndex.save` returned it; empty for exact search.
    """

    first: int
    last: int
    kind: str
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of entries."""
        return self.last - self.first


@dataclass(frozen=True)
class IndexPlan:
    """How the index of a memory is divided.

    Attributes:
        dimension: The components of a key.
        removals: How many of `Memory.removed_entries` had been removed when the plan was made.
        contents: A digest of the entries that it was made for.
        parts: The parts, in the order of their entries.
        digest: A digest of the plan and of the files of all parts; empty before it is stored.
    """

    dimension: int
    removals: int
    contents: str
    parts: tuple[PartPlan, ...]
    digest: str = ""

    @property
    def size(self) -> int:
        """The number of entries, as they were numbered when the plan was made."""
        return self.parts[-1].last

    def to_bytes(self) -> bytes:
        """Encode the plan without its digest."""
        fields = {name: value for name, value in asdict(self).items() if name != "digest"}
        return json.dumps({"format": _FORMAT, **fields}, ensure_ascii=False).encode("utf-8")


def divide(size: int, parts: int) -> list[tuple[int, int]]:
    """Divide entries into ranges whose sizes differ by at most one.

    Args:
        size: The number of entries.
        parts: The number of ranges.

    Returns:
        The first entry of each range, and the entry after its last.

    Raises:
        UsageError: There are fewer entries than parts, or more than MOST_PARTS parts.

    Examples:
        >>> divide(10, 3)
        [(0, 3), (3, 6), (6, 10)]
    """
    if not 1 <= parts <= MOST_PARTS:
        raise UsageError(f"An index cannot be divided into {parts} shards: give 1 to {MOST_PARTS}.")
    if parts > max(1, size):
        raise UsageError(f"{size} entries cannot be divided into {parts} shards: give at most {max(1, size)}.")
    return list(pairwise(number * size // parts for number in range(parts + 1)))


def plan_part(index: object, first: int, last: int, info: dict[str, Any]) -> PartPlan:
    """Describe a part that was built.

    Args:
        index: Its index.
        first: Its first entry.
        last: The entry after the last.
        info: What `NativeIndex.save` returned; empty for exact search.

    Raises:
        UsageError: The index is neither exact nor native.
    """
    if isinstance(index, NativeIndex):
        return PartPlan(first, last, NATIVE, info)
    if isinstance(index, ExactIndex):
        return PartPlan(first, last, _EXACT)
    raise UsageError("Only exact and native indexes can be divided into shards: give auto, native or exact.")


def contents_digest(memory: Memory) -> str:
    """Return a digest of the sealed entries of a memory, by the checksums of its segments.

    Args:
        memory: The memory.
    """
    sums = [segment.sha256 for segment in memory.manifest.segments]
    return hashlib.sha256("\n".join([memory.identity.model_fingerprint, *sums]).encode()).hexdigest()


def plan_digest(memory: Memory) -> str | None:
    """Return the digest of the stored plan and of the files of its parts; None where the index is not divided.

    Args:
        memory: The memory; only its manifest is read.
    """
    artefacts = memory.manifest.artefacts
    if INDEX_PLAN_ARTEFACT not in artefacts:
        return None
    names = [INDEX_PLAN_ARTEFACT, *sorted(name for name in artefacts if name.startswith(index_part_artefact(0)[:-1]))]
    return hashlib.sha256("\n".join(f"{name} {artefacts[name].sha256}" for name in names).encode()).hexdigest()


def read_plan(memory: Memory) -> IndexPlan | None:
    """Read the plan of the divided index of a memory; the files of the parts are not read.

    Args:
        memory: The memory.

    Returns:
        The plan; None where the index is not divided.

    Raises:
        MemoryFolderError: The plan is damaged.
    """
    stored = memory.artefact(INDEX_PLAN_ARTEFACT)
    if stored is None:
        return None
    try:
        fields = json.loads(stored.path.read_bytes())
        if fields["format"] != _FORMAT:
            raise ValueError(f"its format is {fields['format']!r}")
        parts = tuple(
            PartPlan(int(part["first"]), int(part["last"]), str(part["kind"]), dict(part["info"]))
            for part in fields["parts"]
        )
        plan = IndexPlan(
            int(fields["dimension"]), int(fields["removals"]), str(fields["contents"]), parts, plan_digest(memory) or ""
        )
        _check(plan, memory)
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise MemoryFolderError(f"The plan of the shards {stored.path} cannot be used ({error}). {REBUILD}.") from error
    return plan


def _check(plan: IndexPlan, memory: Memory) -> None:
    """Raise ValueError for a plan that this memory cannot have."""
    ends = [0, *(part.last for part in plan.parts)]
    if not plan.parts or any(part.first != end for part, end in zip(plan.parts, ends, strict=False)):
        raise ValueError("its ranges do not follow each other")
    if any(part.size < 1 or part.kind not in (_EXACT, NATIVE) for part in plan.parts):
        raise ValueError("a part is empty or of another kind")
    ever = memory.entries + len(memory.removed_entries) - plan.removals
    if plan.size > ever or plan.dimension != memory.dimension:
        raise ValueError("it is for other entries")


def gone_entries(memory: Memory, covered: int, removals: int) -> Ids:
    """Return which of the first entries were removed after an index was built.

    Args:
        memory: The memory.
        covered: The number of entries of the index.
        removals: How many of `Memory.removed_entries` had been removed when it was built.

    Returns:
        [n] ascending, as the index numbers them.
    """
    known = np.sort(memory.removed_entries[:removals])
    own = np.sort(numbers_among(memory.removed_entries[removals:], known))
    return own[own < covered]


@dataclass(frozen=True)
class LoadedPart:
    """The index of one part, with the keys of its entries alone.

    Attributes:
        index: The index of the entries that the memory still has.
        plan: The part in the plan.
        gone: [n] ascending, the entries that the memory no longer has, numbered from the first of the part.
    """

    index: ExactIndex | NativeIndex
    plan: PartPlan
    gone: Ids = field(default_factory=lambda: _NONE)

    def search(self, rows: Rows) -> Found:
        """Find the nearest keys of the part.

        Args:
            rows: The queries.

        Returns:
            Distances and entries.
        """
        queries, modes = (torch.from_numpy(np.require(given, requirements="W")) for given in (rows.queries, rows.modes))
        if isinstance(self.index, NativeIndex):
            found = self.index.search_rows(queries, modes, rows.group_size, rows.k)
        else:
            skipped = (modes == SearchMode.SKIP)[:, None]
            found = self.index.search_precisely(queries.masked_fill(skipped, torch.nan), rows.k)
        entries = found.entries.numpy()
        if len(self.gone):
            entries = np.where(entries < 0, -1, serials_of(entries, self.gone))
        return Found(found.distances.numpy(), entries)

    def without(self, hidden: Ids) -> LoadedPart:
        """Return a part of the same index that does not find some entries.

        Args:
            hidden: [n] ascending, numbered from the first entry of the part.
        """
        present = hidden[~np.isin(hidden, self.gone)]
        return replace(self, index=self.index.without(numbers_among(present, self.gone))) if len(present) else self


def load_part(memory: Memory, plan: IndexPlan, number: int, threads: int | None = None) -> LoadedPart:
    """Load one part of a divided index; only the keys of its entries are read.

    Args:
        memory: The memory.
        plan: Its plan.
        number: The number of the part, from 1.
        threads: The most threads of a search; None for as many as torch uses.

    Raises:
        UsageError: There is no such part.
        MemoryFolderError: The index or the keys are damaged.
    """
    if not 1 <= number <= len(plan.parts):
        raise UsageError(f"The index of {memory.path} has the parts 1 to {len(plan.parts)}, and no part {number}.")
    part = plan.parts[number - 1]
    gone = gone_entries(memory, plan.size, plan.removals)
    first, last = (edge - int(np.searchsorted(gone, edge)) for edge in (part.first, part.last))
    own = gone[(gone >= part.first) & (gone < part.last)] - part.first
    keys = RangeKeys(memory.search_keys, first, last)
    if part.kind == _EXACT:
        return LoadedPart(ExactIndex(keys), part, own)
    stored = memory.artefact(index_part_artefact(number))
    if stored is None:
        raise MemoryFolderError(f"The part {number} of the index of {memory.path} is missing. {REBUILD} --shards.")
    return LoadedPart(load_native(stored.path, part.info, keys, own, threads=threads), part, own)


class PartSearcher(Protocol):
    """Searches all parts of a plan."""

    @property
    def description(self) -> str:
        """Where the parts are, in a few words."""
        ...

    def search(self, rows: Rows, hidden: Sequence[Hidden]) -> Sequence[Found | None]:
        """Find the nearest keys of each part.

        Args:
            rows: The queries.
            hidden: For each part, the entries that must not be found.

        Returns:
            What each part found; None for a part that did not answer.
        """
        ...


class LocalParts:
    """All parts in this process.

    Args:
        parts: The parts, in the order of their entries.
    """

    def __init__(self, parts: Sequence[LoadedPart]) -> None:
        self._parts = parts
        self._shown: dict[int, tuple[int, LoadedPart]] = {}

    @property
    def description(self) -> str:
        """The index of the first part."""
        return f"in this process, the first {self._parts[0].index.description}"

    def search(self, rows: Rows, hidden: Sequence[Hidden]) -> Sequence[Found | None]:
        """Search the parts one after another."""
        return [self._part(number, one).search(rows) for number, one in enumerate(hidden)]

    def _part(self, number: int, hidden: Hidden) -> LoadedPart:
        if not hidden.id:
            return self._parts[number]
        known = self._shown.get(number)
        if known is None or known[0] != hidden.id:
            known = self._shown[number] = (hidden.id, self._parts[number].without(hidden.entries))
        return known[1]


class PartedIndex:
    """Search the parts of a divided index as one index, by distance and then by entry.

    Exact parts give the same neighbours and distances as an exact index of all keys, bit for bit.

    Args:
        plan: The plan.
        searcher: Searches the parts.
        gone: [n] ascending, the entries of the plan that the memory no longer has; later ones move down.
        hidden: [n] ascending, the entries of the plan that must not be found; with those that are gone.
    """

    supports_cuda_graph = False

    def __init__(self, plan: IndexPlan, searcher: PartSearcher, gone: Ids = _NONE, hidden: Ids = _NONE) -> None:
        self.plan = plan
        self.searcher = searcher
        self._gone = gone
        self.size = plan.size - len(gone)
        self.dimension = plan.dimension
        self._firsts = [part.first for part in plan.parts]
        self._hidden = [_hidden_of(part, np.union1d(gone, hidden)) for part in plan.parts]

    @property
    def description(self) -> str:
        """One line for memory cards and logs."""
        return f"{len(self.plan.parts)} shards of {self.size} keys, {self.searcher.description}"

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """Find the k nearest keys of each query [q, d]; see `Index.search`."""
        check_search(queries, k, self.dimension)
        plain = np.ascontiguousarray(queries.detach().float().cpu().numpy())
        modes = np.where(np.isnan(plain[:, 0]), SearchMode.SKIP, SearchMode.FULL).astype(np.uint8)
        distances, entries = np.empty((len(plain), k), np.float32), np.empty((len(plain), k), np.int64)
        self.search_rows(plain, modes, 1, k, distances, entries)
        return Neighbours(torch.from_numpy(distances).to(queries.device), torch.from_numpy(entries).to(queries.device))

    def search_rows(
        self,
        queries: NDArray[np.float32],
        modes: NDArray[np.uint8],
        group_size: int,
        k: int,
        distances: NDArray[np.float32],
        entries: Ids,
    ) -> None:
        """Find the nearest keys of all rows of a decoding step.

        Args:
            queries: [rows, d].
            modes: [rows], the `SearchMode` of each row.
            group_size: This many consecutive rows are hypotheses of one sentence.
            k: Neighbours for each row.
            distances: [rows, k], filled with squared distances, inf where there is no neighbour.
            entries: [rows, k], filled with entries, -1 where there is no neighbour.
        """
        found = self.searcher.search(Rows(queries, modes, group_size, k), self._hidden)
        merge(found, self._firsts, distances, entries)
        for missing in _notes.sets:
            missing.update(number for number, one in enumerate(found, start=1) if one is None)
        if len(self._gone):
            entries -= np.searchsorted(self._gone, entries)

    def without(self, entries: Ids) -> PartedIndex:
        """Return an index of the same parts that does not find some entries.

        Args:
            entries: [n] ascending, as this index numbers them.
        """
        return PartedIndex(self.plan, self.searcher, self._gone, serials_of(entries, self._gone))


def merge(found: Sequence[Found | None], firsts: Sequence[int], distances: NDArray[np.float32], entries: Ids) -> None:
    """Merge what the parts found, by distance and then by entry.

    Args:
        found: What each part found, [rows, k] in the order of the parts; None for a part that did not answer.
        firsts: The first entry of each part.
        distances: [rows, k], filled with the nearest distances.
        entries: [rows, k], filled with their entries.
    """
    present = [(one, first) for one, first in zip(found, firsts, strict=True) if one is not None]
    if not present:
        distances.fill(np.inf)
        entries.fill(-1)
        return
    numbers = [np.where(one.entries < 0, -1, one.entries + first) for one, first in present]
    if len(present) == 1:
        distances[...], entries[...] = present[0][0].distances, numbers[0]
        return
    near, known = np.concatenate([one.distances for one, _ in present], 1), np.concatenate(numbers, 1)
    order = near.argsort(axis=1, kind="stable")[:, : distances.shape[1]]
    distances[...] = np.take_along_axis(near, order, 1)
    entries[...] = np.take_along_axis(known, order, 1)


def _hidden_of(part: PartPlan, hidden: Ids) -> Hidden:
    low, high = np.searchsorted(hidden, (part.first, part.last))
    if low == high:
        return NOTHING_HIDDEN
    own = np.ascontiguousarray(hidden[low:high] - part.first, np.int64)
    return Hidden(int.from_bytes(hashlib.sha256(own.tobytes()).digest()[:8], "little") | 1, own)
