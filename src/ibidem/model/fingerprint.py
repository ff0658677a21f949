"""Fingerprints of models and tokenizers, by which a memory recognises its base model."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from ibidem.model.tokens import Tokens

# Text that exercises casing, umlauts, numbers, punctuation and rare characters of a tokenizer.
_PROBES = (
    "Die Zwischenablage enthält 1.234 Objekte.",
    "Grundstücksverkehrsgenehmigungszuständigkeit",
    'He said: "It\'s 50 % off – buy now!"',
    "ΑΒΓ 漢字 żółć 🙂\u200d\u00ad",
    "%s {name} <b>&amp;</b> C:\\foo_bar",
)


def fingerprint_network(network: nn.Module) -> str:
    """Compute the sha256 of the names, shapes and float32 values of all parameters.

    The result does not depend on the device or the file format.
    """
    digest = hashlib.sha256()
    weights = dict(network.named_parameters())
    # Marian and BART keep a learnt bias of the logits outside their parameters.
    bias = getattr(network, "final_logits_bias", None)
    if bias is not None:
        weights["final_logits_bias"] = bias
    for name, parameter in sorted(weights.items()):
        digest.update(f"{name}:{tuple(parameter.shape)};".encode())
        digest.update(parameter.detach().to("cpu", torch.float32).contiguous().numpy().data)
    return digest.hexdigest()


def fingerprint_tokens(tokens: Tokens) -> str:
    """Compute the sha256 of a tokenizer's behaviour: its vocabularies, and sample texts encoded on both sides."""
    behaviour = {
        "vocabulary": sorted(tokens.vocabulary().items()),
        "sources": tokens.encode_sources(_PROBES),
        "targets": tokens.encode_targets(_PROBES),
        "start": tokens.start,
    }
    return hashlib.sha256(json.dumps(behaviour, ensure_ascii=True).encode()).hexdigest()
