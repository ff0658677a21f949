"""From a decoding step to log-probabilities of the next token: the base model alone, or with a memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ibidem.combine import Combiner, mix

if TYPE_CHECKING:
    from torch import Tensor

    from ibidem.model import Step
    from ibidem.retrieve import Index


class Scorer(Protocol):
    """Log-probabilities [rows, V] of the next token."""

    def __call__(self, step: Step) -> Tensor: ...


class BaseScorer:
    """The base model's own distribution."""

    def __call__(self, step: Step) -> Tensor:
        return step.logits.log_softmax(dim=1)


class MemoryScorer:
    """The base model's distribution mixed with the votes of the nearest entries."""

    def __init__(self, index: Index, values: Tensor, combiner: Combiner) -> None:
        self.index = index
        self._values = values
        self._combiner = combiner

    def __call__(self, step: Step) -> Tensor:
        log_probs = step.logits.log_softmax(dim=1)
        if self.index.size == 0:
            return log_probs
        distances, entries = self.index.search(step.states, self._combiner.k)
        values = self._values[entries.clamp_min(0)]
        return mix(log_probs, self._combiner.weigh(distances, values), values)
