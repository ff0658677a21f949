"""Stored combiners: JSON for a fixed one, safetensors for an adaptive one, and the combiner that a memory holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from ibidem.combine.combiners import AdaptiveCombiner, FixedCombiner, MetaK, to_native
from ibidem.errors import DamagedMemoryError, UsageError
from ibidem.memory import ADAPTIVE_COMBINER_ARTEFACT, FIXED_COMBINER_ARTEFACT

if TYPE_CHECKING:
    from ibidem.combine.combiners import Combiner
    from ibidem.memory import Memory

_ADAPTIVE, _FIXED, _DISTANCE_DECAY = "adaptive", "fixed", "distance-decay"
_NAMES = (_ADAPTIVE, _FIXED, _DISTANCE_DECAY)
_ARTEFACTS = {_ADAPTIVE: ADAPTIVE_COMBINER_ARTEFACT, _FIXED: FIXED_COMBINER_ARTEFACT}


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


def load_combiner(memory: Memory, name: str | None = None) -> Combiner | None:
    """Load a combiner of a memory.

    Args:
        memory: The memory.
        name: "adaptive", "fixed" or "distance-decay"; None for the best one of the memory, adaptive before fixed.

    Returns:
        The combiner, on the CPU. None stands for the `DistanceDecayCombiner`, which needs no tuning: it was named, or
        none was named and the memory holds no other.

    Raises:
        UsageError: If there is no combiner of this name, or the memory does not hold it.
        DamagedMemoryError: If it cannot be read.
    """
    if name is not None and name not in _NAMES:
        raise UsageError(f"Unknown combiner '{name}': use one of {', '.join(_NAMES)}.")
    for kind in (_ADAPTIVE, _FIXED) if name is None else (name,):
        artefact = memory.artefact(_ARTEFACTS[kind]) if kind in _ARTEFACTS else None
        if artefact is None:
            continue
        payload = artefact.path.read_bytes()
        if kind == _FIXED:
            return restore_fixed(payload)
        return restore_adaptive(payload, float(str(artefact.info["temperature"])))
    if name in (None, _DISTANCE_DECAY):
        return None
    raise UsageError(
        f"{memory.path} has no {name} combiner yet: run `ibidem tune -m {memory.path} --dev …`, "
        "or give --k, --weight and --temperature."
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
