"""Memories loaded for decoding: each with its index, its combiner and the weight that the user gave it.

A loaded memory follows its folder: pairs that any process adds or removes there count from the next `refresh` on. Added
entries are searched with all others and weighted by the same combiner. If that combiner was tuned before they were
added, those at a very small distance are weighted once more on top, by a `DistanceDecayCombiner`: a corrected sentence
is then translated as it was corrected, whatever older entries there are.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import torch

from ibidem.combine import (
    BANDWIDTH,
    SHORT_BANDWIDTH,
    DeviceSourceProjection,
    DistanceDecayCombiner,
    EntryTable,
    load_combiner,
    load_entry_table,
    load_general_combiner,
    place_combiner,
    typical_distance,
)
from ibidem.compact import is_general, place_compactor
from ibidem.decode.scorer import BaseScorer, MemoryScorer, OverlayScorer, Scorer, make_scorer
from ibidem.errors import IbidemError, UsageError
from ibidem.memory import COMPACTOR_ARTEFACT, INDEX_ARTEFACT, Memory, check_complete, check_identity
from ibidem.model import SHIPPED, load_model
from ibidem.retrieve import (
    EXACT_BELOW,
    BaseIndex,
    CompactedIndex,
    Index,
    PartedIndex,
    compactor_of,
    exact_part,
    join,
    open_base_index,
    parted_base,
    plan_digest,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.combine import Combiner
    from ibidem.compact import Compactor
    from ibidem.memory import ModelIdentity
    from ibidem.model import BaseModel
    from ibidem.retrieve import IndexPart
    from ibidem.retrieve.sharded import PartState, RemoteParts, ShardSettings

# A memory or its folder; or several, each alone or in a tuple with its weight.
MemoryLike = Memory | str | Path
MemoryArgument = MemoryLike | Sequence[MemoryLike | tuple[MemoryLike, float]]

# The numbers of keys and of runs from which the typical distance is estimated: each run is one read from the disk, and
# only the blocks that it touches are verified.
_SAMPLE, _RUNS = 512, 8
# The typical squared distance between two states of the shipped model, measured on text of several domains.
_SHIPPED_TYPICAL = 800.0
# Free places after the last entry, so that an added pair does not copy the table.
_SPARE = 1 << 16


def open_memories(memories: MemoryArgument | None) -> list[tuple[Memory, float]]:
    """Open the memories that a user named, and return each with its weight (by default 1).

    Args:
        memories: A memory or its folder, or several of them, each alone or with its weight; None for no memory.

    Raises:
        UsageError: If a weight is not above 0 and finite, or a memory was given twice.
    """
    if memories is None:
        return []
    several = [memories] if isinstance(memories, MemoryLike) else list(memories)
    weighted = [item if isinstance(item, tuple) else (item, 1.0) for item in several]
    opened = [(found if isinstance(found, Memory) else Memory.open(found), float(weight)) for found, weight in weighted]
    for memory, weight in opened:
        if not 0 < weight < math.inf:
            raise UsageError(f"Invalid weight {weight:g} of the memory {memory.path}: give one above 0.")
        if sum(memory.path.resolve() == other.path.resolve() for other, _ in opened) > 1:
            raise UsageError(f"The memory {memory.path} was given twice: give it once, with its weight.")
    return opened


def choose_divided(
    opened: Sequence[tuple[Memory, float]], shards: ShardSettings | str | Sequence[str] | None
) -> tuple[ShardSettings | None, Memory | None]:
    """Return the settings of shards, and the memory that they belong to.

    Args:
        opened: The memories and their weights.
        shards: The settings or addresses; None for none.

    Raises:
        UsageError: None of the memories has shards, or several have some.
    """
    if shards is None:
        return None, None
    from ibidem.retrieve.sharded import shard_settings

    divided = [memory for memory, _ in opened if plan_digest(memory) is not None]
    if len(divided) == 1:
        return shard_settings(shards), divided[0]
    if divided:
        names = ", ".join(str(memory.path) for memory in divided)
        raise UsageError(f"Shards can be used for one memory, and {names} have some: give only one of them.")
    where = opened[0][0].path if opened else "MEMORY"
    raise UsageError(
        f"No memory has shards: build them with `ibidem index -m {where} --shards N`, or leave the addresses of "
        "shards out."
    )


def load_model_for(
    identity: ModelIdentity | None,
    model: str | Path | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    source_language: str | None = None,
    target_language: str | None = None,
    source_prefix: str = "",
) -> BaseModel:
    """Load the base model that a memory was learnt with; options that are not given default to the memory's.

    Args:
        identity: The identity of the memory's model (`Memory.identity`), or None without a memory.
        model: The name or folder of a model; None for the memory's own, or the shipped one without a memory.
        device: "cpu", "cuda", … or "auto".
        dtype: "float32", "bfloat16", "int8", … or "auto".
        source_language: The language to translate from, for a model of several languages.
        target_language: The language to translate to.
        source_prefix: Text to put before every source, such as T5's task.

    Raises:
        UsageError, ModelError: If the model cannot be loaded, or does not have a language.

    Examples:
        >>> from ibidem.memory import Memory
        >>> load_model_for(Memory.open("memories/it").identity)  # doctest: +SKIP
    """
    return load_model(
        model if model is not None or identity is None else identity.name,
        device=device,
        dtype=dtype,
        source_language=source_language or (identity.source_language if identity else None),
        target_language=target_language or (identity.target_language if identity else None),
        source_prefix=source_prefix or (identity.source_prefix if identity else ""),
    )


@contextmanager
def verify_meanwhile(memories: Sequence[Memory]) -> Iterator[None]:
    """Verify the stored indexes of memories in another thread while the body runs.

    A file that was verified is not read again when the memory is loaded. A damaged one is reported then.

    Args:
        memories: The memories.
    """

    def verify() -> None:
        for memory in memories:
            with suppress(IbidemError):
                memory.artefact(INDEX_ARTEFACT)

    with _run_meanwhile(verify, "ibidem-verify"):
        yield


@contextmanager
def prepare_meanwhile(model: BaseModel, *, wanted: bool) -> Iterator[None]:
    """Prepare a model on a CPU for decoding in another thread while the body runs.

    Args:
        model: The model.
        wanted: Whether to do so; nothing happens otherwise.
    """
    if not wanted or model.device.type != "cpu":
        yield
        return

    def prepare() -> None:
        with suppress(Exception):  # the first decoding raises it again
            model.prepare()

    with _run_meanwhile(prepare, "ibidem-prepare"):
        yield


@contextmanager
def _run_meanwhile(function: Callable[[], None], name: str) -> Iterator[None]:
    """Run a function in another thread while the body runs, and wait for it."""
    thread = threading.Thread(target=function, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


class GrowingTable:
    """What a memory stores about its entries, sealed ones and those of the tail, in tensors that grow with the memory.

    An added pair costs only its own entries. A `table` that was handed out is never changed: new rows are written
    behind its end.

    Args:
        device: The device of the tensors.
    """

    table: EntryTable

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._generation = 0
        self._entries = self._pairs = 0
        self._buffers: tuple[Tensor, ...] = ()
        self._projection: DeviceSourceProjection | None = None

    def update(self, memory: Memory) -> None:
        """Set the table to the entries of this state of the memory.

        Args:
            memory: The memory.
        """
        tail = memory.tail
        entries, pairs = memory.entries + tail.entries, memory.pairs + tail.pairs
        full = bool(self._buffers) and (entries > len(self._buffers[0]) or pairs > len(self._buffers[3]))
        if not self._buffers or memory.generation != self._generation or full:
            self._load(memory)
        values, log_probs, sentences, vectors = self._buffers
        known, known_pairs = self._entries - memory.entries, self._pairs - memory.pairs
        of_entries = np.repeat(np.arange(memory.pairs, pairs), np.diff(tail.offsets))
        for buffer, new in ((values, tail.values), (log_probs, tail.log_probs), (sentences, of_entries)):
            buffer[self._entries : entries] = torch.from_numpy(new[known:].copy())
        vectors[self._pairs : pairs] = torch.from_numpy(tail.source_vectors[known_pairs:].copy())
        self._entries, self._pairs = entries, pairs
        self.table = EntryTable(
            values[:entries], log_probs[:entries], sentences[:entries], vectors[:pairs], self._projection
        )

    def _load(self, memory: Memory) -> None:
        sealed = load_entry_table(memory, self._device)
        parts = (sealed.values, sealed.log_probs, sealed.sentences, sealed.source_vectors)
        free = _SPARE + max(memory.tail.entries, memory.tail.pairs)
        self._buffers = tuple(
            torch.cat([part, part.new_empty(free, *part.shape[1:])]) for part in parts if part is not None
        )
        self._projection = sealed.projection
        self._generation, self._entries, self._pairs = memory.generation, memory.entries, memory.pairs


class IndexParts(NamedTuple):
    """The parts of an index that stay the same while pairs are only added.

    Attributes:
        generation: The generation of the memory that they belong to.
        removed: The pairs that were removed from it since.
        sealed: The parts of all sealed entries.
        added: The parts of the sealed entries that were added after tuning.
    """

    generation: int
    removed: frozenset[int]
    sealed: list[IndexPart]
    added: list[IndexPart]


class LoadedMemory:
    """A memory loaded for decoding with a model.

    `refresh` may be called by the decoding thread only, `reload` by any other.

    Args:
        memory: The memory.
        model: The model; it must be the one that the memory was learnt with.
        combiner: A combiner for all entries, or the name of one that the memory holds; see `load_combiner`.
        index: An index over the memory's keys, or an index setting; None for the memory's own.
        weight: The weight of this memory relative to other ones.
        hidden: The numbers of sealed entries, ascending, that are not retrieved; None for none.
        shards: Where the parts of the index are served; None to search in this process.

    Attributes:
        memory: The state of the memory that `scorer` uses.
        scorer: The scorer over all its entries.

    Raises:
        MismatchError: If the memory was learnt with another model.
        UsageError: If the memory is unfinished, does not hold the combiner, or is to use shards and has none.
        ShardError: If a shard refuses or is missing.
    """

    memory: Memory
    scorer: Scorer
    _compactor: Compactor | None
    _tuned: Combiner | None
    _base: BaseIndex
    _reloaded: tuple[tuple[object, ...], BaseIndex] | None
    _index_parts: IndexParts | None

    def __init__(
        self,
        memory: Memory,
        model: BaseModel,
        *,
        combiner: Combiner | str | None = None,
        index: Index | str | None = None,
        weight: float = 1.0,
        hidden: NDArray[np.int64] | None = None,
        shards: ShardSettings | None = None,
    ) -> None:
        check_identity(memory, model)
        if memory.entries:
            check_complete(memory)
        self.weight = weight
        self._model = model
        self._given_combiner = combiner
        self._given_index = index
        self._hidden = hidden
        self._shards = shards
        self._reloading = threading.Lock()
        self._load(memory.pinned())

    def refresh(self) -> bool:
        """Load what has changed in the folder, and return whether anything has; two calls of stat if not."""
        newest = self.memory.refresh()
        base = self._reloaded  # before `pinned` below: the index must not be of a newer state than the memory
        if newest is self.memory and base is None:
            return False
        newest = newest.pinned()
        if _space(newest) != _space(self.memory):
            check_identity(newest, self._model)
            self._load(newest)
            return True
        if base is not None:
            if self._reloaded is base:
                self._reloaded = None
            if base[0] == _space(newest):  # entries may have got other numbers while the index was opened
                self._base, self._index_parts = base[1], None
        if newest.manifest.artefacts != self.memory.manifest.artefacts or _is_small(newest) != _is_small(self.memory):
            self._tuned = self._choose(newest, self._given_combiner)
        self._update(newest)
        return True

    def reload(self) -> None:
        """Open the newest index, such as one that was merged in the background, for the next refresh to use.

        Until then the old index is used, with exact search of all entries that were added after it was built.
        """
        with self._reloading:
            newest = self.memory.pinned()
            given = self._given_index is not None and not isinstance(self._given_index, str)
            if _space(newest) == _space(self.memory) and not given:
                self._reloaded = _space(newest), self._open_base(newest)

    def scorer_with(self, combiner: Combiner | str) -> Scorer:
        """Return a scorer over the same index with another combiner, or the memory's own of this name.

        Args:
            combiner: A combiner, or the name of one that the memory stores.
        """
        return self._make_scorer(self.memory, self._parts_of(self.memory), self._choose(self.memory, combiner))

    def _load(self, memory: Memory) -> None:
        """Open everything that depends on the space of the memory's keys."""
        compactor = compactor_of(memory)
        whole = self._model.arithmetic == "int8"
        self._compactor = None if compactor is None else place_compactor(compactor, self._device, int16=whole)
        self._tuned = self._choose(memory, self._given_combiner)
        self._table = GrowingTable(self._device)
        self._index_parts = self._reloaded = None
        self._base = self._open_base(memory)
        if self._tuned is None and self._given_combiner is None and memory.entries >= EXACT_BELOW:
            note = f"{memory.path} is not tuned, so its neighbours are weighted by their distance alone;"
            warnings.warn(f"{note} `ibidem tune -m {memory.path}` improves the weights.", stacklevel=2)
        self._update(memory)

    @property
    def _device(self) -> torch.device:
        return self._model.device

    def _choose(self, memory: Memory, combiner: Combiner | str | None) -> Combiner | None:
        """Return the given combiner, or the memory's own of this name; None for the distance decay."""
        if combiner is None or isinstance(combiner, str):
            chosen = load_combiner(memory, combiner)
            if chosen is None and combiner is None and not _is_small(memory) and is_general(memory, self._model):
                chosen = load_general_combiner(self._model)
            return None if chosen is None else place_combiner(chosen, self._device)
        return place_combiner(combiner, self._device)

    @property
    def shard_states(self) -> Sequence[PartState]:
        """What became of the requests to each shard; empty where the index is searched in this process."""
        index = self._base.index
        if self._shards is None or not isinstance(index, PartedIndex):
            return ()
        return cast("RemoteParts", index.searcher).states()

    def _open_base(self, memory: Memory) -> BaseIndex:
        if self._shards is not None:
            return self._connect(memory, self._shards)
        given = self._given_index
        if given is None or isinstance(given, str):
            return open_base_index(memory, given, self._device)
        inner = given.index if isinstance(given, CompactedIndex) else given
        return BaseIndex(inner, memory.entries, len(memory.removed_entries))

    def _connect(self, memory: Memory, shards: ShardSettings) -> BaseIndex:
        """Connect to the shards of the index; connections to the shards of the same plan are kept."""
        from ibidem.retrieve.sharded import connect_parts

        known = self._base.index if hasattr(self, "_base") else None
        if isinstance(known, PartedIndex) and known.plan.digest == plan_digest(memory):
            return parted_base(memory, known.plan, known.searcher)
        return parted_base(memory, *connect_parts(memory, shards))

    def _update(self, memory: Memory) -> None:
        """Make a scorer of this state of the memory; within a generation the cost depends only on what was added."""
        self._table.update(memory)
        self.scorer = self._make_scorer(memory, self._parts_of(memory), self._tuned)
        self.memory = memory

    def _parts_of(self, memory: Memory) -> IndexParts:
        known, removed = self._index_parts, memory.tail.removed
        if known is None or known.generation != memory.generation or known.removed is not removed:
            hidden, border = memory.excluded_entries(), memory.fitted_entries
            if self._hidden is not None:
                hidden = np.union1d(hidden, self._hidden)
            sealed = self._base.parts(memory, hidden, self._device)
            added = sealed[-1:]
            if memory.entries == border:
                added = []
            elif sealed[-1].first != border:
                keys, inside = memory.search_keys.read(border, memory.entries), hidden[hidden >= border] - border
                added = [exact_part(keys, border, inside, self._base.index, self._device)]
            self._index_parts = known = IndexParts(memory.generation, removed, sealed, added)
        return known

    def _make_scorer(self, memory: Memory, known: IndexParts, tuned: Combiner | None) -> Scorer:
        tail = [self._base.tail_part(memory, self._device)] if memory.tail.entries else []
        parts, added = [*known.sealed, *tail], [*known.added, *tail]
        typical = estimate_typical_distance(memory)
        if not parts or not (tuned or typical):
            return BaseScorer()
        if tuned is None:
            return self._scorer_over(memory, parts, DistanceDecayCombiner(BANDWIDTH * typical))
        under = self._scorer_over(memory, parts, tuned)
        by_hand = self._given_combiner is not None and not isinstance(self._given_combiner, str)
        if by_hand or not (added and typical):
            return under
        return OverlayScorer(under, self._scorer_over(memory, added, DistanceDecayCombiner(SHORT_BANDWIDTH * typical)))

    def _scorer_over(self, memory: Memory, parts: list[IndexPart], combiner: Combiner) -> MemoryScorer:
        """Make a scorer over parts of the index that takes the model's states."""
        index = join(parts, sum(part.index.size for part in parts), memory.dimension)
        whole = index if self._compactor is None else CompactedIndex(index, self._compactor)
        return make_scorer(whole, self._table.table, combiner, memory)


def load_memory_scorer(
    memory: Memory, model: BaseModel, *, combiner: Combiner | str | None = None, index: Index | str | None = None
) -> MemoryScorer:
    """Load a memory, and return the scorer over all its entries.

    Args:
        memory: The memory.
        model: The model that it was learnt with.
        combiner: A combiner, or the name of one that the memory holds; see `load_combiner`.
        index: An index over the memory's keys, or an index setting; None for the memory's own.

    Raises:
        MismatchError: If the memory was learnt with another model.
        UsageError: If the memory is empty or unfinished, or pairs were added after it was tuned, so that more than one
            combiner is needed.
    """
    scorer = LoadedMemory(memory, model, combiner=combiner, index=index).scorer
    if not isinstance(scorer, MemoryScorer):
        raise UsageError(f"{memory.path} has entries that no combiner was tuned for: run `ibidem tune` on it.")
    return scorer


def _is_small(memory: Memory) -> bool:
    """Return whether a memory has too few entries for the general combiner.

    All neighbours in a small memory are far from text that it has nothing to do with, and the general combiner, which
    was trained with large memories, would change the translation of such text.
    """
    return memory.entries < EXACT_BELOW


def estimate_typical_distance(memory: Memory) -> float:
    """Estimate the mean squared distance between two of the memory's keys from a sample.

    Few keys come from few sentences and lie closer together than keys of many sentences, so with few keys the distance
    of the text is used that the compactor was trained on, or a known one of the shipped model.

    Args:
        memory: The memory.
    """
    sealed, length = memory.search_keys, _SAMPLE // _RUNS
    if sealed.size >= _SAMPLE:
        starts = np.linspace(0, sealed.size - length, _RUNS, dtype=np.int64).tolist()
        return typical_distance(np.concatenate([sealed.read(start, start + length) for start in starts]))
    if memory.key_coding is not None:
        return memory.key_coding.typical_distance()
    if memory.identity.name == SHIPPED:
        return _SHIPPED_TYPICAL
    tail = memory.tail_keys()[: _SAMPLE - sealed.size]
    return typical_distance(np.concatenate([sealed.read(0, sealed.size), tail]))


def _space(memory: Memory) -> tuple[object, ...]:
    """Return what must stay the same for an open index to stay valid."""
    manifest = memory.manifest
    return manifest.identity, manifest.numbering, manifest.layout, manifest.artefacts.get(COMPACTOR_ARTEFACT)
