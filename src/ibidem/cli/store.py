"""The commands push and pull: copies of a memory in object storage."""

from __future__ import annotations

import json as json_module
from typing import Annotated

import typer

from ibidem.cli import options
from ibidem.cli.console import note, say, shown_progress
from ibidem.cli.memories import count_entries
from ibidem.errors import UsageError

Url = Annotated[
    str,
    typer.Argument(metavar="URL", help="Folder of the copies, such as s3://bucket/memories/it.", show_default=False),
]


def push(
    memory: options.MemoryPath,
    url: Url,
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep",
            min=1,
            help="Number of states to keep; older ones are deleted. No other push may run meanwhile.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Copy what is new in a memory to object storage, and publish its state; others may use the memory meanwhile.

    A killed push leaves the published state as it was, and the next one continues. Of two pushes at the same time one
    fails.
    """
    from ibidem.memory import Store

    with shown_progress() as progress:
        done = Store(url).push(
            memory,
            keep=keep,
            progress=lambda there, total: progress("Uploading", there / max(total, 1), there, "bytes"),
        )
    if json:
        row = {"state": done.number, "generation": done.generation, "uploaded": done.uploaded, "bytes": done.bytes}
        print(json_module.dumps(row, indent=2))
    elif done.uploaded:
        say(f"{url}: state {done.number}, generation {done.generation}, {done.bytes / 1e6:,.1f} MB uploaded")
    else:
        say(f"{url}: state {done.number}, generation {done.generation}, up to date")


def pull(
    memory: options.MemoryPath,
    url: Url,
    json: options.Json = False,
) -> None:
    """Copy a memory from object storage to a new folder, or bring such a folder up to date.

    Every file is verified before it is used, and a killed pull is continued. The folder is a replica, which cannot be
    changed; `ibidem backup` makes a memory of its own from it.
    """
    from ibidem.memory import ChangedSourceError, Memory, Replica, Store

    if url.startswith(("http://", "https://")):
        raise UsageError("A server is followed with `ibidem serve --follow URL`: give the URL of object storage.")
    with shown_progress() as progress, Replica(memory, Store(url)) as replica:
        transfer = replica.transfer
        replica.interrupt = lambda: progress(
            "Downloading", transfer.done / max(transfer.total, 1), transfer.done, "bytes"
        )
        while True:
            try:
                changed = replica.update()
                break
            except ChangedSourceError as error:
                note(f"{error}; fetching the newer one.")
    opened = Memory.open(memory)
    if json:
        row = {"path": str(memory), "generation": opened.generation, "changed": changed, "bytes": transfer.bytes}
        print(json_module.dumps(row, indent=2))
    else:
        state = f"{transfer.bytes / 1e6:,.1f} MB received, verified" if changed else "up to date"
        say(f"{memory}: generation {opened.generation}, {count_entries(opened):,} entries, {state}")
