"""Combiners and mixtures in native code: the weights of neighbours, and the best tokens of the mixed distribution."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import torch
from torch.nn.functional import pad

from ibidem.native.library import dense, require, threads_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_LANES = 16
# As CombinerKind of native/step/combiner.h.
_FIXED, _META_K, _DISTANCE_DECAY, _CONTEXTUAL = range(4)
# A thread gets at least this many logits.
_LEAST_LOGITS = 1 << 15


class _Combiner(ctypes.Structure):
    """Combiner of native/step/combiner.h."""

    _fields_ = (("kind", ctypes.c_int64), ("k", ctypes.c_int64), ("data", ctypes.c_void_p))


class _Fixed(ctypes.Structure):
    _fields_ = (
        ("k", ctypes.c_int64),
        ("weight", ctypes.c_float),
        ("base_weight", ctypes.c_float),
        ("temperature", ctypes.c_float),
    )


class _MetaK(ctypes.Structure):
    _fields_ = (
        ("k", ctypes.c_int64),
        ("hidden", ctypes.c_int64),
        ("sizes", ctypes.c_int64),
        ("inner_weight", ctypes.c_void_p),
        ("inner_bias", ctypes.c_void_p),
        ("outer_weight", ctypes.c_void_p),
        ("outer_bias", ctypes.c_void_p),
        ("scale", ctypes.c_float),
        ("temperature", ctypes.c_float),
    )


class _DistanceDecay(ctypes.Structure):
    _fields_ = (
        ("bandwidth", ctypes.c_float),
        ("slope", ctypes.c_float),
        ("temperature", ctypes.c_float),
        ("weight", ctypes.c_float),
        ("agreement", ctypes.c_int64),
    )


class _Contextual(ctypes.Structure):
    _fields_ = (
        ("k", ctypes.c_int64),
        ("hidden", ctypes.c_int64),
        ("neighbour_hidden", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("row_weight", "row_bias", "base_weight", "temperature_weight")),
        *((name, ctypes.c_void_p) for name in ("neighbour_weight", "neighbour_bias", "context_weight", "score_weight")),
        *((name, ctypes.c_float) for name in ("base_bias", "temperature_bias", "score_bias", "scale")),
    )


class CombinerKernel:
    """The weights of the base model and of k neighbours; made by `fixed`, `meta_k` and the like."""

    def __init__(self, kind: int, k: int, data: Any, tensors: tuple[Tensor, ...] = ()) -> None:
        """Take the data of a kind; callers use `fixed`, `meta_k`, `distance_decay` or `contextual`.

        Args:
            kind: CombinerKind of native/step/combiner.h.
            k: Neighbours.
            data: The ctypes structure of the kind.
            tensors: What the structure points to.
        """
        self.k = k
        # The library points to these.
        self._data, self._tensors = data, tensors
        self._parts = _Combiner(kind, k, ctypes.addressof(data))
        self.address = ctypes.addressof(self._parts)
        self._exact_width = kind in (_META_K, _CONTEXTUAL)
        self.needs_context = kind == _CONTEXTUAL

    @classmethod
    def fixed(cls, k: int, weight: float, temperature: float) -> Self:
        """Give the neighbours one weight and one temperature for all rows; see `combine.FixedCombiner`.

        Args:
            k: Neighbours.
            weight: Of all neighbours together, from 0 to 1.
            temperature: Of the softmax over neighbours, in squared distance.
        """
        # A positive weight of the base model keeps a forced token possible that no neighbour has.
        return cls(_FIXED, k, _Fixed(k, weight, max(1 - weight, 1e-12), temperature))

    @classmethod
    def meta_k(
        cls, inner: tuple[Tensor, Tensor], outer: tuple[Tensor, Tensor], *, scale: float, temperature: float
    ) -> Self:
        """Choose among 0, 1, 2, 4, … k neighbours by a network; see `combine.AdaptiveCombiner`.

        Args:
            inner: Weight [hidden, 2 k] and bias [hidden].
            outer: Weight [2 + log2 k, hidden] and bias [2 + log2 k].
            scale: A typical squared distance.
            temperature: Of the softmax over neighbours, in squared distance.
        """
        hidden, features = inner[0].shape
        spare = -hidden % _LANES
        tensors = (
            dense(pad(inner[0].T, (0, spare))),
            dense(pad(inner[1], (0, spare))),
            dense(pad(outer[0], (0, spare))),
            dense(outer[1]),
        )
        addresses = [tensor.data_ptr() for tensor in tensors]
        sizes = len(outer[1]) - 1
        data = _MetaK(features // 2, hidden + spare, sizes, *addresses, scale, temperature)
        return cls(_META_K, features // 2, data, tensors)

    @classmethod
    def distance_decay(
        cls, k: int, *, bandwidth: float, slope: float, temperature: float, weight: float, agreement: int
    ) -> Self:
        """Make the neighbours' weight decay with distance; see `combine.DistanceDecayCombiner`.

        Args:
            k: Neighbours.
            bandwidth: Squared distance of the nearest neighbour at which the weight is half of the largest one.
            slope: Of the sigmoid, in squared distance.
            temperature: Of the softmax over neighbours, in squared distance.
            weight: The largest weight of the neighbours.
            agreement: Exponent of the largest share that one token has.
        """
        return cls(_DISTANCE_DECAY, k, _DistanceDecay(bandwidth, slope, temperature, weight, agreement))

    @classmethod
    def contextual(
        cls,
        *,
        row: tuple[Tensor, Tensor],
        base: tuple[Tensor, Tensor],
        temperature: tuple[Tensor, Tensor],
        neighbour: tuple[Tensor, Tensor],
        context: Tensor,
        score: tuple[Tensor, Tensor],
        k: int,
        scale: float,
    ) -> Self:
        """Score base model and neighbours by a network that sees their context; see `combine.ContextualNetwork`.

        Args:
            row: Weight [hidden, 12 k + 4] and bias [hidden].
            base: Weight [1, hidden] and bias [1].
            temperature: Weight [1, hidden] and bias [1].
            neighbour: Weight [neighbour hidden, 12] and bias [neighbour hidden].
            context: Weight [neighbour hidden, hidden].
            score: Weight [1, neighbour hidden] and bias [1].
            k: Neighbours.
            scale: A typical squared distance.
        """
        spare, inner_spare = -len(row[1]) % _LANES, -len(neighbour[1]) % _LANES
        tensors = (
            dense(pad(row[0].T, (0, spare))),
            dense(pad(row[1], (0, spare))),
            dense(pad(base[0][0], (0, spare))),
            dense(pad(temperature[0][0], (0, spare))),
            dense(pad(neighbour[0].T, (0, inner_spare))),
            dense(pad(neighbour[1], (0, inner_spare))),
            dense(pad(context.T, (0, inner_spare, 0, spare))),
            dense(pad(score[0][0], (0, inner_spare))),
        )
        data = _Contextual(
            k,
            len(row[1]) + spare,
            len(neighbour[1]) + inner_spare,
            *(tensor.data_ptr() for tensor in tensors),
            *(float(bias) for _, bias in (base, temperature, score)),
            scale,
        )
        return cls(_CONTEXTUAL, k, data, tensors)

    def weigh(self, distances: Tensor, values: Tensor, context: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor]:
        """Compute the weights of the base model [r] and of the neighbours [r, K].

        Args:
            distances: Squared distances [r, K], ascending; not finite where a neighbour is absent.
            values: Tokens [r, K].
            context: For a contextual combiner the base model's log-probabilities of the tokens now and when they were
                stored, and the distances of sources, all [r, K], and the two highest log-probabilities [r, 2].

        Returns:
            The weights of the base model [r] and of the neighbours [r, K].

        Raises:
            ValueError: The shapes differ or are not those that the combiner needs.
        """
        if distances.shape != values.shape or (self._exact_width and distances.shape[1] != self.k):
            raise ValueError(
                f"distances {list(distances.shape)} and values {list(values.shape)} are not [rows, {self.k}]"
            )
        near, tokens = dense(distances), dense(values, torch.int64)
        rows, width = near.shape
        shapes = [(rows, width)] * 3 + [(rows, 2)] if self.needs_context else []
        if [tuple(part.shape) for part in context] != shapes:
            raise ValueError(f"a context of shapes {[list(part.shape) for part in context]} was given, not {shapes}")
        parts = [dense(part) for part in context]
        addresses = [part.data_ptr() for part in parts] if parts else [None] * 4
        base = torch.empty(rows, dtype=torch.float32)
        neighbours = torch.empty(rows, width, dtype=torch.float32)
        done = require().combiner_weigh(
            self.address,
            near.data_ptr(),
            tokens.data_ptr(),
            *addresses,
            rows,
            width,
            base.data_ptr(),
            neighbours.data_ptr(),
            torch.get_num_threads(),
        )
        if not done:
            raise MemoryError(f"Out of memory to weigh the neighbours of {rows} rows.")
        return base, neighbours


class Best(NamedTuple):
    """The best tokens of each row.

    Attributes:
        scores: [rows, m] float32, log-probabilities, best first.
        tokens: [rows, m] int64.
    """

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
    normalisers: Tensor | None = None,
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
        normalisers: [rows] float32 that receives the log-sum-exp of each row; None if it is not wanted.

    Returns:
        Log-probabilities and tokens, each [rows, count].

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
    scores = torch.empty(rows, count, dtype=torch.float32)
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
        None if normalisers is None else normalisers.data_ptr(),
        mixture_threads(rows, size),
    )
    if not done:
        raise MemoryError(f"Out of memory to find the best tokens of {rows} rows.")
    return Best(scores, tokens)


def check_count(count: int, size: int, banned: Sequence[int]) -> tuple[Tensor, int]:
    """Check that enough tokens are allowed, and mask the others.

    Args:
        count: Tokens that are requested, at least 1.
        size: Of the vocabulary.
        banned: Tokens that are never returned.

    Returns:
        A mask [size] uint8, 1 for a banned token, and the number of banned tokens.

    Raises:
        ValueError: Fewer than `count` tokens are allowed.
    """
    mask, banned_count = _mask(tuple(banned), size)
    if not 1 <= count <= size - banned_count:
        raise ValueError(f"{count} tokens were requested, but only {size - banned_count} are not banned")
    return mask, banned_count


def mixture_threads(rows: int, size: int) -> int:
    """Return the number of threads for this many logits.

    Args:
        rows: Rows of logits.
        size: Of the vocabulary.
    """
    return threads_for(rows * size, _LEAST_LOGITS)


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
