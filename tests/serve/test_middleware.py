"""Host names, origins, security headers and the limits on concurrent requests."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ibidem.errors import UsageError
from ibidem.serve import Limits, ServeSettings, make_service, running
from ibidem.serve.client_places import ClientPlaces
from ibidem.serve.http_error import HttpError

from .conftest import OPEN, TEXT, Client, hold_decoder, served, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.decode import Translator


def test_responses_have_security_headers(client: Client) -> None:
    for answer in (client.get("/"), client.post("/translate", TEXT), client.get("/nowhere")):
        headers = {name.lower(): value for name, value in answer.headers.items()}
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "server" not in headers
        assert not any(name.startswith("access-control") for name in headers)
    assert client.post("/translate", TEXT).headers["cache-control"] == "no-store"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:5000", "127.0.0.1.evil.example", "", "[", "localhost."])
def test_foreign_host_names_are_refused(client: Client, host: str) -> None:
    for path in ("/", "/memories", "/translate?q=a"):
        answer = client.get(path, Host=host)
        assert answer.status == 421, path
        assert set(answer.json) == {"error"}


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:5000", "[::1]:5000"])
def test_own_host_names_are_accepted(client: Client, host: str) -> None:
    assert client.get("/health", Host=host).status == 200


def test_post_from_other_origins_is_refused(client: Client) -> None:
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ):
        assert client.form("/translate", TEXT, **headers).status == 403
        assert client.post("/suggest", {}, **headers).status in (403, 404)
    for headers in ({"Origin": client.url}, {"Sec_Fetch_Site": "same-origin"}, {"Sec_Fetch_Site": "none"}, {}):
        assert client.form("/translate", TEXT, **headers).status == 200


def test_get_from_other_origins_is_refused(client: Client) -> None:
    """Any page can cause a GET request with an image or a script, and GET /translate costs as much as POST."""
    paths = (
        "/translate?q=Datei&target=en",
        "/memories",
        "/metrics",
        "/v2/usage",
        "/v3/translation_memories",
        "/jobs/a",
    )
    for headers in (
        {"Origin": "https://evil.example"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ):
        assert {client.get(path, **headers).status for path in paths} == {403}
        for path in ("/", "/page.js", "/health", "/languages", "/openapi.json", "/frontend/settings"):
            assert client.get(path, **headers).status == 200, "the page may be linked to"
    for headers in ({"Origin": client.url}, {"Sec_Fetch_Site": "same-origin"}, {"Sec_Fetch_Site": "none"}, {}):
        assert client.get(paths[0], **headers).status == 200


def test_allowed_origin(translator: Translator) -> None:
    origin = "https://cat.example"
    with served(translator, replace(OPEN, origins=(origin,))) as (client, _):
        answer = client.post("/translate", TEXT, Origin=origin)
        headers = {name.lower(): value for name, value in answer.headers.items()}
        assert (answer.status, headers["access-control-allow-origin"]) == (200, origin)
        preflight = client.send("OPTIONS", "/translate", Origin=origin, Access_Control_Request_Method="POST")
        assert preflight.status == 200
        assert client.get("/translate?q=a", Origin=origin, Sec_Fetch_Site="cross-site").status == 200
        assert client.post("/translate", TEXT, Origin="https://evil.example").status == 403
    with pytest.raises(UsageError, match="Invalid origin"):
        make_service(translator, replace(OPEN, origins=("*",)))


def test_allowed_origin_can_read_errors(translator: Translator) -> None:
    origin = "https://cat.example"
    limits = replace(OPEN.limits, rate=0.001, burst=1)
    with served(translator, replace(OPEN, origins=(origin,), limits=limits)) as (client, _):
        answers = [client.post("/translate", TEXT, Origin=origin) for _ in range(2)]
        assert [answer.status for answer in answers] == [200, 429]
        assert {answer.headers["access-control-allow-origin"] for answer in answers} == {origin}


def test_too_many_concurrent_requests(translator: Translator) -> None:
    """One client may have half of all active requests, so that others are answered."""
    limits = replace(OPEN.limits, concurrency=4)
    settings = replace(OPEN, limits=limits, keys_required=True)
    with served(translator, settings, "a", "b", "c") as (client, service), ExitStack() as stack:
        first, second, third = ({"Authorization": f"Bearer {key}"} for key in "abc")
        free = hold_decoder(service)
        stack.callback(free.set)

        def send(number: int, **headers: str) -> None:
            waiting = threading.Thread(target=client.post, args=("/translate", TEXT), kwargs=headers)
            waiting.start()
            stack.callback(waiting.join)
            stack.callback(free.set)
            wait_until(lambda: service.batcher.waiting_characters == number * 40)

        send(1, **first)
        send(2, **first)
        refused = client.post("/translate", TEXT, **first)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1"), "the half of this client"
        send(3, **second)
        send(4, **second)
        assert client.get("/languages", **third).status == 503, "all requests"
        assert client.get("/health").status == 200


@pytest.mark.parametrize("origin", ["http://[", "http://]", "", "null", "http://", "//"])
def test_invalid_origins_are_refused(client: Client, origin: str) -> None:
    assert client.post("/detect", {"q": "a"}, Origin=origin).status == 403


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


def connect_from(address: tuple[str, int], own: str = "127.0.0.1") -> socket.socket:
    try:
        return socket.create_connection(address, timeout=SECONDS, source_address=(own, 0))
    except OSError as error:
        pytest.skip(f"{own} is no address of this machine: {error}")


def status_of(connection: socket.socket) -> int:
    return int(connection.recv(4096).split()[1])


def test_slow_bodies_of_one_client_do_not_block_other_clients(address: tuple[str, int]) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(connect_from(address)) for _ in range(CONCURRENCY)]
        for connection in slow:
            connection.sendall(HEADER + BODY[:1])
        with connect_from(address, "127.0.0.2") as other:
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
        connections = [stack.enter_context(connect_from(address)) for _ in range(CONCURRENCY - 1)]
        for part in (HEADER, BODY):
            for connection in connections:
                connection.sendall(part)
            time.sleep(0.2)
        assert {status_of(connection) for connection in connections} == {200}


def test_places_are_released_and_idle_clients_removed() -> None:
    arrivals = ClientPlaces(1, seconds=0.01)

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
