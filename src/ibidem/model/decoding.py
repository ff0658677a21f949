"""The interface between the base model and beam search: decoding steps, padding, and positions of tokens in text."""

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
    """Pad sequences of token ids at their ends.

    Args:
        sequences: n sequences of token ids.
        filling: The id of the padding token.
        device: The device of the results.

    Returns:
        [n, longest] token ids, and [n, longest] a mask that is 1 at real tokens and 0 at padding.

    Examples:
        >>> pad_ids([[5, 6, 0], [7, 0]], filling=1, device=torch.device("cpu"))[0]
        tensor([[5, 6, 0],
                [7, 0, 1]])
    """
    # Through numpy, since torch is slow at making a tensor from lists of lists.
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    real = np.arange(lengths.max()) < lengths[:, None]
    padded = np.full(real.shape, filling, np.int64)
    padded[real] = flatten(sequences)
    return torch.from_numpy(padded).to(device), torch.from_numpy(real.astype(np.int64)).to(device)


def flatten(sequences: Sequence[Sequence[int]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Concatenate sequences of token ids to one array.

    Args:
        sequences: Sequences of token ids; they may be empty.

    Returns:
        [sum of the lengths] int64.
    """
    return np.fromiter(chain.from_iterable(sequences), np.int64, sum(map(len, sequences)))


class Step(NamedTuple):
    """The result of one decoding step.

    Attributes:
        states: [rows, d] inputs of the output projection, float32.
        logits: [rows, V] the model's logits, float32.
    """

    states: Tensor
    logits: Tensor


def mean_states(encoded: Tensor, mask: Tensor) -> Tensor:
    """Compute the mean encoder state of each source.

    Args:
        encoded: [n, s, d] encoder states.
        mask: [n, s] 1 at real tokens, 0 at padding.

    Returns:
        [n, d] means in float32.
    """
    shown = mask.to(torch.float32)
    return torch.einsum("nsd,ns->nd", encoded.float(), shown) / shown.sum(dim=1, keepdim=True).clamp_min(1)


class Decoding(Protocol):
    """A batch of translations that are being decoded: `step` appends a token to every row, `reorder` selects rows.

    Attributes:
        source_means: [n, d] the mean encoder state of each source that the decoding was started with, float32.
    """

    source_means: Tensor

    def step(self, tokens: Tensor) -> Step:
        """Feed tokens and compute the state and logits at the last position.

        Args:
            tokens: [rows, t] token ids; t > 1 only for the prompt of the first step.

        Returns:
            States [rows, d] and logits [rows, V].
        """
        ...

    def reorder(self, rows: Tensor) -> None:
        """Select rows.

        Args:
            rows: [new rows] the row that each new row continues. A sentence keeps the number of its rows, or loses all.
        """
        ...


class TransformersDecoding:
    """A decoding of any transformers model with its own forward pass and cache; see `Decoding`."""

    def __init__(self, network: Any, projection: nn.Linear, encoded: Any, mask: Tensor) -> None:
        """Start a decoding of encoded sources.

        Args:
            network: The transformers model.
            projection: The output layer of the network.
            encoded: The encoder's output for n sources.
            mask: [n, s] 1 at real source tokens, 0 at padding.
        """
        self._network = network
        self._projection = projection
        self._encoded = encoded
        self._mask = mask
        self._cache: Any = None
        self.source_means = mean_states(encoded.last_hidden_state, mask)

    @torch.inference_mode()
    def step(self, tokens: Tensor) -> Step:
        """Feed tokens [rows, t] and compute the state and logits at the last position."""
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
        """Select rows [new rows], in this order; a row may be dropped or repeated."""
        self._mask = self._mask.index_select(0, rows)
        self._encoded.last_hidden_state = self._encoded.last_hidden_state.index_select(0, rows)
        if self._cache is not None:
            self._cache.batch_select_indices(rows)


@contextmanager
def forward_pre_hook(module: nn.Module, hook: Any) -> Iterator[None]:
    """Register a forward pre-hook that acts in this thread alone, since another thread may use the model.

    Args:
        module: The module; the hook is removed at the end of the `with` block.
        hook: A function as torch's `register_forward_pre_hook` takes it.
    """
    owner = get_ident()
    handle = module.register_forward_pre_hook(lambda *given: hook(*given) if get_ident() == owner else None)
    try:
        yield
    finally:
        handle.remove()


class Spans:
    """The positions of tokens in a text, as (start, end) in characters; white space before a token is excluded.

    A tokenizer may normalise a text (… to ...): the positions are those of the corresponding characters then. A token
    that adds no character, such as the end of the sentence or the first bytes of a character, has an empty span.

    Examples:
        >>> words = ["Good", " ", "day"]
        >>> spans = Spans(lambda ids: "".join(words[i] for i in ids), [0, 1, 2], "Good day")
        >>> spans[2]
        (5, 8)
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], ids: Sequence[int], text: str) -> None:
        """Prepare the spans of a text; each one is computed when it is read.

        Args:
            decode: The function that converts token ids to text.
            ids: The token ids of the text.
            text: The text as it was written.
        """
        self._decode = decode
        self._ids = ids
        self._spelt = decode(ids)
        self._written = None if self._spelt == text else _align(self._spelt, text)
        self._ends = {-1: 0, len(ids) - 1: len(self._spelt)}

    def __getitem__(self, position: int) -> tuple[int, int]:
        """Return start and end of the token at a position."""
        end = self._end(position)
        start = min(self._end(position - 1), end)
        while start < end and self._spelt[start].isspace():
            start += 1
        if self._written is None:
            return start, end
        starts, ends = self._written
        return starts[start], ends[end] if start < end else starts[start]

    def _end(self, position: int) -> int:
        """Return where the tokens up to a position end in the decoded text."""
        # The decoder may write the first bytes of a character as another one: such a token ends at or before the next.
        unfinished = []
        at = position
        while at not in self._ends:
            begun = self._decode(self._ids[: at + 1])
            if self._spelt.startswith(begun):
                self._ends[at] = len(begun)
            else:
                same = takewhile(lambda pair: pair[0] == pair[1], zip(begun, self._spelt, strict=False))
                unfinished.append((at, sum(1 for _ in same)))
                at += 1
        limit = self._ends[at]
        for before, end in reversed(unfinished):
            limit = self._ends[before] = min(end, limit)
        return self._ends[position]


def _align(spelt: str, written: str) -> tuple[list[int], list[int]]:
    """Map each character position of the decoded text to the written text, as start and as end of a token."""
    starts, ends = [0] * len(spelt), [0]
    for kind, first, last, from_, to in SequenceMatcher(None, spelt, written, autojunk=False).get_opcodes():
        same = kind == "equal"
        starts[first:last] = range(from_, to) if same else [from_] * (last - first)
        ends += range(from_ + 1, to + 1) if same else [to] * (last - first)
    return [*starts, len(written)], ends
