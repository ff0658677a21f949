"""inspect and verify: what is in a memory, and whether it is sound."""

from __future__ import annotations

import json as json_module
from typing import TYPE_CHECKING, Any

import typer

from ibidem.cli import options
from ibidem.cli.console import print_table, shown_progress

if TYPE_CHECKING:
    from ibidem.memory import Memory


def inspect(memory: options.MemoryPath, json: options.Json = False) -> None:
    """Show what a memory holds: counts, bytes, provenance, settings."""
    from ibidem.memory import Memory

    opened = Memory.open(memory)
    if json:
        print(json_module.dumps(describe(opened), indent=2, ensure_ascii=False))
        return
    print_summary(opened, json=False)
    entries = max(opened.entries, 1)
    rows = [(name, f"{size:,}", f"{size / entries:.1f}") for name, size in opened.bytes_by_array().items()]
    print_table("Storage", rows, ("array", "bytes", "bytes per entry"))
    for name, stage in opened.manifest.stages.items():
        print_table(f"Stage {name}", [(key, _short(value)) for key, value in stage.items()], ("setting", "value"))


def verify(memory: options.MemoryPath, json: options.Json = False) -> None:
    """Check every byte of a memory against its checksums; exit code 1 and the file's name if one is damaged."""
    from ibidem.memory import Memory

    opened = Memory.open(memory)
    with shown_progress("bytes") as progress:
        damages = opened.verify(lambda done, total: progress("Verifying", done / max(total, 1), done))
    if json:
        print(json_module.dumps([{"file": damage.file, "reason": damage.reason} for damage in damages], indent=2))
    elif damages:
        for damage in damages:
            print(f"damaged: {damage.file}: {damage.reason}")
    else:
        print(f"{memory}: sound, {opened.entries:,} entries in generation {opened.generation}")
    if damages:
        raise typer.Exit(1)


def describe(memory: Memory) -> dict[str, Any]:
    """All that `inspect` knows, for machines."""
    identity = memory.identity
    return {
        "path": str(memory.path),
        "generation": memory.generation,
        "complete": memory.complete,
        "model": identity.name,
        "model_fingerprint": identity.model_fingerprint,
        "tokenizer_fingerprint": identity.tokenizer_fingerprint,
        "languages": [identity.source_language, identity.target_language],
        "dimension": identity.dimension,
        "pairs": memory.pairs,
        "entries": memory.entries,
        "seed": memory.manifest.seed,
        "origins": list(memory.manifest.origins),
        "bytes": memory.bytes_by_array(),
        "stages": memory.manifest.stages,
        "artefacts": {name: dict(record.info) for name, record in memory.manifest.artefacts.items()},
    }


def print_summary(memory: Memory, *, json: bool) -> None:
    """The few lines that end learning and begin inspection."""
    if json:
        print(json_module.dumps(describe(memory), indent=2, ensure_ascii=False))
        return
    total = sum(memory.bytes_by_array().values())
    rows = [
        ("model", memory.identity.name),
        ("pairs", f"{memory.pairs:,}"),
        ("entries", f"{memory.entries:,} of {memory.dimension} dimensions"),
        ("size", f"{total / 1e6:,.1f} MB, {total / max(memory.entries, 1):.0f} bytes per entry"),
        ("generation", f"{memory.generation}{'' if memory.complete else ', extraction unfinished'}"),
    ]
    rows += [(name, _short(record.info)) for name, record in memory.manifest.artefacts.items()]
    print_table(str(memory.path), rows, ("memory", ""))


def _short(value: object, limit: int = 160) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = value if isinstance(value, str) else json_module.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= limit else f"{text[:limit]}…"
