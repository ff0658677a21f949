"""The commands inspect, verify, backup, repair and export: contents, integrity, copies and pairs of a memory."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ibidem.cli import options
from ibidem.cli.console import note, print_table, say, shown_progress
from ibidem.wording import describe_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ibidem.memory import Damage, Memory


_NAMES = {
    "combiner_fixed": "fixed combiner",
    "combiner_adaptive": "adaptive combiner",
    "combiner_contextual": "contextual combiner",
    "source_projection": "source vectors",
    "unedited": "needing no edit",
}
# Information that is shown in other words, or that is of use only to the program.
_HIDDEN_INFO = ("size", "dimension", "input_dimension", "recall", "count", "from_memory", "removals")
_LONGEST = 300
_NOT_IN_BACKUP = "The backup does not have these files as they were; try another one"


def inspect(memory: options.MemoryPath, json: options.Json = False) -> None:
    """Show the contents of a memory: counts, bytes, provenance, settings."""
    from ibidem.memory import Memory

    opened = Memory.open(memory)
    if json:
        print(json_module.dumps(describe(opened), indent=2, ensure_ascii=False))
        return
    print_summary(opened, json=False)
    entries = max(count_entries(opened), 1)
    rows = [(name, f"{size:,}", f"{size / entries:.1f}") for name, size in opened.bytes_by_array().items()]
    print_table("Storage", rows, ("array", "bytes", "bytes per entry"), figures=True)
    for name, stage in opened.manifest.stages.items():
        print_table(
            f"Stage {name}",
            [(key, describe_value(value, _LONGEST)) for key, value in stage.items()],
            ("setting", "value"),
        )


def verify(memory: options.MemoryPath, json: options.Json = False) -> None:
    """Check every byte of a memory against its checksums; exit code 1 and the file if one is damaged."""
    from ibidem.memory import Memory, verify_folder

    with shown_progress() as progress:
        manifest, damages = verify_folder(
            memory, lambda done, total: progress("Verifying", done / max(total, 1), done, "bytes")
        )
    if json:
        print(json_module.dumps(_rows(damages), indent=2))
    elif damages:
        for damage in damages:
            say(f"damaged: {damage.file}: {damage.reason}")
        note(f"`ibidem repair -m {memory}` mends what can be mended; give a backup with --from.")
    else:
        entries = count_entries(Memory.open(memory))
        say(f"{memory}: sound, {entries:,} entries in generation {manifest.generation}")
    if damages:
        raise typer.Exit(1)


def backup(
    memory: options.MemoryPath,
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="New folder of the copy.", show_default=False)],
    json: options.Json = False,
) -> None:
    """Copy a memory to a new folder and verify the copy; others may read and write the memory meanwhile.

    The copy is a memory like any other. To restore it, stop what uses the memory, move the damaged folder away, and run
    `ibidem backup -m COPY FOLDER`.
    """
    from ibidem.memory import back_up

    with shown_progress() as progress:
        made = back_up(
            memory, destination, lambda done, total: progress("Verifying the copy", done / max(total, 1), done, "bytes")
        )
    if json:
        row = {"path": str(made.path), "generation": made.generation, "records": made.records, "bytes": made.bytes}
        print(json_module.dumps(row, indent=2))
        return
    changes = f" with {made.records:,} changes of the journal" if made.records else ""
    say(f"{made.path}: generation {made.generation}{changes}, {made.bytes / 1e6:,.1f} MB, verified")


def repair(
    memory: options.MemoryPath,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="BACKUP", help="Backup to copy damaged files from.", show_default=False),
    ] = None,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Drop damaged records of journals and all changes after them, damaged snapshots, and a damaged "
            "manifest (the generation before is used); a copy of each changed file is kept beside it.",
        ),
    ] = False,
    json: options.Json = False,
) -> None:
    """Mend a damaged memory: copy files from a backup, drop or rebuild the index, drop damaged combiners.

    Without --accept-loss no pair is lost. Exit code 1 and the files if damage is left.
    """
    from ibidem.learn import repair_memory

    with shown_progress() as progress:
        done = repair_memory(memory, accept_loss=accept_loss, source=source, progress=progress)
    if json:
        print(
            json_module.dumps(
                {"mended": _rows(done.mended), "lost": _rows(done.lost), "left": _rows(done.left)}, indent=2
            )
        )
    else:
        for word, damages in (("mended", done.mended), ("lost", done.lost), ("damaged", done.left)):
            for damage in damages:
                say(f"{word}: {damage.file}: {damage.reason}")
        if not (done.mended or done.lost or done.left):
            say(f"{memory}: sound, nothing to repair")
    if done.left:
        advice = "" if accept_loss else "; --accept-loss drops damaged journal records and snapshots"
        remedy = "A backup can replace these files: give it with --from" if source is None else _NOT_IN_BACKUP
        note(f"{remedy}{advice}.")
        raise typer.Exit(1)


def _rows(damages: Sequence[Damage]) -> list[dict[str, str]]:
    return [{"file": damage.file, "reason": damage.reason} for damage in damages]


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
    entries = count_entries(memory)
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
        (_NAMES.get(name, name.replace("_", " ")), _origin(memory, name) + describe_artefact(record.info))
        for name, record in memory.manifest.artefacts.items()
    ]
    print_table(str(memory.path), rows, ("memory", ""))


def count_entries(memory: Memory) -> int:
    """Return the number of entries that are searched, with those of the journal.

    Args:
        memory: The opened memory.
    """
    return memory.entries + int(memory.tail.active_entries.sum()) - len(memory.excluded_entries())


def _origin(memory: Memory, artefact: str) -> str:
    """Return the beginning of the description of an artefact: whether the compactor is that of the model."""
    given = artefact == "compactor" and memory.manifest.stages.get("compact", {}).get("given")
    return "supplied with the model, " if given == "general" else ""


def _in_journal(memory: Memory) -> str:
    tail = memory.tail
    return f"; {tail.pairs:,} added and {len(tail.removed):,} removed in the journal" if tail else ""


def _left_out(memory: Memory) -> str:
    pruned = memory.tokens - memory.entries
    return f"; {pruned:,} pruned ({pruned / memory.tokens:.1%})" if pruned else ""


def describe_artefact(info: Mapping[str, Any]) -> str:
    """Describe an artefact: `IVF1024,SQ8, nprobe 32, finds 98% of the 16 nearest keys`, or `k 8, weight 0.7`.

    Args:
        info: The information about the artefact in the manifest. Its kind or factory string and its numbers are shown.

    Examples:
        >>> describe_artefact({"kind": "fixed", "k": 8, "weight": 0.7})
        'fixed, k 8, weight 0.7'
        >>> describe_artefact({"kind": "pca", "input_dimension": 512, "dimension": 96})
        'pca, 512 dimensions reduced to 96'
    """
    figures = {
        _NAMES.get(name, name.replace("_", " ")): value
        for name, value in info.items()
        if name not in _HIDDEN_INFO and isinstance(value, int | float)
    }
    kind = str(info.get("factory", info.get("kind", "")))
    return ", ".join(filter(None, [kind, describe_value(figures) if figures else "", *_phrases(info)])) or "stored"


def _phrases(info: Mapping[str, Any]) -> Iterator[str]:
    """Yield the information about an artefact that a name and a number do not explain."""
    if "count" in info:
        yield describe_value(info["count"])
    if "input_dimension" in info:
        yield f"{info['input_dimension']:,} dimensions reduced to {info['dimension']:,}"
    if isinstance(recall := info.get("recall"), int | float):
        yield f"finds {100 * recall:.3g}% of the 16 nearest keys"
    if "from_memory" in info:
        yield f"trained on {'sentences of the memory' if info['from_memory'] else 'the dev set'}"
