"""Which keys lie within eps of one another: rough distances decide, and true ones where rounding might.

The squared distance |a|² + |b|² - 2 a·b costs one matrix product in float32. The points are centred first, since
its rounding error grows with their lengths and not with their distance. A bound on that error (as in exact search)
tells which pairs lie so close to eps that the sign may be wrong: those, a few in a million among decoder states,
are measured from the differences a - b in float64. So the answer is exact, and depends neither on the size
of the tiles nor on the device.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

# Rounding to nearest in float32.
_UNIT = 2.0**-24
# Each step may also lose what lies below the normal float32 numbers.
_UNDERFLOW = 2.0**-120
# Squared lengths above this one might overflow in a sum: such points are nobody's neighbours.
_LARGEST_SQUARE = 2.0**118
_LARGEST_LIMIT = 2.0**126
# Components of difference vectors in float64 held at once.
_DIFFERENCES = 2**21


class Nearness:
    """Points of one or more families, ready to be compared tile by tile.

    points: [f, n, d] float32; eps: the largest distance that is near, itself included. Points that are not finite (or
    longer than 10^17) are near to nobody, not to themselves either: fill a family up to n points with NaN.
    """

    def __init__(self, points: Tensor, eps: float) -> None:
        self._points = points
        self._every = torch.arange(points.shape[1], device=points.device)
        self._eps_square = eps * eps
        usable = points.square().sum(2, dtype=torch.float64) < _LARGEST_SQUARE
        self._centred = points.masked_fill(~usable[:, :, None], 0.0)
        means = self._centred.sum(1, dtype=torch.float64) / usable.sum(1).clamp_min(1)[:, None]
        self._centred -= means.to(torch.float32)[:, None]
        self._squares = self._centred.square().sum(2, dtype=torch.float64).masked_fill_(~usable, torch.inf)
        # A float32 product in another precision than float32 would need another bound.
        self._type = torch.float32 if torch.get_float32_matmul_precision() == "highest" else torch.float64
        self._scores = torch.empty(0, dtype=self._type, device=points.device)
        longest = self._squares.masked_fill(~usable, 0.0).amax(1, keepdim=True).sqrt()
        bound = self._bound(self._squares.sqrt(), longest, points.shape[2])
        limit = self._eps_square - self._squares
        # Where there is no point both are -inf, which no score lies below, and its own score is inf, above all limits.
        self._least = (limit - bound).to(self._type)
        self._most = (limit + bound).masked_fill(~usable, -torch.inf).clamp_max(_LARGEST_LIMIT).to(self._type)

    def tile(self, rows: Tensor | slice, columns: Tensor | slice) -> Tensor:
        """Say which of the points `rows` are near to which of `columns`, in each family: [f, r, c] bool."""
        left, right = self._centred[:, rows].to(self._type), self._centred[:, columns].to(self._type)
        squares = self._squares[:, None, columns].to(self._type)
        scores = self._buffer(len(left), left.shape[1], right.shape[1])
        torch.baddbmm(squares, left, right.transpose(1, 2), alpha=-2, out=scores)
        near = scores <= self._most[:, rows, None]
        doubtful = positions(near & (scores > self._least[:, rows, None]))
        if len(doubtful):
            row, column = doubtful // right.shape[1], doubtful % right.shape[1]
            family, row = row // left.shape[1], row % left.shape[1]
            near.view(-1)[doubtful] = self._measure(family, self._every[rows][row], self._every[columns][column])
        return near

    def _buffer(self, *shape: int) -> Tensor:
        """Give room for scores, the same again and again: fresh memory costs a third of the product's time."""
        cells = math.prod(shape)
        if len(self._scores) < cells:
            self._scores = torch.empty(cells, dtype=self._type, device=self._points.device)
        return self._scores[:cells].view(shape)

    def _measure(self, family: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """Say of pairs of points whether they are near, from the differences; each [p], gives [p] bool."""
        step = max(1, _DIFFERENCES // max(1, self._points.shape[2]))
        parts = [
            (self._points[f, a].double() - self._points[f, b].double()).square_().sum(1) <= self._eps_square
            for f, a, b in zip(*(torch.split(part, step) for part in (family, left, right)), strict=True)
        ]
        return torch.cat(parts)

    def _bound(self, lengths: Tensor, longest: Tensor, dimension: int) -> Tensor:
        """Bound how far a rough squared distance may be off, for each point and whichever other; float64.

        A product a·b of d terms is off by at most d units of |a| |b|, so 2 a·b by at most d/2 units of (|a| + |b|)²;
        the constant covers centring, squares, sums, and limits rounded to float32. lengths: [f, n]; longest: [f, 1].
        """
        sizes = (lengths + longest).square()
        return _UNIT * ((dimension / 2 + 8) * sizes + 8 * self._eps_square) + dimension * _UNDERFLOW


def positions(mask: Tensor) -> Tensor:
    """Find where a mask is true, as positions in its flat form: [p] int64."""
    if mask.device.type == "cpu":  # numpy is ten times as fast here
        return torch.from_numpy(np.flatnonzero(mask.numpy()))
    return mask.view(-1).nonzero()[:, 0]
