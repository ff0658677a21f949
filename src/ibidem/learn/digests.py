"""What the result of a stage depends on, in one word, so that a changed setting redoes only what hangs on it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING

from ibidem.errors import DamagedMemoryError

if TYPE_CHECKING:
    from ibidem.memory import Memory

UNPRUNED = "unpruned"


def digest(*parts: object) -> str:
    """A digest of settings, lists, texts, numbers and other digests."""
    plain = [asdict(part) if is_dataclass(part) and not isinstance(part, type) else part for part in parts]
    return hashlib.sha256(json.dumps(plain, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def given_digest(sha256: str, base: str) -> str:
    """What compact keys depend on that were made by a given compactor's file, from an extraction's digest."""
    return digest("given", sha256, base)


def stored(memory: Memory, stage: str) -> str | None:
    """The digest that a stage was done with; None where it was not done."""
    found = memory.manifest.stages.get(stage, {}).get("digest")
    return None if found is None else str(found)


def contents(memory: Memory) -> list[int]:
    """Return numbers that change whenever pairs are added to a sealed memory, or taken out of it, or entries are.

    They are the next id, which only grows, the pairs and the entries.
    """
    return [memory.tail.next_id, memory.pairs, memory.entries]


def is_done(memory: Memory, stage: str, request: str, *artefacts: str) -> bool:
    """Return whether a stage was done with this digest, and its result is still that of the memory's pairs and entries.

    artefacts: the names of those that the stage made, which must be sound.
    """
    notes = memory.manifest.stages.get(stage, {})
    if notes.get("digest") != request or notes.get("contents") != contents(memory):
        return False
    try:
        return all(memory.artefact(name) is not None for name in artefacts)
    except DamagedMemoryError:
        return False


def extracted(memory: Memory) -> str:
    """The digest of what was extracted."""
    return digest(memory.identity, memory.manifest.seed, memory.manifest.stages.get("extract"))


def space(memory: Memory) -> str:
    """The digest of the keys that are searched, before any pruning."""
    return stored(memory, "compact") or extracted(memory)
