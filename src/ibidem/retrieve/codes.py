"""Keys as int8 codes for a first, rough look at all of them: half the bytes of float16, and twice the matrix rate.

A code is a component, less the mean of all keys, in steps of one size for all components, so that distances between
codes are whole numbers and differ from true ones by rounding alone.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# The squared length of the code of what is no key; a score that is not below half of it is at infinity.
NO_CODE = 1 << 28
_LARGEST = 127
# One component in so many is clipped by its code.
_CLIPPED = 2000
_SAMPLE = 1 << 16
_ROWS = 1 << 20


class Codes(NamedTuple):
    """codes: [n, d] int8; squares: [n] int32, their squared lengths; mean: [d]; scale: [1], steps in a unit."""

    codes: Tensor
    squares: Tensor
    mean: Tensor
    scale: Tensor

    def encode(self, vectors: Tensor) -> Tensor:
        """The codes [n, d] int8 of vectors [n, d]."""
        return _encode(vectors, self.mean, self.scale)


def make_codes(keys: Tensor, squares: Tensor) -> Codes:
    """Codes of keys [n, d], with their squared lengths [n], inf where there is none."""
    mean, scale = _fit(keys[torch.isfinite(squares)])
    codes = torch.empty(keys.shape, dtype=torch.int8, device=keys.device)
    lengths = torch.empty(len(keys), dtype=torch.int32, device=keys.device)
    for start in range(0, len(keys), _ROWS):
        rows = slice(start, start + _ROWS)
        codes[rows] = _encode(keys[rows].float(), mean, scale)
        lengths[rows] = codes[rows].int().square().sum(1, dtype=torch.int32)
    return Codes(codes, lengths.masked_fill_(torch.isinf(squares), NO_CODE), mean, scale)


def _fit(keys: Tensor) -> tuple[Tensor, Tensor]:
    """The mean, and a scale such that nearly all components of these keys fit."""
    some = keys[:: max(1, len(keys) // _SAMPLE)].float()
    if len(some) == 0:
        return torch.zeros(keys.shape[1], device=keys.device), torch.ones(1, device=keys.device)
    mean = some.mean(0)
    away = (some - mean).abs().flatten().sort().values
    span = away[-1 - len(away) // _CLIPPED]
    span = torch.where(span > 0, span, away[-1])
    return mean, (_LARGEST / torch.where(span > 0, span, 1.0)).view(1)


def _encode(vectors: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    return ((vectors - mean) * scale + 0.5).floor().clamp(-_LARGEST, _LARGEST).to(torch.int8)
