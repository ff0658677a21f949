"""One decoding step and its cache: the interface between the base model and beam search."""

from __future__ import annotations

from contextlib import contextmanager
from difflib import SequenceMatcher
from itertools import chain, takewhile
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def pad_ids(sequences: Sequence[Sequence[int]], filling: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Tokens [n, longest], filled up at their ends, and a mask [n, longest], 1 where they are real.

    In numpy: making a tensor of lists of lists takes many times as long, which tells while learning on a GPU.
    """
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    real = np.arange(lengths.max()) < lengths[:, None]
    padded = np.full(real.shape, filling, np.int64)
    padded[real] = flatten(sequences)
    return torch.from_numpy(padded).to(device), torch.from_numpy(real.astype(np.int64)).to(device)


def flatten(sequences: Sequence[Sequence[int]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """All tokens in a row."""
    return np.fromiter(chain.from_iterable(sequences), np.int64, sum(map(len, sequences)))


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

        with forward_pre_hook(self._projection, keep_last):
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
def forward_pre_hook(module: nn.Module, hook: Any) -> Iterator[None]:
    """A hook for this thread alone: another one may use the model at the same time."""
    owner = get_ident()
    handle = module.register_forward_pre_hook(lambda *given: hook(*given) if get_ident() == owner else None)
    try:
        yield
    finally:
        handle.remove()


class Spans:
    """The places (start, end) of the tokens `ids` in `text`, in characters, white space before a token left out.

    A tokenizer may spell a text otherwise than it was written (… as ...): then the places are those of the
    characters that correspond. A token that adds no character of its own, such as the end of the sentence or
    the first bytes of a character, is empty.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], ids: Sequence[int], text: str) -> None:
        self._decode = decode
        self._ids = ids
        self._spelt = decode(ids)
        self._written = None if self._spelt == text else _align(self._spelt, text)
        self._ends = {-1: 0, len(ids) - 1: len(self._spelt)}

    def __getitem__(self, position: int) -> tuple[int, int]:
        """The place of the token at a position."""
        end = self._end(position)
        start = min(self._end(position - 1), end)
        while start < end and self._spelt[start].isspace():
            start += 1
        if self._written is None:
            return start, end
        starts, ends = self._written
        return starts[start], ends[end] if start < end else starts[start]

    def _end(self, position: int) -> int:
        """Where the tokens up to a position end in the spelt text."""
        if position not in self._ends:
            begun = self._decode(self._ids[: position + 1])
            same = takewhile(lambda pair: pair[0] == pair[1], zip(begun, self._spelt, strict=False))
            self._ends[position] = len(begun) if self._spelt.startswith(begun) else sum(1 for _ in same)
        return self._ends[position]


def _align(spelt: str, written: str) -> tuple[list[int], list[int]]:
    """For every place in the spelt text, what corresponds to it where a token starts there, and where one ends."""
    starts, ends = [0] * len(spelt), [0]
    for kind, first, last, from_, to in SequenceMatcher(None, spelt, written, autojunk=False).get_opcodes():
        same = kind == "equal"
        starts[first:last] = range(from_, to) if same else [from_] * (last - first)
        ends += range(from_ + 1, to + 1) if same else [to] * (last - first)
    return [*starts, len(written)], ends
