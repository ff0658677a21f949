"""A memory inside `generate()` of transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ibidem.combine import Sources, StepContext, mix
from ibidem.model import mean_states

if TYPE_CHECKING:
    from types import TracebackType

    from ibidem.decode.scorer import Scorer
    from ibidem.model import BaseModel


class MemoryLogitsProcessor:
    """A logits processor for `generate(logits_processor=[…])` that mixes in the neighbours of a memory.

    It is for programs that call `generate()` of transformers themselves; `Translator` is much faster. The processor
    reads the decoder states and the encoder states with hooks on the model; leaving the context removes the hooks.

    `generate()` passes raw logits in greedy search and log-probabilities in beam search, and earlier processors may
    have changed both. The neighbours are mixed with the model's own distribution, and the changes of earlier
    processors are then applied to the mixture: forbidden tokens stay forbidden, and forced tokens stay forced.

    Args:
        model: The base model.
        scorer: Retrieves and weights neighbours: `LoadedMemory.scorer`, `Translator.scorer` or your own.

    Examples:
        >>> import torch
        >>> from ibidem.decode import BaseScorer
        >>> from ibidem.model import load_model
        >>> model = load_model(device="cpu", dtype="float32")
        >>> sources = torch.tensor(model.tokens.encode_sources(["Guten Morgen."]))
        >>> with MemoryLogitsProcessor(model, BaseScorer()) as processor:  # or Translator(memory="…").scorer
        ...     output = model.network.generate(sources, num_beams=4, logits_processor=[processor])
        >>> output.shape[0]
        1
    """

    def __init__(self, model: BaseModel, scorer: Scorer) -> None:
        self._model = model
        self._scorer = scorer
        self._states: Tensor | None = None
        self._sources: Sources | None = None
        self._mask: Tensor | None = None
        encoder = model.network.get_encoder()
        self._hooks = [
            model.projection.register_forward_pre_hook(self._remember),
            encoder.register_forward_pre_hook(self._remember_mask, with_kwargs=True),
            encoder.register_forward_hook(self._remember_sources),
        ]

    def _remember(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._states = inputs[0][:, -1]

    def _remember_mask(self, _: nn.Module, __: object, arguments: dict[str, Any]) -> None:
        self._mask = arguments.get("attention_mask")

    def _remember_sources(self, _: nn.Module, __: object, encoded: Any) -> None:
        states = encoded[0]
        mask = states.new_ones(states.shape[:2]) if self._mask is None else self._mask
        self._sources = Sources(mean_states(states, mask))

    def _context(self, logits: Tensor) -> StepContext | None:
        """Return the step for combiners that need it; the rows of a source are adjacent."""
        if self._sources is None:
            return None
        count = len(self._sources.means)
        rows = torch.arange(len(logits), device=logits.device) // max(1, len(logits) // count)
        banned = torch.tensor(self._model.banned, device=logits.device) if self._model.banned else None
        return StepContext(logits, self._sources, rows, banned)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # noqa: ARG002 - generate()'s protocol
        """Mix the neighbours of the last decoder states into scores [r, V].

        Raises:
            RuntimeError: If it is called outside of `generate()` of its model.
        """
        if self._states is None:
            raise RuntimeError("MemoryLogitsProcessor was called outside of the generate() of its model.")
        states = self._states
        logits = self._model.project(states)
        self._states = None  # this projection has passed the hook as well
        log_probs = logits.log_softmax(dim=1)
        # In greedy search the scores are logits, so the changes are off by a constant, which changes no maximum.
        changes = scores.float() - log_probs
        retrieved = self._scorer.retrieve(states, context=self._context(logits))
        changed = (mix(log_probs, retrieved.weights, retrieved.values) + changes).to(scores.dtype)
        forced = torch.isfinite(scores).sum(dim=1, keepdim=True) == 1
        return torch.where(forced, scores, changed)

    def __enter__(self) -> MemoryLogitsProcessor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the hooks from the model."""
        for hook in self._hooks:
            hook.remove()
