"""The commands inspect, verify and export: contents, integrity and pairs of a memory."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ibidem.cli import options
from ibidem.cli.console import note, print_table, shown_progress
from ibidem.wording import describe_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ibidem.memory import Memory


_NAMES = {
    "combiner_fixed": "fixed combiner",
    "combiner_adaptive": "adaptive combiner",
    "combiner_contextual": "contextual combiner",
    "recall": "recall@16",
    "input_dimension": "from dimensions",
    "source_projection": "source vectors",
    "removed_pairs": "removed pairs",
    "removed_entries": "removed entries",
}
_HIDDEN_INFO = ("size", "dimension")
_LONGEST = 300


def inspect(memory: options.MemoryPath, json: options.Json = False) -> None:
    """Show the contents of a memory: counts, bytes, provenance, settings."""
    from ibidem.memory import Memory

    opened = Memory.open(memory)
    if json:
        print(json_module.dumps(describe(opened), indent=2, ensure_ascii=False))
        return
    print_summary(opened, json=False)
    entries = max(opened.entries, 1)
    rows = [(name, f"{size:,}", f"{size / entries:.1f}") for name, size in opened.bytes_by_array().items()]
    print_table("Storage", rows, ("array", "bytes", "bytes per entry"), figures=True)
    for name, stage in opened.manifest.stages.items():
        print_table(
            f"Stage {name}",
            [(key, describe_value(value, _LONGEST)) for key, value in stage.items()],
            ("setting", "value"),
        )


def verify(
    memory: options.MemoryPath,
    accept: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Drop damaged records of journals and snapshots, and all changes after them, so that the rest can be "
            "used; a copy of each damaged journal is kept beside it.",
        ),
    ] = False,
    json: options.Json = False,
) -> None:
    """Check every byte of a memory against its checksums; exit code 1 and the file if one is damaged."""
    from ibidem.memory import accept_loss, verify_folder

    if accept:
        for lost in accept_loss(memory):
            note(f"dropped: {lost.file}: {lost.reason}")
    with shown_progress() as progress:
        manifest, damages = verify_folder(
            memory, lambda done, total: progress("Verifying", done / max(total, 1), done, "bytes")
        )
    if json:
        print(json_module.dumps([{"file": damage.file, "reason": damage.reason} for damage in damages], indent=2))
    elif damages:
        for damage in damages:
            print(f"damaged: {damage.file}: {damage.reason}")
    else:
        print(f"{memory}: sound, {manifest.entries:,} entries in generation {manifest.generation}")
    if damages:
        raise typer.Exit(1)


def export(
    memory: options.MemoryPath,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="File to write: .tmx, .tsv or .jsonl.", show_default=False)
    ],
    format: options.Format = None,
    source_language: options.SourceLanguage = None,
    target_language: options.TargetLanguage = None,
    json: options.Json = False,
) -> None:
    """Write a memory's pairs to a file, with where each came from, for other tools and for learn."""
    from ibidem.api import export_pairs
    from ibidem.memory import Memory

    opened = Memory.open(memory)
    with shown_progress() as progress:
        written = export_pairs(
            opened,
            output,
            format=format,
            source_language=source_language,
            target_language=target_language,
            progress=progress,
        )
    if json:
        print(json_module.dumps({"file": str(output), "pairs": written.pairs, "mended": written.mended}, indent=2))
        return
    note(f"{output}: {written.pairs:,} {'pair' if written.pairs == 1 else 'pairs'}")
    if written.mended:
        note(f"characters that the format cannot hold were replaced in {written.mended:,} of them")


def describe(memory: Memory) -> dict[str, Any]:
    """Return everything that `inspect` shows, as a JSON object.

    Args:
        memory: The opened memory.
    """
    identity = memory.identity
    return {
        "path": str(memory.path),
        "generation": memory.generation,
        "complete": memory.complete,
        "model": identity.name,
        "model_fingerprint": identity.model_fingerprint,
        "tokenizer_fingerprint": identity.tokenizer_fingerprint,
        "languages": [identity.source_language, identity.target_language],
        "dimension": memory.dimension,
        "model_dimension": identity.dimension,
        "pairs": memory.active_pairs,
        "journal": {"added": memory.tail.pairs, "removed": len(memory.tail.removed)},
        "entries": memory.entries,
        "tokens": memory.tokens,
        "snapshots": memory.snapshots(),
        "seed": memory.manifest.seed,
        "origins": list(memory.manifest.origins),
        "bytes": memory.bytes_by_array(),
        "stages": memory.manifest.stages,
        "artefacts": {name: dict(record.info) for name, record in memory.manifest.artefacts.items()},
    }


def note_done(before: Memory, after: Memory, stage: str) -> bool:
    """Print a note if a stage was done before with the same settings.

    Args:
        before: The memory before the command.
        after: The memory after it.
        stage: The name of the stage, which is also the command.

    Returns:
        Whether the stage was done before, so that the command changed nothing.
    """
    done = before.manifest.stages.get(stage) == after.manifest.stages[stage]
    if done:
        note(f"This was done before with the same settings: `ibidem {stage}` changed nothing. --again runs it anyway.")
    return done


def print_summary(memory: Memory, *, json: bool) -> None:
    """Print the summary of a memory, as learn and inspect show it.

    Args:
        memory: The opened memory.
        json: Whether to print all of `describe` as JSON.
    """
    if json:
        print(json_module.dumps(describe(memory), indent=2, ensure_ascii=False))
        return
    total = sum(memory.bytes_by_array().values())
    entries = memory.entries + int(memory.tail.active_entries.sum()) - len(memory.excluded_entries())
    rows = [
        ("model", memory.identity.name),
        ("pairs", f"{memory.active_pairs:,}{_in_journal(memory)}"),
        ("entries", f"{entries:,} of {memory.dimension} dimensions{_left_out(memory)}"),
        ("size", f"{total / 1e6:,.1f} MB, {total / max(entries, 1):.0f} bytes per entry"),
        ("generation", f"{memory.generation}{'' if memory.complete else ', extraction unfinished'}"),
    ]
    if "index" in memory.manifest.stages and "index" not in memory.manifest.artefacts:
        rows.append(("index", describe_value(memory.manifest.stages["index"]["description"])))
    rows += [
        (_NAMES.get(name, name), describe_artefact(record.info)) for name, record in memory.manifest.artefacts.items()
    ]
    print_table(str(memory.path), rows, ("memory", ""))


def _in_journal(memory: Memory) -> str:
    tail = memory.tail
    return f"; {tail.pairs:,} added and {len(tail.removed):,} removed in the journal" if tail else ""


def _left_out(memory: Memory) -> str:
    pruned = memory.tokens - memory.entries
    return f"; {pruned:,} pruned ({pruned / memory.tokens:.1%})" if pruned else ""


def describe_artefact(info: Mapping[str, Any]) -> str:
    """Describe an artefact: `IVF1024,SQ8, nprobe 32, recall@16 0.98`, or `k 8, weight 0.7`.

    Args:
        info: The information about the artefact in the manifest. Its kind or factory string and its numbers are shown.

    Examples:
        >>> describe_artefact({"kind": "fixed", "k": 8, "weight": 0.7})
        'fixed, k 8, weight 0.7'
    """
    figures = {
        _NAMES.get(name, name): value
        for name, value in info.items()
        if name not in _HIDDEN_INFO and isinstance(value, int | float)
    }
    return ", ".join(filter(None, [str(info.get("factory", info.get("kind", ""))), describe_value(figures)]))
