"""Native code on the CPU: the scorer whose parts run as one step, and the hypotheses of a batch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from ibidem.combine import NativeCombiner, Weights, to_native
from ibidem.compact import NativeCompactor
from ibidem.decode.beams import Beams, Hypothesis
from ibidem.decode.scorer import MemoryScorer, Retrieved, only_source
from ibidem.native import Ivf, NativeBeams, RetrievalStep, native
from ibidem.retrieve import CompactedIndex, NativeIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from ibidem.combine import Candidates, Combiner
    from ibidem.decode.beams import Rules
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


class NativeBeamState:
    """The hypotheses of the open sentences; see `Beams`."""

    def __init__(self, rules: Rules, limits: Sequence[int]) -> None:
        """Begin with empty hypotheses; limits: the most tokens of each sentence."""
        self._rules = rules
        self._limits = torch.tensor(limits)
        self._soonest = min(limits)
        self.native = NativeBeams(limits, beam=rules.beam, eos=rules.eos, force_end=rules.force_end)
        self._last = torch.empty(0, dtype=torch.long)
        self.length = 1

    @property
    def sentences(self) -> Tensor:
        """The numbers of the open sentences [open]."""
        return self.native.numbers()

    @property
    def last_tokens(self) -> Tensor:
        """The newest token of each running hypothesis [rows, 1]."""
        return self._last.view(-1, 1)

    @property
    def results(self) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence, best first, once all are finished."""
        return [[Hypothesis(*one) for one in best] for best in self.native.results(self._rules.n_best)]

    def at_limit(self) -> Tensor | None:
        """Return which sentences [open] take their last token now; None where none does."""
        return None if self.length < self._soonest else self.length >= self._limits[self.sentences]

    def mask_lagging(self, states: Tensor) -> Tensor:
        """Return the states [rows, d], NaN for hypotheses below the retrieval margin."""
        margin = self._rules.retrieval_margin
        if margin == math.inf:
            return states
        return states.masked_fill(self.native.mask_lagging(margin).view(-1, 1), math.nan)

    def advance(self, candidates: Candidates) -> Tensor | None:
        """Extend all hypotheses by one of their candidates; returns the rows that continue, None when all are done."""
        divisor: float = (self.length + self._rules.given) ** self._rules.length_penalty
        before = self.native.open
        rows, self._last = self.native.advance(candidates.log_probs, candidates.tokens, divisor)
        self.length += 1
        if not self.native.open:
            return None
        if self.native.open < before:
            self._soonest = int(self._limits[self.sentences].min())
        return rows


def begin_beams(rules: Rules, limits: Sequence[int], device: torch.device) -> Beams | NativeBeamState:
    """Make the empty hypotheses of sentences with these limits, in native code where the device is a CPU."""
    if device.type == "cpu" and native() is not None:
        return NativeBeamState(rules, limits)
    return Beams(rules, limits, device)
