"""The best tokens of the base model mixed with weighted neighbours, in one pass over the logits."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch

from ibidem.native.library import dense, require, threads_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

# Logits that a thread should have at least.
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
    """The `count` best tokens of each row with their log-probabilities, equals by token.

    logits: [rows, V]; base: [rows], the base model's weight; weights, values: [rows, K] of the neighbours. Without
    these three the base model stands alone. A neighbour whose weight is not above zero or whose value is no token has
    no vote. Banned tokens never come, but count in the sum of all probabilities. A row whose logits have no
    distribution (NaN, inf, or all -inf) gets the lowest allowed tokens, with scores NaN.
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
        raise MemoryError(f"there is no room to look for the best tokens of {rows} rows")
    return Best(scores, tokens)


def check_count(count: int, size: int, banned: Sequence[int]) -> tuple[Tensor, int]:
    """[size] uint8, 1 for banned tokens, and how many they are, where `count` others are left."""
    mask, banned_count = _mask(tuple(banned), size)
    if not 1 <= count <= size - banned_count:
        raise ValueError(f"{count} tokens were asked for, but {size - banned_count} are there and not banned")
    return mask, banned_count


def mixture_threads(rows: int, size: int) -> int:
    """How many threads so many logits are worth."""
    return threads_for(rows * size, _LEAST)


def _checked(tensor: Tensor | None, shape: tuple[int, ...], kind: torch.dtype) -> Tensor | None:
    if tensor is not None and tensor.shape != shape:
        raise ValueError(f"the neighbours come as {list(tensor.shape)}, where {list(shape)} is needed")
    return None if tensor is None else dense(tensor, kind)


@lru_cache(maxsize=8)
def _mask(banned: tuple[int, ...], size: int) -> tuple[Tensor, int]:
    """[size] uint8, 1 for banned tokens, and how many they are."""
    mask = torch.zeros(size, dtype=torch.uint8)
    mask[list(banned)] = 1
    return mask, int(mask.sum())
