"""The best tokens of the base model's distribution mixed with weighted neighbours, in native code."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch

from ibidem.native.library import dense, require, threads_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

# The least logits of a thread.
_LEAST = 1 << 15


class Best(NamedTuple):
    """scores: [rows, m] float32, log-probabilities, best first; tokens: [rows, m] int64."""

    scores: Tensor
    tokens: Tensor


def best_of_mixture(
    logits: Tensor,
    count: int,
    *,
    base: Tensor | None = None,
    weights: Tensor | None = None,
    values: Tensor | None = None,
    banned: Sequence[int] = (),
) -> Best:
    """Find the best tokens of each row; of equal scores the lower token comes first.

    Args:
        logits: [rows, V] of the base model. A row without a distribution (NaN, inf, or all -inf) gets the lowest
            allowed tokens, with the score NaN.
        count: The number of tokens.
        base: The base model's weight [rows]; None, with the next two: the base model alone.
        weights: Of the neighbours [rows, K]; a weight that is not positive does not count.
        values: Tokens of the neighbours [rows, K]; a value outside of the vocabulary does not count.
        banned: Tokens that are never returned. They keep their part of the probability.

    Raises:
        ValueError: The shapes do not fit, or fewer than `count` tokens are allowed.
    """
    if logits.stride(1) != 1 or logits.dtype != torch.float32 or not logits.is_cpu:
        logits = dense(logits)
    rows, size = logits.shape
    mask, banned_count = check_count(count, size, banned)
    width = 0 if values is None else values.shape[1]
    kept = [
        _checked(base, (rows,), torch.float32),
        _checked(values, (rows, width), torch.int64),
        _checked(weights, (rows, width), torch.float32),
    ]
    if len({tensor is None for tensor in kept}) != 1:
        raise ValueError("give all of base, weights and values, or none")
    scores = torch.empty(rows, count)
    tokens = torch.empty(rows, count, dtype=torch.int64)
    done = require().best_of_mixture(
        logits.data_ptr(),
        rows,
        size,
        logits.stride(0),
        *[None if tensor is None else tensor.data_ptr() for tensor in kept],
        width,
        mask.data_ptr(),
        banned_count,
        count,
        scores.data_ptr(),
        tokens.data_ptr(),
        mixture_threads(rows, size),
    )
    if not done:
        raise MemoryError(f"Out of memory to find the best tokens of {rows} rows.")
    return Best(scores, tokens)


def check_count(count: int, size: int, banned: Sequence[int]) -> tuple[Tensor, int]:
    """Return a mask [size] uint8 of banned tokens and their number.

    Raises:
        ValueError: Fewer than `count` tokens are allowed.
    """
    mask, banned_count = _mask(tuple(banned), size)
    if not 1 <= count <= size - banned_count:
        raise ValueError(f"{count} tokens were requested, but only {size - banned_count} are not banned")
    return mask, banned_count


def mixture_threads(rows: int, size: int) -> int:
    """Return the number of threads for this many logits."""
    return threads_for(rows * size, _LEAST)


def _checked(tensor: Tensor | None, shape: tuple[int, ...], kind: torch.dtype) -> Tensor | None:
    if tensor is not None and tensor.shape != shape:
        raise ValueError(f"the neighbours come as {list(tensor.shape)}, where {list(shape)} is needed")
    return None if tensor is None else dense(tensor, kind)


@lru_cache(maxsize=8)
def _mask(banned: tuple[int, ...], size: int) -> tuple[Tensor, int]:
    """Return a mask [size] uint8 of banned tokens and their number."""
    mask = torch.zeros(size, dtype=torch.uint8)
    mask[list(banned)] = 1
    return mask, int(mask.sum())
