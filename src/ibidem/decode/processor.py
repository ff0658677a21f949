"""The compatibility path: a memory inside transformers' own `generate()`."""

from __future__ import annotations

from types import TracebackType

import torch
from torch import Tensor, nn

from ibidem.decode.scoring import Scorer
from ibidem.model import BaseModel, Step


class MemoryLogitsProcessor:
    """A logits processor for `model.generate(logits_processor=[…])`; a context manager that leaves no trace.

    `generate()` hands over raw logits in greedy search but log-probabilities in beam search; both are normalised
    here first. What an earlier processor forbade stays forbidden.

        with MemoryLogitsProcessor(model, scorer) as processor:
            model.network.generate(input_ids, num_beams=4, logits_processor=[processor])
    """

    def __init__(self, model: BaseModel, scorer: Scorer) -> None:
        self._scorer = scorer
        self._states: Tensor | None = None
        self._hook = model.projection.register_forward_pre_hook(self._remember)

    def _remember(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._states = inputs[0][:, -1]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # noqa: ARG002 - generate()'s protocol
        if self._states is None:
            raise RuntimeError("MemoryLogitsProcessor was called outside of the generate() of its model.")
        mixed = self._scorer(Step(self._states, scores.float()))
        return torch.where(torch.isneginf(scores), -torch.inf, mixed).to(scores.dtype)

    def __enter__(self) -> MemoryLogitsProcessor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take the hook off the model."""
        self._hook.remove()
