"""Names of artefacts, and digests that identify what the result of a stage depends on.

Each stage of `learn` stores the digest of its settings and inputs. A later run repeats only the stages whose digest
has changed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING

from ibidem.errors import DamagedMemoryError

if TYPE_CHECKING:
    from ibidem.memory import Memory


UNPRUNED = "unpruned"
"""The name of the snapshot of a memory before pruning."""


def digest(*parts: object) -> str:
    """Return the SHA-256 digest of settings, lists, strings, numbers and other digests."""
    plain = [asdict(part) if is_dataclass(part) and not isinstance(part, type) else part for part in parts]
    return hashlib.sha256(json.dumps(plain, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def given_digest(sha256: str, base: str) -> str:
    """Return the digest of compact keys made by a given compactor's file from an extraction with the digest `base`."""
    return digest("given", sha256, base)


def stored(memory: Memory, stage: str) -> str | None:
    """Return the digest of a stage of the memory; None where the stage was not run."""
    found = memory.manifest.stages.get(stage, {}).get("digest")
    return None if found is None else str(found)


def contents(memory: Memory) -> list[int]:
    """Return numbers that change whenever pairs or entries are added to a sealed memory or removed from it.

    They are the next id, which never decreases, and the numbers of pairs and of entries.
    """
    return [memory.tail.next_id, memory.pairs, memory.entries]


def is_done(memory: Memory, stage: str, request: str, *artefacts: str) -> bool:
    """Return whether the memory holds the result of a stage for its present pairs and entries.

    Args:
        memory: A sealed memory.
        stage: The name of the stage.
        request: The digest that the result must have.
        artefacts: The names of the artefacts that the stage writes; all must be present and undamaged.
    """
    notes = memory.manifest.stages.get(stage, {})
    if notes.get("digest") != request or notes.get("contents") != contents(memory):
        return False
    try:
        return all(memory.artefact(name) is not None for name in artefacts)
    except DamagedMemoryError:
        return False


def extracted(memory: Memory) -> str:
    """Return the digest of the extraction."""
    return digest(memory.identity, memory.manifest.seed, memory.manifest.stages.get("extract"))


def space(memory: Memory) -> str:
    """Return the digest of the keys that are searched, before any pruning."""
    return stored(memory, "compact") or extracted(memory)
