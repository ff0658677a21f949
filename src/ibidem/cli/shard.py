"""The command shard: serves one part of the index of a memory."""

from __future__ import annotations

import logging
import signal
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from ibidem.cli import options
from ibidem.cli.console import note, shown_wait, use_threads
from ibidem.errors import UsageError

if TYPE_CHECKING:
    from types import FrameType


def shard(
    memory: options.MemoryPath,
    part: Annotated[
        int, typer.Option("--part", min=1, help="Number of the part to serve, from 1.", show_default=False)
    ],
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="ADDRESS",
            help="HOST:PORT (port 0: any), or unix:PATH for clients on this machine. Others than this machine need a "
            "secret.",
        ),
    ] = "127.0.0.1:7001",
    secret: options.ShardSecret = None,
    connections: Annotated[
        int, typer.Option("--connections", min=1, max=10_000, help="Clients that may be connected at a time.")
    ] = 64,
    threads: options.Threads = None,
) -> None:
    """Serve one part of an index that `ibidem index --shards` divided: its index and its keys, and nothing else.

    Clients are `ibidem translate`, explain, evaluate and serve with --shards. SIGTERM and Ctrl+C end the process.
    """
    from ibidem.retrieve.sharded import ServerLimits, ShardServer, check_open, describe_part, parse_address, read_secret

    address = parse_address(listen)
    key = read_secret(secret)
    check_open(address, key)
    use_threads(threads)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    from ibidem.memory import Memory
    from ibidem.retrieve import load_part, read_plan

    opened = Memory.open(memory)
    plan = read_plan(opened)
    if plan is None:
        raise UsageError(f"{memory} has no shards: build them with `ibidem index -m {memory} --shards N`.")
    with shown_wait("Loading the part…"):
        loaded = load_part(opened, plan, part, threads)
    server = ShardServer(loaded, describe_part(opened, plan, part), address, key, ServerLimits(connections=connections))

    def stop(number: int, _frame: FrameType | None) -> None:
        note(f"Ending after {signal.Signals(number).name}.")
        server.close()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
    first, last = plan.parts[part - 1].first, plan.parts[part - 1].last
    note(
        f"Serving part {part} of {len(plan.parts)} of {memory} (entries {first:,} to {last - 1:,}, generation "
        f"{opened.generation}) on {server.address} - Ctrl+C ends."
    )
    server.run()
