"""The hypotheses of a batch in native code, which does on the CPU what `Beams` does in torch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from ibidem.decode.beams import Beams, Hypothesis
from ibidem.native import NativeBeams, native

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from ibidem.combine import Candidates
    from ibidem.decode.beams import Rules


class NativeBeamState:
    """The hypotheses of the sentences that are still open; see `Beams`."""

    def __init__(self, rules: Rules, limits: Sequence[int]) -> None:
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
        """The best hypotheses of each sentence, best first, once all are done."""
        return [[Hypothesis(*one) for one in best] for best in self.native.results(self._rules.n_best)]

    def at_limit(self) -> Tensor | None:
        """Return which sentences [open] take their last token in this step; None where none does."""
        return None if self.length < self._soonest else self.length >= self._limits[self.sentences]

    def mask_lagging(self, states: Tensor) -> Tensor:
        """Return the states [rows, d], NaN for hypotheses below the retrieval margin."""
        margin = self._rules.retrieval_margin
        if margin == math.inf:
            return states
        return states.masked_fill(self.native.mask_lagging(margin).view(-1, 1), math.nan)

    def advance(self, candidates: Candidates) -> Tensor | None:
        """Extend all hypotheses by one of their candidates; return the rows that continue, None when all are done."""
        counted: float = (self.length + self._rules.given) ** self._rules.length_penalty
        before = self.native.open
        rows, self._last = self.native.advance(candidates.log_probs, candidates.tokens, counted)
        self.length += 1
        if not self.native.open:
            return None
        if self.native.open < before:
            self._soonest = int(self._limits[self.sentences].min())
        return rows


def begin_beams(rules: Rules, limits: Sequence[int], device: torch.device) -> Beams | NativeBeamState:
    """Return the hypotheses of sentences with these limits, in the fastest form for the device."""
    if device.type == "cpu" and native() is not None:
        return NativeBeamState(rules, limits)
    return Beams(rules, limits, device)
