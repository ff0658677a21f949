"""The commands add, remove and replace: change a memory pair by pair."""

from __future__ import annotations

import json as json_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ibidem.cli import options
from ibidem.cli.console import note_counts, say, shown_progress
from ibidem.cli.options import ModelOptions
from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ibidem.learn import MemoryWriter


Id = Annotated[list[int] | None, typer.Option("--id", help="Id of a pair; may be given again.", show_default=False)]


def add(
    memory: options.MemoryPath,
    pair: Annotated[list[str] | None, typer.Argument(help="Source and target of one pair.", show_default=False)] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file",
            metavar="FILE [FILE]",
            help="A TMX, XLIFF, TSV, CSV, XLSX, JSONL, PO or MO file, or two line-aligned files; without a pair or a "
            "file, stdin is read as TSV or --format.",
            show_default=False,
        ),
    ] = None,
    origin: Annotated[str, typer.Option("--origin", help="Where the pair comes from, to cite it.")] = "by hand",
    *,
    model_options: ModelOptions,
    format: options.Format = None,
    catalogue_language: options.CatalogueLanguage = None,
    encoding: options.Encoding = None,
    bad_pairs: options.BadPairs = "stop",
    json: options.Json = False,
) -> None:
    """Add a pair, a file or stdin to a memory; the next translation uses it. A missing memory is created."""
    from ibidem.api import open_corpus
    from ibidem.check import check_policy, guard_pairs
    from ibidem.cli.check import note_findings

    check_policy(bad_pairs)
    given = _exactly(pair, 2, "a source and a target") if pair else None
    if given and file:
        raise UsageError("Give one pair, or files with --file, not both.")
    writer = _open_writer(memory, model_options)
    counts: dict[str, Any] = {}
    if given:
        added = [writer.add_pair(*given, origin=origin)]
    else:
        corpus = open_corpus(
            file or ["-"], writer.model, format=format, catalogue_language=catalogue_language, encoding=encoding
        )
        with shown_progress() as progress:
            pairs, checked = guard_pairs(corpus, bad_pairs, progress=progress)
        note_findings(checked, bad_pairs)
        with shown_progress() as progress:
            added = writer.add(pairs, corpus.counts, progress)
        counts = {"read": corpus.counts.read, "dropped": corpus.counts.dropped}
        note_counts(corpus)
    with shown_progress() as progress:
        writer.maintain(progress)
    new = [answer.id for answer in added if answer.new]
    known = [answer.id for answer in added if not answer.new]
    if json:
        print(json_module.dumps({"added": new, "already_there": known, **counts}))
        return
    say(_describe(new, "added") if new else "nothing new to add")
    if known:
        say(f"{_describe(known, 'already there')}: not stored again")


def remove(
    memory: options.MemoryPath,
    pair: Annotated[list[str] | None, typer.Argument(help="Source and target of the pair.", show_default=False)] = None,
    id: Id = None,
    origin: Annotated[
        str | None, typer.Option("--origin", help="Every pair that came from here.", show_default=False)
    ] = None,
    json: options.Json = False,
) -> None:
    """Remove pairs by text, by id or by origin; no later translation uses them."""
    from ibidem.memory import Memory, remove_pairs
    from ibidem.text import join_lines

    if sum(map(bool, (pair, id, origin))) != 1:
        raise UsageError("Nothing to remove: give either a source and a target, or --id, or --origin.")
    opened = Memory.open(memory)
    texts = None
    if pair:
        source, target = _exactly(pair, 2, "a source and a target")
        texts = (join_lines(source), join_lines(target))
    ids = remove_pairs(opened, ids=id, texts=texts, origin=origin)
    print(json_module.dumps({"removed": ids}) if json else _describe(ids, "removed"))


def replace(
    memory: options.MemoryPath,
    texts: Annotated[
        list[str], typer.Argument(help="Source, old target and new target; with --id the new target alone.")
    ],
    id: Annotated[int | None, typer.Option("--id", help="Id of the pair to replace.", show_default=False)] = None,
    *,
    model_options: ModelOptions,
    json: options.Json = False,
) -> None:
    """Replace the translation of a pair in one step."""
    if id is None:
        source, old, new = _exactly(texts, 3, "a source, its old target and the new one, or --id and the new one")
    else:
        (new,) = _exactly(texts, 1, "the new target alone with --id")
    writer = _open_writer(memory, model_options, create=False)
    answer = writer.replace_pair(source, old, new) if id is None else writer.replace(id, new)
    if json:
        print(json_module.dumps({"added" if answer.new else "already_there": [answer.id]}))
    else:
        say(_describe([answer.id], "added in its place" if answer.new else "already there, and the old one removed"))


def _open_writer(memory: Path, model_options: ModelOptions, *, create: bool = True) -> MemoryWriter:
    """Open the writer of a memory with the model of the memory, or of a new memory with the given model."""
    from ibidem.learn import MemoryWriter
    from ibidem.memory import Memory

    identity = Memory.open(memory).identity if Memory.exists(memory) or not create else None
    return MemoryWriter(memory, model_options.load(identity))


def _exactly(texts: Sequence[str], count: int, what: str) -> Sequence[str]:
    if len(texts) != count:
        raise UsageError(f"Wrong number of texts ({len(texts)}): give {what}, each in quotes.")
    return texts


def _describe(ids: Sequence[int], what: str) -> str:
    """`3 pairs added: ids 4, 5, 6`."""
    some = ", ".join(str(id) for id in ids[:10]) + (" and others" if len(ids) > 10 else "")
    return f"{len(ids):,} {'pair' if len(ids) == 1 else 'pairs'} {what}: {'id' if len(ids) == 1 else 'ids'} {some}"
