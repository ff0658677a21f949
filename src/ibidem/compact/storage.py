"""Stored compactors: safetensors whose header names the kind, so that one file is enough to apply a compactor."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from ibidem.compact.compactors import LinearCompactor, NetworkCompactor
from ibidem.errors import DamagedMemoryError, UsageError
from ibidem.memory import COMPACTOR_ARTEFACT, KeyCoding

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from torch import Tensor

    from ibidem.compact.compactors import Compactor
    from ibidem.memory import Memory
    from ibidem.model import BaseModel

# The file of the compactor in `BaseModel.general`.
GENERAL_COMPACTOR = "compactor.safetensors"
# The metadata is one JSON document under one name, since safetensors does not promise an order of several names.
_METADATA = "ibidem_compactor"
_REMEDY = "run `ibidem compact` again, or give another compactor"


def store_compactor(
    compactor: Compactor, notes: Mapping[str, object] | None = None, coding: KeyCoding | None = None
) -> bytes:
    """Turn a compactor into safetensors.

    Args:
        compactor: The compactor.
        notes: What to store with it, such as the model that it was trained for; JSON must be able to hold it.
        coding: The codes in which a memory stores its compact keys; `KeyCoding.read` reads it back. None only for a
            compactor that no memory uses.

    Returns:
        The bytes of the file.

    Examples:
        >>> compactor = NetworkCompactor(8, 4, 2, "sigmoid")
        >>> payload = store_compactor(compactor, {"model": "ibidem-base-de-en"})
        >>> restore_compactor(payload).dimension, read_notes(payload)
        (2, {'model': 'ibidem-base-de-en'})
    """
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in compactor.state_dict().items()}
    if coding is not None:
        tensors |= {name: torch.from_numpy(numbers) for name, numbers in coding.tensors().items()}
    metadata = {**compactor.summary(), "notes": dict(notes or {})}
    return save(tensors, metadata={_METADATA: json.dumps(metadata, sort_keys=True, allow_nan=False)})


def restore_compactor(payload: bytes) -> Compactor:
    """Read a compactor that `store_compactor` wrote, to the CPU.

    Args:
        payload: The bytes of the file.

    Raises:
        DamagedMemoryError: If the bytes are something else, or a weight is not finite.
    """
    try:
        tensors, metadata = load(payload), _read_metadata(payload)
        if any(tensor.dtype != torch.float32 or tensor.numel() == 0 for tensor in tensors.values()):
            raise ValueError("a tensor is empty or not float32")
        if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
            raise ValueError("some of its weights are not finite")
        tensors = {name: tensor for name, tensor in tensors.items() if name not in KeyCoding.NAMES}
        compactor = _RESTORERS[metadata["kind"]](tensors, metadata)
    except (SafetensorError, KeyError, IndexError, TypeError, RuntimeError, ValueError, UsageError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DamagedMemoryError(f"The compactor cannot be read ({reason}): {_REMEDY}.") from error
    return compactor


def read_notes(payload: bytes) -> dict[str, Any]:
    """Read the notes that were stored with a compactor.

    Args:
        payload: The bytes of the file.

    Raises:
        DamagedMemoryError: If the bytes hold none.
    """
    try:
        notes: dict[str, Any] = dict(_read_metadata(payload)["notes"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedMemoryError(f"The compactor's notes cannot be read ({error}): {_REMEDY}.") from error
    return notes


def load_compactor(path: Path) -> Compactor:
    """Read a compactor from a file, to the CPU.

    Args:
        path: A file that `store_compactor` wrote, such as compactor-000003.safetensors of a memory.

    Raises:
        UsageError: If the file cannot be opened.
        DamagedMemoryError: If it is not a compactor.
    """
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


def is_general(memory: Memory, model: BaseModel) -> bool:
    """Return whether the keys of a memory are in the space of the model's general compactor.

    Args:
        memory: The memory.
        model: Its base model.
    """
    artefact = memory.artefact(COMPACTOR_ARTEFACT)
    if artefact is None or model.general is None:
        return False
    mine, general = (load_compactor(path).state_dict() for path in (artefact.path, model.general / GENERAL_COMPACTOR))
    return mine.keys() == general.keys() and all(torch.equal(mine[name], general[name]) for name in mine)


def _read_metadata(payload: bytes) -> dict[str, Any]:
    """Read our metadata from the header of safetensors: 8 bytes of its length, little-endian, then JSON."""
    header = json.loads(payload[8 : 8 + int.from_bytes(payload[:8], "little")])
    metadata = json.loads(header["__metadata__"][_METADATA])
    if not isinstance(metadata, dict):
        raise ValueError("its header is not a compactor's")
    return metadata


def _restore_network(tensors: dict[str, Tensor], metadata: dict[str, Any]) -> Compactor:
    (hidden, input_dimension), dimension = tensors["inner.weight"].shape, tensors["outer.weight"].shape[0]
    # Made without weights: initial weights would advance the caller's random generator.
    with torch.device("meta"):
        network = NetworkCompactor(input_dimension, hidden, dimension, metadata["activation"])
    network.load_state_dict(tensors, assign=True)
    return network.eval().requires_grad_(False)


def _restore_linear(tensors: dict[str, Tensor], metadata: dict[str, Any]) -> Compactor:
    projection, mean = tensors["projection"], tensors["mean"]
    if projection.ndim != 2 or mean.shape != projection.shape[1:]:
        raise ValueError(f"a projection of shape {list(projection.shape)} and a mean of {list(mean.shape)}")
    return LinearCompactor(metadata["kind"], projection, mean).eval()


_RESTORERS: dict[str, Callable[[dict[str, Tensor], dict[str, Any]], Compactor]] = {
    "network": _restore_network,
    "pca": _restore_linear,
    "svd": _restore_linear,
}
