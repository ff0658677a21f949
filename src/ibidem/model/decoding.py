"""Translations being written token by token: what every engine offers, and the one that runs any transformers model."""

from __future__ import annotations

from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterator


class Step(NamedTuple):
    """One decoding step: states [rows, d] that enter the output projection, and the model's logits [rows, V]."""

    states: Tensor
    logits: Tensor


class Decoding(Protocol):
    """A batch of translations being written: `step` adds a token to every row, `reorder` picks rows."""

    def step(self, tokens: Tensor) -> Step:
        """Feed tokens [rows, t] (t > 1 only for the prompt of the first step); the last position's state and logits."""
        ...

    def reorder(self, rows: Tensor) -> None:
        """Keep these rows, in this order; a sentence keeps as many rows as it has, or loses all of them."""
        ...


class TransformersDecoding:
    """Any transformers model, by its own forward pass and cache."""

    def __init__(self, network: Any, projection: nn.Linear, encoded: Any, mask: Tensor) -> None:
        self._network = network
        self._projection = projection
        self._encoded = encoded
        self._mask = mask
        self._cache: Any = None

    @torch.inference_mode()
    def step(self, tokens: Tensor) -> Step:
        """Feed tokens [rows, t] (t > 1 only for the prompt of the first step); the last position's state and logits."""
        captured: list[Tensor] = []

        def keep_last(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
            captured.append(inputs[0][:, -1:])
            return (captured[0],)

        with hooked(self._projection, keep_last):
            output = self._network(
                encoder_outputs=self._encoded,
                attention_mask=self._mask,
                decoder_input_ids=tokens,
                past_key_values=self._cache,
                use_cache=True,
            )
        self._cache = output.past_key_values
        return Step(captured[0][:, -1], output.logits[:, -1].float())

    @torch.inference_mode()
    def reorder(self, rows: Tensor) -> None:
        """Keep these rows [new_rows], in this order; a row may be dropped or stand several times."""
        self._mask = self._mask.index_select(0, rows)
        self._encoded.last_hidden_state = self._encoded.last_hidden_state.index_select(0, rows)
        if self._cache is not None:
            self._cache.batch_select_indices(rows)


@contextmanager
def hooked(module: nn.Module, hook: Any) -> Iterator[None]:
    """A hook for this thread alone: another one may use the model at the same time."""
    owner = get_ident()
    handle = module.register_forward_pre_hook(lambda *given: hook(*given) if get_ident() == owner else None)
    try:
        yield
    finally:
        handle.remove()
