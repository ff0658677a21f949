"""A whole encoder in one call: from tokens to the keys and values that a decoder reads."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple

import torch

from ibidem.native.decoder import Norm, NormParts, pack_norm
from ibidem.native.library import dense, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from ibidem.native.linear import Activation, NativeLinear


class EncoderLayer(NamedTuple):
    """An encoder layer: `project` makes the scaled query, the key and the value of a token in one."""

    project: NativeLinear
    outer: NativeLinear
    inner: NativeLinear
    feed_outer: NativeLinear
    norm: Norm
    feed_norm: Norm


class _Layer(ctypes.Structure):
    """EncoderLayerParts of native/encoder.cpp: the fields of `EncoderLayer`, in order."""

    _fields_ = tuple((name, NormParts if name.endswith("norm") else ctypes.c_void_p) for name in EncoderLayer._fields)


class _Encoder(ctypes.Structure):
    """EncoderParts of native/encoder.cpp."""

    _fields_ = (
        ("width", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("layers", ctypes.c_int64),
        ("layer", ctypes.POINTER(_Layer)),
        ("target_heads", ctypes.c_int64),
        ("target_layers", ctypes.c_int64),
        ("target", ctypes.POINTER(ctypes.c_void_p)),
        ("tokens", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("token_count", ctypes.c_int64),
        ("token_scale", ctypes.c_float),
        ("activation", ctypes.c_int32),
    )


class NativeEncoder:
    """The weights of a post-norm encoder; `target` makes the keys and values for each decoder layer.

    tokens: [vocabulary, width] and their scale; positions: [most tokens, width], the first token's first.
    """

    def __init__(
        self,
        layers: Sequence[EncoderLayer],
        heads: int,
        target: Sequence[NativeLinear],
        target_heads: int,
        tokens: Tensor,
        token_scale: float,
        positions: Tensor,
        activation: Activation,
    ) -> None:
        self._width = tokens.shape[1]
        self._target_heads = target_heads
        self._most = len(positions)
        self._tensors = [dense(tokens), dense(positions)]
        # Whatever the library points to must live as long as this.
        self._kept = [*layers, *target]
        self._layers = (_Layer * len(layers))(*(self._pack(layer) for layer in layers))
        self._target = (ctypes.c_void_p * len(target))(*(linear.handle for linear in target))
        self._parts = _Encoder(
            self._width,
            heads,
            len(layers),
            self._layers,
            target_heads,
            len(target),
            self._target,
            self._tensors[0].data_ptr(),
            self._tensors[1].data_ptr(),
            len(tokens),
            token_scale,
            activation,
        )

    def _pack(self, layer: EncoderLayer) -> _Layer:
        packed = (pack_norm(part, self._tensors) if isinstance(part, Norm) else part.handle for part in layer)
        return _Layer(*packed)

    def __call__(self, tokens: Tensor, lengths: Tensor) -> list[Tensor]:
        """Of each decoder layer the keys and values [2, n, heads, longest, size of a head] of sources.

        tokens: those of all sources, one after the other; lengths: [n]. Behind the end of a source anything may stand.
        """
        ids, counts = dense(tokens, torch.int64), dense(lengths, torch.int64)
        longest = int(counts.max()) if len(counts) else 0
        if len(counts) and (int(counts.min()) < 0 or int(counts.sum()) != len(ids) or longest > self._most):
            raise ValueError(
                f"{len(ids)} tokens are not sources of {counts.tolist()}, each of {self._most} tokens at most"
            )
        shape = (2, len(counts), self._target_heads, longest, self._width // self._target_heads)
        sources = [torch.empty(shape) for _ in self._target]
        done = require().encode(
            ctypes.byref(self._parts),
            ids.data_ptr(),
            counts.data_ptr(),
            len(counts),
            longest,
            (ctypes.c_void_p * len(sources))(*(source.data_ptr() for source in sources)),
            torch.get_num_threads(),
        )
        if done == 0:
            raise MemoryError(f"there is no room to encode {len(ids)} tokens")
        if done < 0:
            raise ValueError("a token is none of those that the model knows")
        return sources
