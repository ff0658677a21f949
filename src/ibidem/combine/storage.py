"""Stored combiners: JSON for a fixed one, safetensors for trained ones, and the combiner that a memory holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from ibidem.combine.combiners import AdaptiveCombiner, FixedCombiner, MetaK, to_native
from ibidem.combine.contextual import (
    FEATURES,
    ROW_FEATURES,
    ContextualCombiner,
    ContextualNetwork,
    DeviceSourceProjection,
    EntryTable,
)
from ibidem.errors import DamagedMemoryError, ModelError, UsageError
from ibidem.memory import (
    ADAPTIVE_COMBINER_ARTEFACT,
    CONTEXTUAL_COMBINER_ARTEFACT,
    FIXED_COMBINER_ARTEFACT,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from ibidem.combine.combiners import Combiner
    from ibidem.memory import Memory
    from ibidem.model import BaseModel

_CONTEXTUAL, _ADAPTIVE, _FIXED, _DISTANCE_DECAY = "contextual", "adaptive", "fixed", "distance-decay"
_NAMES = (_CONTEXTUAL, _ADAPTIVE, _FIXED, _DISTANCE_DECAY)
_ARTEFACTS = {
    _CONTEXTUAL: CONTEXTUAL_COMBINER_ARTEFACT,
    _ADAPTIVE: ADAPTIVE_COMBINER_ARTEFACT,
    _FIXED: FIXED_COMBINER_ARTEFACT,
}


class StoredCombiner(NamedTuple):
    """A combiner as the content of a file.

    Attributes:
        extension: The extension of its file.
        payload: The bytes of the file.
        summary: Its settings, as the memory's manifest lists them.
    """

    extension: str
    payload: bytes
    summary: dict[str, object]


def store_fixed(combiner: FixedCombiner) -> StoredCombiner:
    """Turn a fixed combiner into JSON.

    Args:
        combiner: The combiner; its three settings are stored.

    Examples:
        >>> combiner = FixedCombiner(k=8, weight=0.5, temperature=10.0)
        >>> restore_fixed(store_fixed(combiner).payload) == combiner
        True
    """
    summary: dict[str, object] = {
        "k": combiner.k,
        "weight": combiner.weight,
        "temperature": combiner.temperature,
    }
    return StoredCombiner("json", json.dumps(summary).encode(), summary)


def store_adaptive(combiner: AdaptiveCombiner) -> StoredCombiner:
    """Turn an adaptive combiner into safetensors; the temperature is in the summary only.

    Args:
        combiner: The combiner; its network may be on any device.
    """
    network = combiner.network
    summary: dict[str, object] = {
        "k": network.k,
        "hidden": network.inner.out_features,
        "temperature": combiner.temperature,
        "scale": float(network.scale),
    }
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    return StoredCombiner("safetensors", save(tensors), summary)


def store_contextual(combiner: ContextualCombiner) -> StoredCombiner:
    """Turn a contextual combiner into safetensors.

    Args:
        combiner: The combiner.
    """
    network = combiner.network
    summary: dict[str, object] = {
        "k": network.k,
        "hidden": network.row.out_features,
        "neighbour_hidden": network.neighbour.out_features,
        "scale": float(network.scale),
    }
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    return StoredCombiner("safetensors", save(tensors), summary)


def restore_contextual(tensors: Mapping[str, Tensor]) -> ContextualCombiner:
    """Make a contextual combiner of its tensors, on the CPU.

    Args:
        tensors: The tensors that `store_contextual` wrote, by name.

    Raises:
        ValueError, KeyError, RuntimeError: If the tensors are others, or a weight is not finite.
    """
    row, neighbour = tensors["row.weight"], tensors["neighbour.weight"]
    k, rest = divmod(row.shape[1] - ROW_FEATURES, FEATURES)
    if rest or k < 1:
        raise ValueError(f"its first layer has {row.shape[1]} inputs")
    network = ContextualNetwork(k, float(tensors["scale"]), row.shape[0], neighbour.shape[0])
    network.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
        raise ValueError("some of its weights are not finite")
    return ContextualCombiner(network.eval().requires_grad_(False))


def restore_fixed(payload: bytes) -> FixedCombiner:
    """Read a fixed combiner that `store_fixed` wrote.

    Args:
        payload: The bytes of the file.

    Raises:
        DamagedMemoryError: If the bytes are something else.
    """
    try:
        stored = json.loads(payload)
        return FixedCombiner(int(stored["k"]), float(stored["weight"]), float(stored["temperature"]))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, UsageError) as error:
        raise DamagedMemoryError(f"The fixed combiner cannot be read ({error}): run `ibidem tune` again.") from error


def restore_adaptive(payload: bytes, temperature: float) -> AdaptiveCombiner:
    """Read an adaptive combiner that `store_adaptive` wrote, to the CPU.

    Args:
        payload: The bytes of the file.
        temperature: The temperature with which the network was trained, as the summary has it.

    Raises:
        DamagedMemoryError: If the bytes are something else, or a weight is not finite.
    """
    try:
        tensors = load(payload)
        k, hidden = tensors["inner.weight"].shape[1] // 2, tensors["inner.weight"].shape[0]
        network = MetaK(k, float(tensors["scale"]), hidden)
        network.load_state_dict(tensors)
        if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
            raise ValueError("some of its weights are not finite")
    except (SafetensorError, KeyError, IndexError, RuntimeError, ValueError, UsageError) as error:
        raise DamagedMemoryError(f"The adaptive combiner cannot be read ({error}): run `ibidem tune` again.") from error
    return AdaptiveCombiner(network.eval().requires_grad_(False), temperature)


def load_combiner(memory: Memory, name: str | None = None, *, context: bool = True) -> Combiner | None:
    """Load a combiner of a memory.

    Args:
        memory: The memory.
        name: "contextual", "adaptive", "fixed" or "distance-decay"; None for the best one of the memory, in this order.
        context: Whether a combiner is returned, where none is named, that needs a context.

    Returns:
        The combiner, on the CPU. None stands for the `DistanceDecayCombiner`, which needs no tuning: it was named, or
        none was named and the memory holds no other.

    Raises:
        UsageError: If there is no combiner of this name, or the memory does not hold it.
        DamagedMemoryError: If it cannot be read.
    """
    if name is not None and name not in _NAMES:
        raise UsageError(f"Unknown combiner '{name}': use one of {', '.join(_NAMES)}.")
    for kind in _ARTEFACTS if name is None else (name,):
        artefact = memory.artefact(_ARTEFACTS[kind]) if kind in _ARTEFACTS else None
        if artefact is None or (name is None and kind == _CONTEXTUAL and not context):
            continue
        payload = artefact.path.read_bytes()
        if kind == _FIXED:
            return restore_fixed(payload)
        if kind == _ADAPTIVE:
            return restore_adaptive(payload, float(str(artefact.info["temperature"])))
        return _read_contextual(payload)
    if name in (None, _DISTANCE_DECAY):
        return None
    raise UsageError(
        f"{memory.path} has no {name} combiner yet: run `ibidem tune -m {memory.path} --dev …`, "
        "or give --k, --weight and --temperature."
    )


def _read_contextual(payload: bytes) -> ContextualCombiner:
    try:
        return restore_contextual(load(payload))
    except (SafetensorError, KeyError, IndexError, RuntimeError, ValueError, UsageError) as error:
        raise DamagedMemoryError(
            f"The contextual combiner cannot be read ({error}): run `ibidem tune` again."
        ) from error


def load_general_combiner(model: BaseModel) -> ContextualCombiner:
    """Load the contextual combiner that was trained for all memories of a model.

    Args:
        model: The model; it must have the folder `general`.

    Raises:
        ModelError: If it cannot be read.
    """
    assert model.general is not None
    path = model.general / "combiner.safetensors"
    try:
        return restore_contextual(load(path.read_bytes()))
    except (OSError, SafetensorError, KeyError, IndexError, RuntimeError, ValueError, UsageError) as error:
        raise ModelError(f"The combiner {path} cannot be read ({error}): install the model again.") from error


def load_entry_table(memory: Memory, device: torch.device) -> EntryTable:
    """Load what a memory stores about its entries, those of the tail excluded.

    Args:
        memory: The memory.
        device: Where the table is used.

    Raises:
        DamagedMemoryError: If a file is damaged.
    """
    projection = memory.source_projection
    return EntryTable(
        torch.from_numpy(memory.values().astype(np.int64)).to(device),
        torch.from_numpy(memory.log_probs().astype(np.float32)).to(device),
        torch.from_numpy(memory.sentence_of_entries()[: memory.entries]).to(device),
        torch.from_numpy(memory.source_vectors()[: memory.pairs].copy()).to(device),
        DeviceSourceProjection(
            torch.from_numpy(projection.mean).to(device), torch.from_numpy(projection.projection).to(device)
        ),
    )


def place_combiner(combiner: Combiner, device: torch.device) -> Combiner:
    """Move a combiner to a device.

    Args:
        combiner: The combiner; a network that it holds is moved in place.
        device: The device of the distances.

    Returns:
        On the CPU its native form where the native library is available, otherwise the combiner.
    """
    network = getattr(combiner, "network", None)
    if isinstance(network, torch.nn.Module):
        network.to(device)
    return to_native(combiner) if device.type == "cpu" else combiner
