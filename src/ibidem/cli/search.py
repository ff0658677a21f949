"""The command search: concordance over the pairs of a memory."""

from __future__ import annotations

import json as json_module
import sys
from typing import Annotated

import typer

from ibidem.cli import options
from ibidem.cli.console import note, printable

_SECONDS = 60.0


def search(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Words, or a phrase.", show_default=False)],
    memory: options.MemoryPath,
    side: Annotated[str, typer.Option("--side", help="Where to search: source, target or both.")] = "both",
    phrase: Annotated[
        bool, typer.Option("--phrase", help="Search for the text as it stands, not for its words in any order.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Print at most this many pairs.")] = 20,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Leave out this many pairs before them.")] = 0,
    json: options.Json = False,
) -> None:
    """Search the pairs of a memory for words or a phrase; upper and lower case are alike, the newest pairs come first.

    Each line of the output has the id, source, target and origin of a pair, separated by tabs. A word also finds longer
    words that begin with it.
    """
    from ibidem.memory import Memory, search_pairs

    opened = Memory.open(memory)
    mode = "phrase" if phrase else "words"
    found = search_pairs(opened, text, side=side, mode=mode, limit=limit, offset=offset, seconds=_SECONDS)
    rows = [
        {
            "id": pair.id,
            "source": pair.source,
            "target": pair.target,
            "origin": pair.origin,
            "location": pair.location,
        }
        for pair in found.pairs
    ]
    if json:
        result = {"pairs": rows, "total": found.total, "complete": found.complete}
        print(json_module.dumps(result, indent=2, ensure_ascii=False))
        return
    for row in rows:
        line = "\t".join(" ".join(str(row[name]).split()) for name in ("id", "source", "target", "origin"))
        print(printable(line) if sys.stdout.isatty() else line)
    more = "" if found.complete else f"; the search ended after {_SECONDS:.0f} seconds"
    note(f"{found.total:,} {'pair' if found.total == 1 else 'pairs'} found, {len(rows):,} shown{more}")
