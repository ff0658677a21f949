"""Provenance of a memory: the digest of each stage, and the memory card.

Each stage of `learn` stores the digest of its settings and inputs. A later run repeats only the stages whose digest
has changed. The card is a README that describes the data, the settings and the quality of a memory.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

from ibidem.errors import CommittedError, DamagedMemoryError
from ibidem.memory import replace_file
from ibidem.wording import describe_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ibidem.memory import Memory


UNPRUNED = "unpruned"
"""The name of the snapshot of a memory before pruning."""


def digest(*parts: object) -> str:
    """Return the SHA-256 digest of settings, lists, strings, numbers and other digests.

    Args:
        parts: Dataclasses, or values that JSON can represent.

    Returns:
        64 hexadecimal digits.
    """
    plain = [asdict(part) if is_dataclass(part) and not isinstance(part, type) else part for part in parts]
    return hashlib.sha256(json.dumps(plain, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def given_digest(sha256: str, base: str) -> str:
    """Return the digest of compact keys that a given compactor makes.

    Args:
        sha256: The digest of the compactor's file.
        base: The digest of the extraction.
    """
    return digest("given", sha256, base)


def stored(memory: Memory, stage: str) -> str | None:
    """Return the digest of a stage of the memory; None where the stage was not run.

    Args:
        memory: The memory.
        stage: The name of the stage, such as "prune".
    """
    found = memory.manifest.stages.get(stage, {}).get("digest")
    return None if found is None else str(found)


def contents(memory: Memory) -> list[int]:
    """Return numbers that change whenever pairs or entries are added to a sealed memory or removed from it.

    They are the next id, which never decreases, and the numbers of pairs and of entries.

    Args:
        memory: A sealed memory.
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
    """Return the digest of the extraction.

    Args:
        memory: A memory that was extracted.
    """
    return digest(memory.identity, memory.manifest.seed, memory.manifest.stages.get("extract"))


def space(memory: Memory) -> str:
    """Return the digest of the keys that are searched, before any pruning.

    Args:
        memory: A memory that was extracted.
    """
    return stored(memory, "compact") or extracted(memory)


CARD = "README.md"
_OMITTED = ("digest", "request", "contents", "index_digest", "settings", "bleu_search", "history")


def write_card(memory: Memory) -> None:
    """Write the card into the memory's folder; it is derived from the manifest and not part of the memory.

    Args:
        memory: A committed memory.

    Raises:
        CommittedError: The card cannot be written; the generation that it describes is already committed.
    """
    try:
        replace_file(memory.path / CARD, describe_memory(memory).encode("utf-8"))
    except OSError as error:
        raise CommittedError(
            f"generation {memory.generation} of the memory {memory.path} is committed, but its card {CARD} "
            f"could not be written: {error.strerror}. Free disk space or change the permissions; the same command, or "
            "the next one that changes the memory, writes the card"
        ) from error


def describe_memory(memory: Memory) -> str:
    """Return the text of the card in Markdown.

    Args:
        memory: The memory; only its manifest and the sizes of its files are read.
    """
    manifest, identity = memory.manifest, memory.identity
    size = sum(memory.bytes_by_array().values())
    space = f"{memory.dimension} dimensions"
    if memory.layout.compact is not None:
        space += f", compacted from {identity.dimension}"
    facts = {
        "base model": identity.name,
        "languages": f"{identity.source_language or '?'} to {identity.target_language or '?'}",
        "sentence pairs": f"{memory.pairs:,}",
        "entries": f"{memory.entries:,} of {memory.tokens:,} target tokens",
        "keys": space,
        "size": f"{size / 1e6:,.1f} MB, {size / max(memory.entries, 1):.0f} bytes per entry",
        "learnt from": ", ".join(manifest.origins[:8]) + (" and others" if len(manifest.origins) > 8 else ""),
        "seed": str(manifest.seed),
        "generation": f"{manifest.generation}, {manifest.updated}, ibidem {manifest.ibidem_version}",
        "can be restored": ", ".join(memory.snapshots()) or "nothing",
    }
    parts = ["# A memory of ibidem", "Written by `ibidem`; change it and it will be overwritten.", fact_table(facts)]
    for name, notes in manifest.stages.items():
        parts.append(f"## {name}")
        shown = {key: value for key, value in notes.items() if key not in _OMITTED}
        settings = {f"setting: {key}": value for key, value in notes.get("settings", {}).items()}
        parts.append(fact_table({**shown, **settings}))
    return "\n\n".join(parts) + "\n"


def fact_table(facts: Mapping[str, Any]) -> str:
    """Return facts as a Markdown table of two columns.

    Args:
        facts: The values by name, each as `describe_value` takes it.
    """
    rows = [f"| {name.replace('_', ' ')} | {_cell(describe_value(value))} |" for name, value in facts.items()]
    return "\n".join(["| | |", "|---|---|", *rows])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
