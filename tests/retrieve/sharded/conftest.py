"""Shards of a learnt memory, served in threads of this process over real sockets."""

from __future__ import annotations

import shutil
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ibidem.learn import index_memory
from ibidem.memory import Memory
from ibidem.retrieve import load_part, parted_base, read_plan
from ibidem.retrieve.sharded import ShardServer, ShardSettings, connect_parts, describe_part, parse_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ibidem.retrieve import BaseIndex, LoadedPart
    from ibidem.retrieve.sharded import RemoteParts, ServerLimits

ANY = "127.0.0.1:0"


@contextmanager
def serving(
    memory: Memory,
    number: int,
    address: str = ANY,
    secret: bytes | None = None,
    limits: ServerLimits | None = None,
    change: Callable[[LoadedPart], LoadedPart] = lambda part: part,
    described: dict[str, object] | None = None,
) -> Iterator[ShardServer]:
    """Serve one part until the block ends; fields of its description can be changed."""
    plan = read_plan(memory)
    assert plan is not None
    part = change(load_part(memory, plan, number))
    description = replace(describe_part(memory, plan, number), **(described or {}))  # type: ignore[arg-type]
    server = ShardServer(part, description, parse_address(address), secret, limits)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(5)
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def divided(tmp_path_factory: pytest.TempPathFactory, learnt: Memory) -> Memory:
    """The learnt memory with two exact shards; read only."""
    folder = tmp_path_factory.mktemp("divided") / "memory"
    return index_memory(Memory.open(shutil.copytree(learnt.path, folder)), "exact", shards=2, threads=1)[0]


@pytest.fixture
def shards(divided: Memory) -> Iterator[list[str]]:
    """The addresses of both shards."""
    with ExitStack() as stack:
        yield [str(stack.enter_context(serving(divided, number)).address) for number in (1, 2)]


def settings_of(addresses: list[str], **others: object) -> ShardSettings:
    """Settings for these addresses, with a short wait at the start and a deadline that a busy machine keeps."""
    given = tuple(parse_address(address) for address in addresses)
    return ShardSettings(given, **{"start_seconds": 0.3, "deadline_ms": 20_000.0, **others})  # type: ignore[arg-type]


def connect(memory: Memory, addresses: list[str], **others: object) -> tuple[BaseIndex, RemoteParts]:
    """Connect to shards; returns the index of the memory and the client."""
    plan, parts = connect_parts(memory, settings_of(addresses, **others))
    return parted_base(memory, plan, parts), parts


@pytest.fixture
def own(tmp_path: Path, divided: Memory) -> Memory:
    """A copy of the divided memory that may be changed."""
    return Memory.open(shutil.copytree(divided.path, tmp_path / "own"))
