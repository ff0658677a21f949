"""Rough scores |x|² - 2 q·x of many keys at once, with a proven bound on their rounding error.

The score differs from the squared distance |q - x|² only by |q|², so it orders the keys of one query alike;
it costs one matrix product, but loses digits where the vectors are long and the distances short.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# (keys [n, d], squared lengths [n] float32) -> scores [q, n] float32
Scorer = Callable[[Tensor, Tensor], Tensor]

# Rounding to nearest in float32, as CPU products do.
FLOAT32_UNIT = 2.0**-24
# Tensor cores cut off instead of rounding, and the split query itself is good to 22 bits.
HALF_UNIT = 2.0**-22
# Each step may also lose what lies below the normal float32 numbers.
UNDERFLOW = 2.0**-120

_WIDE_ELEMENTS = 2**22


def make_scorer(queries: Tensor, key_type: torch.dtype) -> Scorer:
    """Choose how queries [q, d] float32 are scored against keys of one type; never by TF32 or bfloat16."""
    if key_type == torch.float16:
        return _half_scorer(queries)
    if queries.is_cuda or torch.get_float32_matmul_precision() != "highest":
        return _wide_scorer(queries)
    return lambda keys, squares: torch.addmm(squares, queries, keys.T, alpha=-2)


def error_bound(lengths: Tensor, longest: float, dimension: int, key_type: torch.dtype) -> Tensor:
    """Bound |rough score - true score| for each query.

    A sum of n products is off by at most n units of the sum of their sizes, and that sum is at most
    |q| |x| (Cauchy-Schwarz). lengths: [q] float64, |q|; longest: the largest |x|; gives [q] float64.
    """
    unit = HALF_UNIT if key_type == torch.float16 else FLOAT32_UNIT
    sizes = 2 * lengths * longest + longest**2
    return unit * (dimension + 8) * sizes + dimension * UNDERFLOW


def split_halves(queries: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Write queries as (high + low) x scale, with high and low in float16 and scale a power of two a row.

    queries: [q, d] float32; gives [q, d] float16 twice, and [q, 1] float32. The sum is good to 22 bits of
    each component, or to 2^-39 of the row's largest.
    """
    exponent = torch.frexp(queries.abs().amax(1, keepdim=True)).exponent
    shift = (15 - exponent).clamp(-126, 126)
    scaled = queries * _power_of_two(shift)
    high = scaled.to(torch.float16)
    low = (scaled - high.to(torch.float32)).to(torch.float16)
    return high, low, _power_of_two(-shift)


def _power_of_two(exponent: Tensor) -> Tensor:
    """Make 2^exponent in float32 from its bits, since exp2 need not be exact; exponent: int, -126 to 126."""
    return ((exponent.to(torch.int32) + 127) << 23).view(torch.float32)


def _half_scorer(queries: Tensor) -> Scorer:
    """Score float16 keys with two float16 products a query, summed in float32."""
    count = len(queries)
    high, low, scale = split_halves(queries)
    stacked = torch.cat([high, low])
    factor = -2 * scale

    def score(keys: Tensor, squares: Tensor) -> Tensor:
        products = multiply_halves(stacked, keys.T)
        total = products[:count].add_(products[count:])
        return torch.addcmul(squares, total, factor, out=total)

    return score


def multiply_halves(left: Tensor, right: Tensor) -> Tensor:
    """Multiply float16 matrices into float32, which only CUDA can do without a wider copy."""
    if left.is_cuda:
        return torch.mm(left, right, out_dtype=torch.float32)
    return left.to(torch.float32) @ right.to(torch.float32)


def _wide_scorer(queries: Tensor) -> Scorer:
    """Score in float64, a piece at a time, whatever precision the process allows float32 products."""
    wide = queries.double()

    def score(keys: Tensor, squares: Tensor) -> Tensor:
        result = torch.empty(len(wide), len(keys), device=wide.device)
        step = max(1, _WIDE_ELEMENTS // (keys.shape[1] + len(wide)))
        for start in range(0, len(keys), step):
            piece = slice(start, start + step)
            result[:, piece] = torch.addmm(squares[piece].double(), wide, keys[piece].double().T, alpha=-2)
        return result

    return score
