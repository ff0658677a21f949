"""Bodies that arrive slowly: those of one client do not keep other clients out."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from ibidem.serve import Limits, ServeSettings, make_service, running
from ibidem.serve.http_error import HttpError
from ibidem.serve.middleware import IncomingBodies

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.decode import Translator

BODY = json.dumps({"q": "Datei"}).encode()
HEADER = f"POST /detect HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(BODY)}\r\n\r\n".encode()
CONCURRENCY = 16
MOST = CONCURRENCY // 8
SECONDS = 20


@pytest.fixture
def address(translator: Translator) -> Iterator[tuple[str, int]]:
    limits = Limits(rate=1e6, burst=100_000, concurrency=CONCURRENCY)
    with running(make_service(translator, ServeSettings(limits))) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        yield host, int(port)


def connect(address: tuple[str, int], own: str = "127.0.0.1") -> socket.socket:
    try:
        return socket.create_connection(address, timeout=SECONDS, source_address=(own, 0))
    except OSError as error:
        pytest.skip(f"{own} is no address of this machine: {error}")


def status_of(connection: socket.socket) -> int:
    return int(connection.recv(4096).split()[1])


def test_slow_bodies_of_one_client_keep_no_other_client_out(address: tuple[str, int]) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(connect(address)) for _ in range(CONCURRENCY)]
        for connection in slow:
            connection.sendall(HEADER + BODY[:1])
        with connect(address, "127.0.0.2") as other:
            other.sendall(HEADER + BODY)
            assert status_of(other) == 200
        while len(slow) > MOST:
            refused = select.select(slow, [], [], SECONDS)[0]
            assert {status_of(connection) for connection in refused} == {503}
            slow = [connection for connection in slow if connection not in refused]
        for connection in slow:
            connection.sendall(BODY[1:])
            assert status_of(connection) == 200


def test_parallel_requests_of_one_client_are_answered(address: tuple[str, int]) -> None:
    """Many clients send the header and the body in two packets."""
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(address)) for _ in range(CONCURRENCY - 1)]
        for part in (HEADER, BODY):
            for connection in connections:
                connection.sendall(part)
            time.sleep(0.2)
        assert {status_of(connection) for connection in connections} == {200}


def test_places_are_given_back_and_clients_forgotten() -> None:
    arrivals = IncomingBodies(1, seconds=0.01)

    async def run() -> None:
        arrival = await arrivals.acquire("one")
        with pytest.raises(HttpError):
            await arrivals.acquire("one")
        (await arrivals.acquire("another")).release()
        arrival.release()
        arrival.release()
        (await arrivals.acquire("one")).release()

    asyncio.run(run())
    assert not arrivals._semaphores
    assert not arrivals._requests
