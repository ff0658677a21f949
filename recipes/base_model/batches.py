"""Encoded parallel text, and batches of similar lengths."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import sentencepiece
import torch
from torch import Tensor
from vocabulary import PAD

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

WIDTH_STEP = 8


class Ragged:
    """Token sequences of different lengths in one flat array, with a copy on the device of the batches.

    Attributes:
        lengths: [n] the length of each sequence.
    """

    def __init__(self, sequences: Sequence[Sequence[int]], device: torch.device) -> None:
        """Copy sequences of token ids to a device."""
        lengths = np.fromiter((len(s) for s in sequences), dtype=np.int64, count=len(sequences))
        tokens = np.fromiter((t for s in sequences for t in s), dtype=np.int32, count=int(lengths.sum()))
        self.lengths = lengths
        self._tokens = torch.from_numpy(tokens).to(device)
        self._starts = torch.from_numpy(np.cumsum(lengths) - lengths).to(device)
        self._lengths = torch.from_numpy(lengths).to(device)

    @cached_property
    def total(self) -> int:
        """The number of tokens."""
        return len(self._tokens)

    def pad(self, rows: np.ndarray, width: int) -> Tensor:
        """Return the given rows as [rows, width] on the device, padded with PAD."""
        columns = torch.arange(width, device=self._tokens.device)
        chosen = torch.from_numpy(rows).to(self._tokens.device)
        index = (self._starts[chosen][:, None] + columns).clamp_max(self.total - 1)
        return torch.where(columns < self._lengths[chosen][:, None], self._tokens[index], PAD).long()


def encode(spm: Path, texts: Sequence[str], device: torch.device, threads: int = 16) -> Ragged:
    """Encode texts with EOS at the end.

    Args:
        spm: The SentencePiece model.
        texts: The texts.
        device: The device of the tokens.
        threads: The number of threads.
    """
    processor = sentencepiece.SentencePieceProcessor(model_file=str(spm))
    return Ragged(processor.encode(list(texts), out_type=int, add_eos=True, num_threads=threads), device)


def make_batches(
    sources: Ragged, targets: Ragged, rows: np.ndarray, max_tokens: int, random: np.random.Generator
) -> list[tuple[np.ndarray, int]]:
    """Make batches of rows in random order.

    Both sides of a batch are padded to the same multiple of 8, and all batches of a width have one size, so that a run
    has few different shapes.

    Args:
        sources: The source sequences.
        targets: The target sequences.
        rows: [n] the rows to use.
        max_tokens: The largest number of tokens on one side of a batch.
        random: The source of the order.

    Returns:
        The rows of each batch, and its width.
    """
    longest = np.maximum(sources.lengths[rows], targets.lengths[rows])
    widths = -(-longest // WIDTH_STEP) * WIDTH_STEP
    batches: list[tuple[np.ndarray, int]] = []
    for width in np.unique(widths):
        members = random.permutation(rows[widths == width])
        size = max(8, max_tokens // int(width) // 8 * 8)
        batches += [(members[start : start + size], int(width)) for start in range(0, len(members), size)]
    return [batches[i] for i in random.permutation(len(batches))]


def to_tensors(
    sources: Ragged, targets: Ragged, batches: Sequence[tuple[np.ndarray, int]]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the padded source and target tensors [rows, width] of each batch."""
    for rows, width in batches:
        yield sources.pad(rows, width), targets.pad(rows, width)
