"""Encoded parallel text and its length-bucketed batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import sentencepiece
import torch
from torch import Tensor

from vocabulary import PAD


class Ragged:
    """Token sequences of any length in one flat array, which also lies on the device that batches are made on."""

    def __init__(self, sequences: Sequence[Sequence[int]], device: torch.device) -> None:
        lengths = np.fromiter((len(s) for s in sequences), dtype=np.int64, count=len(sequences))
        tokens = np.fromiter((t for s in sequences for t in s), dtype=np.int32, count=int(lengths.sum()))
        self.lengths = lengths
        self._tokens = torch.from_numpy(tokens).to(device)
        self._starts = torch.from_numpy(np.cumsum(lengths) - lengths).to(device)
        self._lengths = torch.from_numpy(lengths).to(device)

    @cached_property
    def total(self) -> int:
        return len(self._tokens)

    def pad(self, rows: np.ndarray) -> Tensor:
        """Rows as [rows, longest] with PAD at the end, on the device."""
        columns = torch.arange(int(self.lengths[rows].max()), device=self._tokens.device)
        chosen = torch.from_numpy(rows).to(self._tokens.device)
        index = (self._starts[chosen][:, None] + columns).clamp_max(self.total - 1)
        return torch.where(columns < self._lengths[chosen][:, None], self._tokens[index], PAD).long()


def encode(spm: Path, texts: Sequence[str], device: torch.device, threads: int = 16) -> Ragged:
    """Encode texts with EOS at the end."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(spm))
    return Ragged(processor.encode(list(texts), out_type=int, add_eos=True, num_threads=threads), device)


def make_batches(
    sources: Ragged, targets: Ragged, rows: np.ndarray, max_tokens: int, random: np.random.Generator
) -> list[np.ndarray]:
    """Batches of row numbers, of similar lengths, at most `max_tokens` padded tokens a side, in random order."""
    longest = np.maximum(sources.lengths[rows], targets.lengths[rows])
    order = np.lexsort((random.random(len(rows)), targets.lengths[rows], longest))
    longest = longest[order]
    batches: list[np.ndarray] = []
    start = 0
    while start < len(order):
        # `longest` ascends, so the padded size grows with the end of the batch and can be searched by halving.
        widest = min(len(order) - start, max_tokens // int(longest[start]) + 1)
        sizes = np.arange(1, widest + 1) * longest[start : start + widest]
        end = start + max(1, int(np.searchsorted(sizes, max_tokens, side="right")))
        batches.append(rows[order[start:end]])
        start = end
    return [batches[i] for i in random.permutation(len(batches))]


def to_tensors(sources: Ragged, targets: Ragged, batches: Sequence[np.ndarray]) -> Iterator[tuple[Tensor, Tensor]]:
    """Padded source and target tensors of each batch."""
    for rows in batches:
        yield sources.pad(rows), targets.pad(rows)
