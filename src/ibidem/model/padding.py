"""Token sequences of different lengths as one rectangle."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


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
