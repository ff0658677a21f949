"""Combiners as bytes: JSON for a fixed one, safetensors for an adaptive one."""

from __future__ import annotations

import json
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from ibidem.combine.adaptive import AdaptiveCombiner, MetaK
from ibidem.combine.fixed import FixedCombiner
from ibidem.errors import DamagedMemoryError, UsageError


class StoredCombiner(NamedTuple):
    """A combiner's payload, the extension of its file, and a summary for people."""

    extension: str
    payload: bytes
    summary: dict[str, object]


def store_fixed(combiner: FixedCombiner) -> StoredCombiner:
    summary: dict[str, object] = {
        "k": combiner.k,
        "weight": combiner.weight,
        "temperature": combiner.temperature,
    }
    return StoredCombiner("json", json.dumps(summary).encode(), summary)


def store_adaptive(combiner: AdaptiveCombiner) -> StoredCombiner:
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
    try:
        stored = json.loads(payload)
        return FixedCombiner(int(stored["k"]), float(stored["weight"]), float(stored["temperature"]))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, UsageError) as error:
        raise DamagedMemoryError(f"The fixed combiner cannot be read ({error}): run `ibidem tune` again.") from error


def restore_adaptive(payload: bytes, temperature: float) -> AdaptiveCombiner:
    try:
        tensors = load(payload)
        k, hidden = tensors["inner.weight"].shape[1] // 2, tensors["inner.weight"].shape[0]
        network = MetaK(k, float(tensors["scale"]), hidden)
        network.load_state_dict(tensors)
        if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
            raise ValueError("some of its weights are not numbers")
    except (SafetensorError, KeyError, IndexError, RuntimeError, ValueError, UsageError) as error:
        raise DamagedMemoryError(f"The adaptive combiner cannot be read ({error}): run `ibidem tune` again.") from error
    return AdaptiveCombiner(network.eval().requires_grad_(False), temperature)
