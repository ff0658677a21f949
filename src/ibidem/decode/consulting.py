"""A memory that is asked in native code, which does on the CPU what `MemoryScorer` does by its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.combine import NativeCombiner, Weights
from ibidem.compact import NativeNetworkCompactor
from ibidem.decode.scorer import MemoryScorer, Retrieved, only_source
from ibidem.native import Ivf, NativeConsultation
from ibidem.retrieve import CompactedIndex, NativeIndex

if TYPE_CHECKING:
    from torch import Tensor

    from ibidem.combine import Combiner
    from ibidem.memory import Memory
    from ibidem.retrieve import Index


class NativeScorer(MemoryScorer):
    """A scorer whose parts are all native: they are asked as one, as long as nobody exchanges them."""

    def __init__(
        self, index: Index, values: Tensor, combiner: Combiner, memory: Memory | None, ask: NativeConsultation
    ) -> None:
        super().__init__(index, values, combiner, memory)
        self._parts = (index, values, combiner)
        self._ask = ask

    @property
    def whole(self) -> NativeConsultation | None:
        """The parts as one; None where somebody has exchanged one of them."""
        index, values, combiner = self._parts
        same = self.index is index and self.values is values and self.combiner is combiner
        return self._ask if same else None

    def retrieve(self, states: Tensor, group_size: int = 1) -> Retrieved:
        ask = self.whole
        if ask is None:
            return super().retrieve(states)
        found = ask(states, group_size)
        weights = Weights(found.base, found.weights)
        return Retrieved(found.distances, found.entries, found.values, weights, only_source(found.entries))


def make_scorer(index: Index, values: Tensor, combiner: Combiner, memory: Memory | None = None) -> MemoryScorer:
    """A scorer in the fastest form that its parts allow."""
    ask = _join(index, values, combiner)
    if ask is None:
        return MemoryScorer(index, values, combiner, memory)
    return NativeScorer(index, values, combiner, memory, ask)


def _join(index: Index, values: Tensor, combiner: Combiner) -> NativeConsultation | None:
    """The parts as one; None where not all of them are native, or there is nothing to find."""
    if not isinstance(index, CompactedIndex) or not isinstance(combiner, NativeCombiner) or len(values) == 0:
        return None
    inner, compactor = index.index, index.compactor
    if not isinstance(inner, NativeIndex) or not isinstance(compactor, NativeNetworkCompactor) or inner.size == 0:
        return None
    if not isinstance(inner.ivf, Ivf):
        return None
    return NativeConsultation(
        compactor.native,
        inner.ivf,
        inner.probing(combiner.k),
        inner.probing(combiner.k, brief=True),
        values,
        combiner.native,
        live=inner.live,
        threads=inner.threads,
    )
