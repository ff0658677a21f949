"""A memory made ready for decoding with a given model: checked, indexed, with its combiner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from ibidem.combine import restore_adaptive, restore_fixed, to_native
from ibidem.errors import MismatchError, UsageError
from ibidem.model import LanguagePair
from ibidem.text import same_language

if TYPE_CHECKING:
    from ibidem.combine import Combiner
    from ibidem.memory import Memory
    from ibidem.model import BaseModel

ADAPTIVE, FIXED, FADING = "adaptive", "fixed", "fading"
COMBINERS = (ADAPTIVE, FIXED, FADING)


def check_identity(memory: Memory, model: BaseModel) -> None:
    """Refuse a memory of other languages, or that another model or tokenizer made: its keys would mean nothing."""
    identity = memory.identity
    stored_pair = LanguagePair(identity.source_language, identity.target_language)
    given_pair = LanguagePair(model.tokens.source_language, model.tokens.target_language)
    for known, wanted in zip(stored_pair, given_pair, strict=True):
        if known is not None and wanted is not None and not same_language(known, wanted):
            raise MismatchError(
                f"{memory.path} holds translations {stored_pair}, but the model '{model.name}' is to translate "
                f"{given_pair}: give --source-language and --target-language as the memory has them, or another memory."
            )
    checks = (
        ("dimension", identity.dimension, model.dimension),
        ("vocabulary size", identity.vocabulary_size, model.vocabulary_size),
        ("tokenizer", identity.tokenizer_fingerprint[:12], model.tokenizer_fingerprint[:12]),
        ("model", identity.model_fingerprint[:12], model.fingerprint[:12]),
    )
    for what, stored, given in checks:
        if stored != given and identity.name == model.name:
            raise MismatchError(
                f"{memory.path} was learnt with another state of '{model.name}' ({what} {stored}, now {given}): the "
                "model has changed, or --source-prefix or a language differs. Give the same ones, or learn it again."
            )
        if stored != given:
            raise MismatchError(
                f"{memory.path} was learnt with the model '{identity.name}' ({what} {stored}), not with "
                f"'{model.name}' ({what} {given}): use --model {identity.name}, or learn the memory again."
            )


def check_complete(memory: Memory) -> None:
    """Refuse a memory whose extraction was interrupted: what is tuned or said with a part of it would mislead."""
    if not memory.complete:
        raise UsageError(f"{memory.path} is unfinished: run the `ibidem learn` or `extract` that began it again.")


def load_combiner(memory: Memory, name: str | None = None) -> Combiner | None:
    """The named combiner, or the best one that the memory has: adaptive before fixed.

    None stands for the one that fades with distance and needs no tuning: by that name, and where there is no other.
    """
    if name is not None and name not in COMBINERS:
        raise UsageError(f"Unknown combiner '{name}': use one of {', '.join(COMBINERS)}.")
    for kind in (ADAPTIVE, FIXED) if name is None else (name,):
        artefact = memory.artefact(f"combiner_{kind}") if kind != FADING else None
        if artefact is None:
            continue
        payload = artefact.path.read_bytes()
        if kind == FIXED:
            return restore_fixed(payload)
        return restore_adaptive(payload, float(str(artefact.info["temperature"])))
    if name in (None, FADING):
        return None
    raise UsageError(
        f"{memory.path} has no {name} combiner yet: run `ibidem tune -m {memory.path} --dev …`, "
        "or give --k, --weight and --temperature."
    )


def place_combiner(combiner: Combiner, device: torch.device) -> Combiner:
    """The combiner with its network, if it has one, on the device; on the CPU in native code where that is here."""
    network = getattr(combiner, "network", None)
    if isinstance(network, torch.nn.Module):
        network.to(device)
    return to_native(combiner)


def load_values(memory: Memory, device: torch.device) -> torch.Tensor:
    """The value of every entry [entries], on the device."""
    return torch.from_numpy(memory.values().astype(np.int64)).to(device)
