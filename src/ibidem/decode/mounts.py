"""Memories as a translator holds them: each with its index, its combiner and the weight that its user gave it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ibidem.decode.mounting import check_identity, mount
from ibidem.decode.scoring import BaseScorer, BlendedScorer, MemoryScorer, Scorer
from ibidem.errors import UsageError
from ibidem.memory import Memory

if TYPE_CHECKING:
    from ibidem.combine import Combiner
    from ibidem.model import BaseModel
    from ibidem.retrieve import Index

Folder = Memory | str | Path
Given = Folder | Sequence[Folder | tuple[Folder, float]]


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


class Mount:
    """A memory made ready for decoding with a model; `share` is its weight beside other memories."""

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
        self.memory = memory
        self.share = share
        self._model = model
        self.scorer: Scorer = BaseScorer()
        if memory.entries:
            self.scorer = mount(memory, model, combiner=combiner, index=index)

    def scorer_with(self, combiner: Combiner | str) -> Scorer:
        """A scorer over the same index with another combiner."""
        if not isinstance(self.scorer, MemoryScorer):
            return self.scorer
        return mount(self.memory, self._model, combiner=combiner, index=self.scorer.index)


def join_scorers(scorers: Sequence[Scorer], mounts: Sequence[Mount]) -> Scorer:
    """One scorer for all memories that are mounted; the base model's where there is none."""
    if len(scorers) == 1:
        return scorers[0]
    return BlendedScorer(scorers, [mount.share for mount in mounts]) if scorers else BaseScorer()
