"""The Meta-k Network: weights of the base model and of the neighbours, in one call."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import pad

from ibidem.native.library import dense, require

if TYPE_CHECKING:
    from torch import Tensor

_LANES = 16


class _MetaK(ctypes.Structure):
    """MetaK of native/metak.cpp."""

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


class NativeMetaK:
    """inner: weight [hidden, 2K] and bias; outer: weight [2 + log2 K, hidden] and bias; see `combine.adaptive`."""

    def __init__(
        self, inner: tuple[Tensor, Tensor], outer: tuple[Tensor, Tensor], *, scale: float, temperature: float
    ) -> None:
        hidden, features = inner[0].shape
        self.k = features // 2
        spare = -hidden % _LANES
        # What the library points to must live as long as this.
        self._tensors = [
            dense(pad(inner[0].T, (0, spare))),
            dense(pad(inner[1], (0, spare))),
            dense(pad(outer[0], (0, spare))),
            dense(outer[1]),
        ]
        addresses = [tensor.data_ptr() for tensor in self._tensors]
        self._parts = _MetaK(self.k, hidden + spare, len(outer[1]) - 1, *addresses, scale, temperature)
        self.address = ctypes.addressof(self._parts)

    def weigh(self, distances: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Weights of the base model [r] and of the neighbours [r, K], for distances and values [r, K]."""
        if distances.shape != values.shape or distances.shape[1] != self.k:
            raise ValueError(
                f"distances {list(distances.shape)} and values {list(values.shape)} are not [rows, {self.k}]"
            )
        near, tokens = dense(distances), dense(values, torch.int64)
        base, neighbours = torch.empty(len(near)), torch.empty(len(near), self.k)
        done = require().metak_weigh(
            self.address,
            near.data_ptr(),
            tokens.data_ptr(),
            len(near),
            base.data_ptr(),
            neighbours.data_ptr(),
            torch.get_num_threads(),
        )
        if not done:
            raise MemoryError("there is no room to weigh neighbours")
        return base, neighbours
