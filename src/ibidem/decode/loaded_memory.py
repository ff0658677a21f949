"""Memories as a translator holds them: each with its index, its combiner and the weight that its user gave it.

A mount follows its folder: what anybody adds or removes there is used from the next batch on. Entries that were
added are searched with all others, and weighed by the same combiner. Where that was tuned without them, those that
are very near are weighed once more on top, by a combiner that fades with distance: the very sentence that was
corrected comes out as it was corrected, whatever older entries say of it.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ibidem.combine import BANDWIDTH, SHORT_BANDWIDTH, DistanceDecayCombiner, typical_distance
from ibidem.compact import place_compactor
from ibidem.decode.consulting import make_scorer
from ibidem.decode.mounting import check_complete, check_identity, load_combiner, place_combiner
from ibidem.decode.scoring import BaseScorer, EnsembleScorer, MemoryScorer, OverlayScorer, Scorer
from ibidem.decode.values import ValueTable
from ibidem.errors import UsageError
from ibidem.memory import Memory
from ibidem.model import SHIPPED
from ibidem.retrieve import EXACT_BELOW, BaseIndex, CompactedIndex, Index, compactor_of, exact_part, join, open_sealed

if TYPE_CHECKING:
    import torch

    from ibidem.combine import Combiner
    from ibidem.compact import Compactor
    from ibidem.model import BaseModel
    from ibidem.retrieve import IndexPart

Folder = Memory | str | Path
Given = Folder | Sequence[Folder | tuple[Folder, float]]

# So many keys, in runs, tell the typical distance between them: far apart, they would all have to be verified.
_SAMPLE, _RUNS = 512, 8
# Of the states of the shipped model: 806 in software manuals, 880 to 893 in news, law and encyclopedic text.
_SHIPPED_TYPICAL = 800.0


def open_memories(given: Given | None) -> list[tuple[Memory, float]]:
    """The memories that a user named, opened, with their weights."""
    if given is None:
        return []
    several = [given] if isinstance(given, Folder) else list(given)
    weighted = [item if isinstance(item, tuple) else (item, 1.0) for item in several]
    opened = [(found if isinstance(found, Memory) else Memory.open(found), float(weight)) for found, weight in weighted]
    for memory, weight in opened:
        if not 0 < weight < math.inf:
            raise UsageError(f"The memory {memory.path} cannot have the weight {weight:g}: give one above 0.")
        if sum(memory.path.resolve() == other.path.resolve() for other, _ in opened) > 1:
            raise UsageError(f"The memory {memory.path} was given twice: give it once, with the weight it shall have.")
    return opened


class IndexParts(NamedTuple):
    """The parts that do not change while only pairs are added: all sealed entries, and those added since tuning."""

    generation: int
    removed: frozenset[int]
    sealed: list[IndexPart]
    added: list[IndexPart]


class LoadedMemory:
    """A memory made ready for decoding with a model; `share` is its weight beside other memories.

    `refresh` is for the thread that decodes, `reload` for any other. memory: the state of it that `scorer` uses.
    """

    memory: Memory
    scorer: Scorer
    _compactor: Compactor | None
    _tuned: Combiner | None
    _base: BaseIndex
    _reloaded: BaseIndex | None
    _shelves: IndexParts | None

    def __init__(
        self,
        memory: Memory,
        model: BaseModel,
        *,
        combiner: Combiner | str | None = None,
        index: Index | str | None = None,
        share: float = 1.0,
    ) -> None:
        check_identity(memory, model)
        if memory.entries:
            check_complete(memory)
        self.share = share
        self._model = model
        self._given_combiner = combiner
        self._given_index = index
        self._reloading = threading.Lock()
        self._load(memory.held())

    def refresh(self) -> bool:
        """Take up what has changed in the folder; whether anything has. It costs two calls of stat if not."""
        newest = self.memory.refresh()
        base = self._reloaded
        if newest is self.memory and base is None:
            return False
        newest = newest.held()
        if _space(newest) != _space(self.memory):
            check_identity(newest, self._model)
            self._load(newest)
            return True
        if base is not None:
            self._base, self._reloaded, self._shelves = base, None, None
        if newest.manifest.artefacts != self.memory.manifest.artefacts:
            self._tuned = self._load_tuned(newest)
        self._update(newest)
        return True

    def reload(self) -> None:
        """Open the newest index, as one that was merged in the background, for the next refresh to use.

        Until then the old one serves, with exact search of all that came after it: nothing is missed meanwhile.
        """
        with self._reloading:
            newest = self.memory.held()
            given = self._given_index is not None and not isinstance(self._given_index, str)
            if _space(newest) == _space(self.memory) and not given:
                self._reloaded = self._open_base(newest)

    def scorer_with(self, combiner: Combiner | str) -> Scorer:
        """A scorer over the same index with another combiner."""
        return self._make_scorer(self.memory, self._shelves_of(self.memory), self._choose(self.memory, combiner))

    def _load(self, memory: Memory) -> None:
        """Open all that belongs to the space of the memory's keys."""
        compactor = compactor_of(memory)
        whole = self._model.arithmetic == "int8"
        self._compactor = None if compactor is None else place_compactor(compactor, self._device, whole=whole)
        self._tuned = self._load_tuned(memory)
        self._values = ValueTable(self._device)
        self._shelves = self._reloaded = None
        self._base = self._open_base(memory)
        if self._tuned is None and self._given_combiner is None and memory.entries >= EXACT_BELOW:
            note = f"{memory.path} is not tuned, so its neighbours count by their distance alone;"
            warnings.warn(f"{note} `ibidem tune -m {memory.path}` weighs them better.", stacklevel=2)
        self._update(memory)

    @property
    def _device(self) -> torch.device:
        return self._model.device

    def _load_tuned(self, memory: Memory) -> Combiner | None:
        return self._choose(memory, self._given_combiner)

    def _choose(self, memory: Memory, combiner: Combiner | str | None) -> Combiner | None:
        """A combiner given by hand, or the memory's own of this name; None where it fades."""
        if combiner is None or isinstance(combiner, str):
            chosen = load_combiner(memory, combiner)
            return None if chosen is None else place_combiner(chosen, self._device)
        return place_combiner(combiner, self._device)

    def _by_hand(self) -> bool:
        """Whether one combiner was given for all entries."""
        return self._given_combiner is not None and not isinstance(self._given_combiner, str)

    def _open_base(self, memory: Memory) -> BaseIndex:
        given = self._given_index
        if given is None or isinstance(given, str):
            return open_sealed(memory, given, self._device)
        inner = given.index if isinstance(given, CompactedIndex) else given
        return BaseIndex(inner, memory.entries, len(memory.removed_entries))

    def _update(self, memory: Memory) -> None:
        """Make a scorer of the state of the memory; within a generation only what was added costs anything."""
        self._values.update(memory)
        self.scorer = self._make_scorer(memory, self._shelves_of(memory), self._tuned)
        self.memory = memory

    def _shelves_of(self, memory: Memory) -> IndexParts:
        known, removed = self._shelves, memory.tail.removed
        if known is None or known.generation != memory.generation or known.removed is not removed:
            hidden, border = memory.hidden_entries(), memory.merged_entries
            sealed = self._base.parts(memory, hidden, self._device)
            added = sealed[-1:]
            if memory.entries == border:
                added = []
            elif sealed[-1].first != border:
                keys, inside = memory.search_keys.read(border, memory.entries), hidden[hidden >= border] - border
                added = [exact_part(keys, border, inside, self._base.index, self._device)]
            self._shelves = known = IndexParts(memory.generation, removed, sealed, added)
        return known

    def _make_scorer(self, memory: Memory, shelves: IndexParts, tuned: Combiner | None) -> Scorer:
        tail = [self._base.tail_part(memory, self._device)] if memory.tail.entries else []
        parts, added = [*shelves.sealed, *tail], [*shelves.added, *tail]
        typical = _typical_distance(memory)
        if not parts or not (tuned or typical):
            return BaseScorer()
        if tuned is None:
            return self._over(memory, parts, DistanceDecayCombiner(BANDWIDTH * typical))
        under = self._over(memory, parts, tuned)
        if self._by_hand() or not (added and typical):
            return under
        return OverlayScorer(under, self._over(memory, added, DistanceDecayCombiner(SHORT_BANDWIDTH * typical)))

    def _over(self, memory: Memory, parts: list[IndexPart], combiner: Combiner) -> MemoryScorer:
        """A scorer over parts, which takes the model's states."""
        index = join(parts, sum(part.index.size for part in parts), memory.dimension)
        whole = index if self._compactor is None else CompactedIndex(index, self._compactor)
        return make_scorer(whole, self._values.table, combiner, memory)


def load_memory(
    memory: Memory, model: BaseModel, *, combiner: Combiner | str | None = None, index: Index | str | None = None
) -> MemoryScorer:
    """A scorer over all entries of a memory by one combiner; raises UsageError where pairs were added since tuning."""
    scorer = LoadedMemory(memory, model, combiner=combiner, index=index).scorer
    if not isinstance(scorer, MemoryScorer):
        raise UsageError(f"{memory.path} has entries that no combiner was tuned for: run `ibidem tune` on it.")
    return scorer


def _typical_distance(memory: Memory) -> float:
    """The mean squared distance between two of the memory's keys, from some of them.

    Few keys are of few sentences, and nearer to each other than others would be: for the shipped model it is known.
    """
    sealed, length = memory.search_keys, _SAMPLE // _RUNS
    if sealed.size >= _SAMPLE:
        starts = np.linspace(0, sealed.size - length, _RUNS, dtype=np.int64).tolist()
        return typical_distance(np.concatenate([sealed.read(start, start + length) for start in starts]))
    if memory.identity.name == SHIPPED and memory.layout.compact is None:
        return _SHIPPED_TYPICAL
    tail = memory.tail_keys()[: _SAMPLE - sealed.size]
    return typical_distance(np.concatenate([sealed.read(0, sealed.size), tail]))


def join_scorers(scorers: Sequence[Scorer], mounts: Sequence[LoadedMemory]) -> Scorer:
    """One scorer for all memories that are mounted; the base model's where there is none."""
    if len(scorers) == 1:
        return scorers[0]
    return EnsembleScorer(scorers, [load_memory.share for load_memory in mounts]) if scorers else BaseScorer()


def _space(memory: Memory) -> tuple[object, ...]:
    """What must stay the same for an open index to stay true."""
    manifest = memory.manifest
    return manifest.identity, manifest.numbering, manifest.layout, manifest.artefacts.get("compactor")
