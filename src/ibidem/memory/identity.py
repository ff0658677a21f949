"""Checks that a memory fits a base model, and the values of its entries as a tensor.

`torch` and `ibidem.model` are imported inside the functions: opening and inspecting a memory must stay light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ibidem.errors import MismatchError, UsageError
from ibidem.text import same_language
from ibidem.wording import describe_option

if TYPE_CHECKING:
    import torch

    from ibidem.memory.memory import Memory
    from ibidem.model import BaseModel


def check_identity(memory: Memory, model: BaseModel) -> None:
    """Check that a memory was learnt with this model, tokenizer and languages; else its keys are meaningless.

    Raises:
        MismatchError: If one of them differs; the message names it.
    """
    from ibidem.model import LanguagePair

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
                "model has changed, or the source prefix or a language differs. Give the memory's source prefix with "
                f"{describe_option('--source-prefix', 'TEXT')} and its languages, or learn it again."
            )
        if stored != given:
            raise MismatchError(
                f"{memory.path} was learnt with the model '{identity.name}' ({what} {stored}), not with "
                f"'{model.name}' ({what} {given}): use --model {identity.name}, or learn the memory again."
            )


def check_complete(memory: Memory) -> None:
    """Check that the extraction of a memory was finished.

    Raises:
        UsageError: If it was interrupted: tuning or translating with a part of the memory would mislead.
    """
    if not memory.complete:
        raise UsageError(f"{memory.path} is unfinished: run the `ibidem learn` or `extract` that began it again.")


def load_values(memory: Memory, device: torch.device) -> torch.Tensor:
    """Load the value (token id) of every sealed entry to a device, [entries] of int64."""
    import torch

    return torch.from_numpy(memory.values().astype(np.int64)).to(device)
