"""Compactors as bytes: safetensors that name their own kind, so that one file is enough to apply them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from ibidem.compact.linear import LinearCompactor
from ibidem.compact.network import NetworkCompactor
from ibidem.errors import DamagedMemoryError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from torch import Tensor

    from ibidem.compact.compactor import Compactor

# All that is noted goes under one name: safetensors does not promise an order of several.
_NOTED = "ibidem_compactor"
_REMEDY = "run `ibidem compact` again, or give another compactor"


def store_compactor(compactor: Compactor, notes: Mapping[str, object] | None = None) -> bytes:
    """The compactor and notes about it (what JSON can hold, such as the model it was trained for) as bytes."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in compactor.state_dict().items()}
    noted = {**compactor.summary(), "notes": dict(notes or {})}
    return save(tensors, metadata={_NOTED: json.dumps(noted, sort_keys=True, allow_nan=False)})


def restore_compactor(payload: bytes) -> Compactor:
    """The compactor of these bytes, on the CPU; raises DamagedMemoryError for anything else."""
    try:
        tensors, noted = load(payload), _read_noted(payload)
        if any(tensor.dtype != torch.float32 or tensor.numel() == 0 for tensor in tensors.values()):
            raise ValueError("its tensors are not filled float32 ones")
        if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
            raise ValueError("some of its weights are not numbers")
        compactor = _RESTORERS[noted["kind"]](tensors, noted)
    except (
        SafetensorError,
        KeyError,
        IndexError,
        TypeError,
        RuntimeError,
        ValueError,
        UsageError,
    ) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DamagedMemoryError(f"The compactor cannot be read ({reason}): {_REMEDY}.") from error
    return compactor


def read_notes(payload: bytes) -> dict[str, Any]:
    """The notes that were stored with a compactor; raises DamagedMemoryError for bytes that hold none."""
    try:
        notes: dict[str, Any] = dict(_read_noted(payload)["notes"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedMemoryError(f"The compactor's notes cannot be read ({error}): {_REMEDY}.") from error
    return notes


def load_compactor(path: Path) -> Compactor:
    """The compactor of a file; raises UsageError where there is none, DamagedMemoryError where it is something else."""
    try:
        payload = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"The compactor {path} cannot be opened ({error.strerror}): "
            "give the path of a file like compactor-000003.safetensors of a memory."
        ) from error
    try:
        return restore_compactor(payload)
    except DamagedMemoryError as error:
        raise DamagedMemoryError(f"{path}: {error}") from error


def _read_noted(payload: bytes) -> dict[str, Any]:
    """What was noted in the header: 8 bytes of its length, little-endian, then JSON."""
    header = json.loads(payload[8 : 8 + int.from_bytes(payload[:8], "little")])
    noted = json.loads(header["__metadata__"][_NOTED])
    if not isinstance(noted, dict):
        raise ValueError("its header is not a compactor's")
    return noted


def _restore_network(tensors: dict[str, Tensor], noted: dict[str, Any]) -> Compactor:
    (hidden, input_dimension), dimension = tensors["inner.weight"].shape, tensors["outer.weight"].shape[0]
    # Made without weights of its own, which would cost the caller's random draws.
    with torch.device("meta"):
        network = NetworkCompactor(input_dimension, hidden, dimension, noted["activation"])
    network.load_state_dict(tensors, assign=True)
    return network.eval().requires_grad_(False)


def _restore_linear(tensors: dict[str, Tensor], noted: dict[str, Any]) -> Compactor:
    projection, mean = tensors["projection"], tensors["mean"]
    if projection.ndim != 2 or mean.shape != projection.shape[1:]:
        raise ValueError(f"a projection of shape {list(projection.shape)} and a mean of {list(mean.shape)}")
    return LinearCompactor(noted["kind"], projection, mean).eval()


_RESTORERS: dict[str, Callable[[dict[str, Tensor], dict[str, Any]], Compactor]] = {
    "network": _restore_network,
    "pca": _restore_linear,
    "svd": _restore_linear,
}
