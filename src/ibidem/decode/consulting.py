"""A memory that is asked in native code, which does on the CPU what `MemoryScorer` does by its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.combine import Weights
from ibidem.combine.native import NativeCombiner
from ibidem.compact.native import SwiftCompactor
from ibidem.decode.scoring import MemoryScorer, Votes, only_source
from ibidem.native.consultation import NativeConsultation
from ibidem.native.ivf import Ivf
from ibidem.retrieve import CompactedIndex, NativeIndex

if TYPE_CHECKING:
    from torch import Tensor

    from ibidem.combine import Combiner
    from ibidem.memory import Memory
    from ibidem.retrieve import Index


class SwiftScorer(MemoryScorer):
    """A scorer whose parts are all native: they are asked as one, as long as nobody exchanges them."""

    def __init__(
        self, index: Index, values: Tensor, combiner: Combiner, memory: Memory | None, ask: NativeConsultation
    ) -> None:
        super().__init__(index, values, combiner, memory)
        self._parts = (index, values, combiner)
        self._ask = ask

    def consult(self, states: Tensor) -> Votes:
        index, values, combiner = self._parts
        if self.index is not index or self.values is not values or self.combiner is not combiner:
            return super().consult(states)
        found = self._ask(states)
        weights = Weights(found.base, found.weights)
        return Votes(found.distances, found.entries, found.values, weights, only_source(found.entries))


def make_scorer(index: Index, values: Tensor, combiner: Combiner, memory: Memory | None = None) -> MemoryScorer:
    """A scorer in the fastest form that its parts allow."""
    if not (isinstance(index, CompactedIndex) and isinstance(index.compactor, SwiftCompactor)):
        return MemoryScorer(index, values, combiner, memory)
    inner = index.index
    if not (isinstance(inner, NativeIndex) and isinstance(inner.ivf, Ivf) and isinstance(combiner, NativeCombiner)):
        return MemoryScorer(index, values, combiner, memory)
    if not values.is_cpu or len(values) == 0 or inner.size == 0:
        return MemoryScorer(index, values, combiner, memory)
    ask = NativeConsultation(
        index.compactor.native,
        inner.ivf,
        inner.probing(combiner.k),
        values,
        combiner.native,
        live=inner.live,
        threads=inner.threads,
    )
    return SwiftScorer(index, values, combiner, memory, ask)
