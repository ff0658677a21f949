"""add, remove, replace: a living memory, changed pair by pair."""

from __future__ import annotations

import json as json_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ibidem.cli import options  # noqa: TC001 - typer reads the annotations
from ibidem.cli.console import note, shown_progress
from ibidem.cli.opening import ModelOptions  # noqa: TC001 - typer reads the annotations
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
            help="Parallel text to add: a TMX, TSV, JSONL, PO or MO file, or the option twice for two line-aligned "
            "files; without a pair or a file, TSV or --format from stdin.",
            show_default=False,
        ),
    ] = None,
    origin: Annotated[str, typer.Option("--origin", help="Where the pair comes from, to cite it.")] = "by hand",
    *,
    opening: ModelOptions,
    format: options.Format = None,
    catalogue_language: options.CatalogueLanguage = None,
    json: options.Json = False,
) -> None:
    """Add a pair, a file or stdin to a memory, which is created if there is none; the next sentence uses it."""
    from ibidem.facade import open_corpus

    given = _exactly(pair, 2, "a source and a target") if pair else None
    if given and file:
        raise UsageError("Give one pair, or files with --file, not both.")
    scribe = _open_scribe(memory, opening)
    counts: dict[str, Any] = {}
    if given:
        added = [scribe.add_pair(*given, origin=origin)]
    else:
        corpus = open_corpus(file or ["-"], scribe.model, format=format, catalogue_language=catalogue_language)
        pairs = iter(corpus)
        with shown_progress() as progress:
            added = scribe.add(pairs, corpus.counts, progress)
        counts = {"read": corpus.counts.read, "dropped": corpus.counts.dropped}
        note(corpus.counts.describe())
    with shown_progress() as progress:
        scribe.maintain(progress)
    new = [answer.id for answer in added if answer.new]
    known = [answer.id for answer in added if not answer.new]
    if json:
        print(json_module.dumps({"added": new, "already_there": known, **counts}))
        return
    print(_say(new, "added") if new else "nothing new to add")
    if known:
        print(f"{_say(known, 'already there')}: not stored again")


def remove(
    memory: options.MemoryPath,
    pair: Annotated[list[str] | None, typer.Argument(help="Source and target of the pair.", show_default=False)] = None,
    id: Id = None,
    origin: Annotated[
        str | None, typer.Option("--origin", help="Every pair that came from here.", show_default=False)
    ] = None,
    json: options.Json = False,
) -> None:
    """Remove pairs by text, by id or by origin: from the next sentence on they are never used again."""
    from ibidem.memory import Memory, remove_pairs
    from ibidem.text import join_lines

    if sum(map(bool, (pair, id, origin))) != 1:
        raise UsageError("Say what to remove: a source and a target, or --id, or --origin; one of them.")
    opened = Memory.open(memory)
    texts = None
    if pair:
        source, target = _exactly(pair, 2, "a source and a target")
        texts = (join_lines(source), join_lines(target))
    ids = remove_pairs(opened, ids=id, texts=texts, origin=origin)
    print(json_module.dumps({"removed": ids}) if json else _say(ids, "removed"))


def replace(
    memory: options.MemoryPath,
    texts: Annotated[
        list[str], typer.Argument(help="Source, old target and new target; with --id the new target alone.")
    ],
    id: Annotated[int | None, typer.Option("--id", help="Id of the pair to replace.", show_default=False)] = None,
    *,
    opening: ModelOptions,
    json: options.Json = False,
) -> None:
    """Put a new translation in the place of an old one, both at once."""
    if id is None:
        source, old, new = _exactly(texts, 3, "a source, its old target and the new one, or --id and the new one")
    else:
        (new,) = _exactly(texts, 1, "the new target alone with --id")
    scribe = _open_scribe(memory, opening, create=False)
    answer = scribe.replace_pair(source, old, new) if id is None else scribe.replace(id, new)
    if json:
        print(json_module.dumps({"added" if answer.new else "already_there": [answer.id]}))
    else:
        print(_say([answer.id], "added in its place" if answer.new else "already there, and the old one removed"))


def _open_scribe(memory: Path, opening: ModelOptions, *, create: bool = True) -> MemoryWriter:
    """A scribe of a memory with its own model, or of a new memory with the model named."""
    from ibidem.learn import MemoryWriter
    from ibidem.memory import Memory

    identity = Memory.open(memory).identity if Memory.exists(memory) or not create else None
    return MemoryWriter(memory, opening.load(identity))


def _exactly(texts: Sequence[str], count: int, what: str) -> Sequence[str]:
    if len(texts) != count:
        raise UsageError(f"{len(texts)} texts were given: give {what}, each in quotes.")
    return texts


def _say(ids: Sequence[int], what: str) -> str:
    """`3 pairs added: ids 4, 5, 6`."""
    some = ", ".join(str(id) for id in ids[:10]) + (" and others" if len(ids) > 10 else "")
    return f"{len(ids):,} {'pair' if len(ids) == 1 else 'pairs'} {what}: {'id' if len(ids) == 1 else 'ids'} {some}"
