"""Trained compactors: the result of training, and a compactor read from a file that another memory's training wrote."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ibidem.compact import Compactor, load_compactor, read_notes, store_compactor
from ibidem.errors import MismatchError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class TrainedCompactor:
    """Hold the result of training.

    Args:
        compactor: The compactor, on the CPU.
        report: Figures of the training, as JSON.
    """

    compactor: Compactor
    report: dict[str, object]


@dataclass(frozen=True)
class GivenCompactor:
    """Hold a compactor that was read from a file.

    Args:
        compactor: The compactor.
        name: Name of the file.
        payload: The bytes that a memory stores.
        sha256: Digest of the file.
    """

    compactor: Compactor
    name: str
    payload: bytes
    sha256: str

    def notes(self) -> dict[str, Any]:
        """Return the notes of the compaction stage."""
        return {**self.compactor.summary(), "given": self.name}


def read_given(path: Path, model: str, fingerprint: str) -> GivenCompactor:
    """Read a compactor's file for a base model.

    Args:
        path: The file.
        model: Name of the base model.
        fingerprint: Fingerprint of the base model.

    Raises:
        MismatchError: The compactor was trained for another base model.
    """
    compactor = load_compactor(path)
    content = path.read_bytes()
    notes = read_notes(content)
    if notes.get("model_fingerprint") != fingerprint:
        raise MismatchError(
            f"{path} was trained for another base model ('{notes.get('model')}', or another version of it): give a "
            "compactor that was trained for the memory's own base model, or train one."
        )
    payload = store_compactor(compactor, {"model": model, "model_fingerprint": fingerprint})
    return GivenCompactor(compactor, path.name, payload, hashlib.sha256(content).hexdigest())
