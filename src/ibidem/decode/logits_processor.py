"""The compatibility path: a memory inside transformers' own `generate()`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ibidem.combine import mix

if TYPE_CHECKING:
    from types import TracebackType

    from ibidem.decode.scoring import Scorer
    from ibidem.model import BaseModel


class MemoryLogitsProcessor:
    """A logits processor for `model.generate(logits_processor=[…])`; a context manager that leaves no trace.

    `generate()` hands over raw logits in greedy search but log-probabilities in beam search, and earlier
    processors may have changed both. The memory is mixed with the model's own distribution, and those changes
    are then made to the mixture: what was forbidden stays forbidden, what was forced stays forced.

        with MemoryLogitsProcessor(model, scorer) as processor:
            model.network.generate(input_ids, num_beams=4, logits_processor=[processor])
    """

    def __init__(self, model: BaseModel, scorer: Scorer) -> None:
        self._model = model
        self._scorer = scorer
        self._states: Tensor | None = None
        self._hook = model.projection.register_forward_pre_hook(self._remember)

    def _remember(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._states = inputs[0][:, -1]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # noqa: ARG002 - generate()'s protocol
        if self._states is None:
            raise RuntimeError("MemoryLogitsProcessor was called outside of the generate() of its model.")
        states = self._states
        logits = self._model.project(states)
        self._states = None  # the projection has just passed the hook, too
        log_probs = logits.log_softmax(dim=1)
        # Off by a constant in greedy search, which is nothing to it.
        changes = scores.float() - log_probs
        votes = self._scorer.retrieve(states)
        changed = (mix(log_probs, votes.weights, votes.values) + changes).to(scores.dtype)
        forced = torch.isfinite(scores).sum(dim=1, keepdim=True) == 1
        return torch.where(forced, scores, changed)

    def __enter__(self) -> MemoryLogitsProcessor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take the hook off the model."""
        self._hook.remove()
