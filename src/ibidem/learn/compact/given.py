"""A compactor that was trained on another memory of the same base model."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ibidem.compact import Compactor, load_compactor, read_notes, store_compactor
from ibidem.errors import MismatchError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class GivenCompactor:
    """A compactor and the name of its file; payload: as a memory stores it; sha256: of the file."""

    compactor: Compactor
    name: str
    payload: bytes
    sha256: str

    def notes(self) -> dict[str, Any]:
        """What the stage says of it."""
        return {**self.compactor.summary(), "given": self.name}


def read_given(path: Path, model: str, fingerprint: str) -> GivenCompactor:
    """Read a compactor's file for a base model of this name and fingerprint, and refuse one for another."""
    compactor = load_compactor(path)
    content = path.read_bytes()
    notes = read_notes(content)
    if notes.get("model_fingerprint") != fingerprint:
        raise MismatchError(
            f"{path} was trained for another base model ('{notes.get('model')}', or another state of it): give one "
            "trained for the memory's own, or train one."
        )
    payload = store_compactor(compactor, {"model": model, "model_fingerprint": fingerprint})
    return GivenCompactor(compactor, path.name, payload, hashlib.sha256(content).hexdigest())
