"""Weights packed as int8 rows: a quarter of fp32, unpacked to fp32 at load.

Each row of a matrix is stored as int8 with one fp32 scale (its largest magnitude / 127); vectors stay fp16.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

if TYPE_CHECKING:
    from pathlib import Path

PACKED_FILE = "model.int8.safetensors"
PLAIN_FILE = "model.safetensors"
_ROWS, _SCALES = ".int8", ".scale"


def pack(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Replace every matrix by its int8 rows and their scales."""
    packed: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if weight.ndim != 2 or not weight.is_floating_point():
            packed[name] = weight.half() if weight.is_floating_point() else weight
            continue
        scale = weight.float().abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / 127
        packed[name + _ROWS] = (weight.float() / scale).round().to(torch.int8)
        packed[name + _SCALES] = scale.squeeze(1)
    return packed


def unpack(packed: dict[str, Tensor]) -> dict[str, Tensor]:
    """The fp32 weights behind `pack`."""
    weights: dict[str, Tensor] = {}
    for name, tensor in packed.items():
        if name.endswith(_ROWS):
            scale = packed[name.removesuffix(_ROWS) + _SCALES]
            weights[name.removesuffix(_ROWS)] = tensor.float() * scale[:, None]
        elif not name.endswith(_SCALES):
            weights[name] = tensor.float() if tensor.is_floating_point() else tensor
    return weights


def pack_folder(source: Path, target: Path) -> None:
    """Copy a Hugging Face folder with its weights packed."""
    target.mkdir(parents=True, exist_ok=True)
    save_file(pack(load_file(source / PLAIN_FILE)), target / PACKED_FILE, metadata={"format": "ibidem-int8-rows"})
    # safetensors makes files that only their owner can read.
    (target / PACKED_FILE).chmod(0o644)
    for file in sorted(source.iterdir()):
        if file.is_file() and file.name != PLAIN_FILE:
            shutil.copyfile(file, target / file.name)


def load_packed(folder: Path) -> dict[str, Tensor] | None:
    """The unpacked weights of a folder, or None where it holds no packed ones."""
    file = folder / PACKED_FILE
    return unpack(load_file(file)) if file.exists() else None
