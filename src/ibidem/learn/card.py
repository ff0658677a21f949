"""The memory card: a README that describes the data, the settings and the quality of a memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ibidem.errors import CommittedError
from ibidem.memory import replace_file
from ibidem.wording import describe_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ibidem.memory import Memory

CARD = "README.md"
_OMITTED = ("digest", "request", "contents", "index_digest", "settings", "bleu_search", "history")


def write_card(memory: Memory) -> None:
    """Write the card into the memory's folder; it is derived from the manifest and not part of the memory.

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
    """Return the text of the card in Markdown."""
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
    parts = ["# A memory of ibidem", "Written by `ibidem`; change it and it will be overwritten.", _table(facts)]
    for name, notes in manifest.stages.items():
        parts.append(f"## {name}")
        shown = {key: value for key, value in notes.items() if key not in _OMITTED}
        settings = {f"setting: {key}": value for key, value in notes.get("settings", {}).items()}
        parts.append(_table({**shown, **settings}))
    return "\n\n".join(parts) + "\n"


def _table(facts: Mapping[str, Any]) -> str:
    rows = [f"| {name.replace('_', ' ')} | {_cell(describe_value(value))} |" for name, value in facts.items()]
    return "\n".join(["| | |", "|---|---|", *rows])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
