"""Batches of triplets on their way to the network."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

if TYPE_CHECKING:
    from torch import Tensor

    from ibidem.learn.compact.source import Source
    from ibidem.learn.compact.triplets import Triplets


class Batch(NamedTuple):
    """Triplets before the network.

    pivots: [B, d]; others: [2B, d], positives, then negatives; words: [2, B] int64, of positives and of negatives.
    """

    pivots: Tensor
    others: Tensor
    words: Tensor


class Batches:
    """Batches by number; the pivots may come from a source of their own, the centroids."""

    def __init__(self, triplets: Triplets, keys: Source, pivots: Source, device: torch.device) -> None:
        self._triplets, self._keys, self._pivots, self._device = triplets, keys, pivots, device

    def prepare(self, number: int) -> Batch:
        """Draw and read a batch, ahead of time."""
        draw = self._triplets.draw(number)
        return Batch(
            self._pivots.prepare(draw.pivots),
            self._keys.prepare(np.concatenate([draw.positives, draw.negatives])),
            torch.from_numpy(np.stack([draw.words, draw.negative_words])),
        )

    def place(self, batch: Batch) -> Batch:
        """Put a prepared batch on the device."""
        words = batch.words.to(self._device, non_blocking=True)
        return Batch(self._pivots.place(batch.pivots), self._keys.place(batch.others), words)
