"""Scorers whose parts run as one native step on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.combine import NativeCombiner, Weights, to_native
from ibidem.compact import NativeCompactor
from ibidem.decode.scorer import MemoryScorer, Retrieved, only_source
from ibidem.native import Ivf, RetrievalStep
from ibidem.retrieve import CompactedIndex, NativeIndex

if TYPE_CHECKING:
    from torch import Tensor

    from ibidem.combine import Combiner
    from ibidem.memory import Memory
    from ibidem.retrieve import Index


class NativeScorer(MemoryScorer):
    """A scorer whose index, compactor and combiner are native and run as one step, unless one of them is exchanged."""

    def __init__(
        self, index: Index, values: Tensor, combiner: Combiner, memory: Memory | None, step: RetrievalStep
    ) -> None:
        """Take the parts, and the step that was made of them."""
        super().__init__(index, values, combiner, memory)
        self._parts = (index, values, combiner)
        self._step = step

    @property
    def step(self) -> RetrievalStep | None:
        """The parts as one step; None where one of them was exchanged."""
        index, values, combiner = self._parts
        same = self.index is index and self.values is values and self.combiner is combiner
        return self._step if same else None

    def retrieve(self, states: Tensor, group_size: int = 1) -> Retrieved:
        step = self.step
        if step is None:
            return super().retrieve(states)
        found = step(states, group_size)
        weights = Weights(found.base, found.weights)
        return Retrieved(found.distances, found.entries, found.values, weights, only_source(found.entries))


def make_scorer(index: Index, values: Tensor, combiner: Combiner, memory: Memory | None = None) -> MemoryScorer:
    """Make a scorer in the fastest form that its parts allow."""
    if values.is_cpu:
        combiner = to_native(combiner)
    step = _make_step(index, values, combiner)
    if step is None:
        return MemoryScorer(index, values, combiner, memory)
    return NativeScorer(index, values, combiner, memory, step)


def _make_step(index: Index, values: Tensor, combiner: Combiner) -> RetrievalStep | None:
    """Join the parts; None where one of them is not native, or the index is empty."""
    inner, compactor = (index.index, index.compactor) if isinstance(index, CompactedIndex) else (index, None)
    if not isinstance(combiner, NativeCombiner) or not isinstance(inner, NativeIndex):
        return None
    if not (compactor is None or isinstance(compactor, NativeCompactor)) or not isinstance(inner.ivf, Ivf):
        return None
    if inner.size == 0 or len(values) == 0:
        return None
    return RetrievalStep(
        None if compactor is None else compactor.kernel,
        inner.ivf,
        inner.probing(combiner.k),
        inner.probing(combiner.k, reduced=True),
        values,
        combiner.kernel,
        alive_mask=inner.live,
        threads=inner.threads,
    )
