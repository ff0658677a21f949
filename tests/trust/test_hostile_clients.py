"""Hostile clients: slow, dripping, vanishing, pipelining, half-closed and endless ones do not stop the server."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("uvicorn")

from ibidem.serve import Limits, ServeSettings, make_service, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ibidem.serve import Service

    from .conftest import Budget

BODY = json.dumps({"q": "Datei", "source": "de", "target": "en"}).encode()
HEAD = b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


class Target:
    """A server in this process."""

    def __init__(self, url: str, service: Service) -> None:
        self.url = url
        self.service = service

    def connect(self) -> socket.socket:
        host, _, port = self.url.removeprefix("http://").partition(":")
        return socket.create_connection((host, int(port)), timeout=30)

    def post(self, path: str, content: object) -> int:
        request = urllib.request.Request(
            self.url + path, json.dumps(content).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def check_alive(self) -> None:
        with urllib.request.urlopen(self.url + "/health", timeout=30) as answer:
            assert answer.status == 200
        assert self.post("/translate", json.loads(BODY)) == 200


@pytest.fixture
def target(tiny: Any, scratch: Path) -> Iterator[Target]:
    from ibidem.decode import SearchSettings, Translator
    from ibidem.learn import create_memory

    memory = create_memory(scratch / "mine", tiny)
    settings = SearchSettings(beam=1, max_length_ratio=0, max_length_extra=4)
    limits = Limits(rate=1e6, burst=100_000, body_seconds=1.0, import_bytes=1 << 22)
    service = make_service(Translator(tiny, memory, settings=settings), ServeSettings(limits))
    with running(service) as url:
        yield Target(url, service)


def read(connection: socket.socket) -> bytes:
    parts = []
    with contextlib.suppress(OSError):
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def test_endless_chunked_body_is_cut_off(target: Target) -> None:
    """A gigabyte in chunks: the server reads little of it, answers 413 and closes, and its memory stays small."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for path in (b"/translate", b"/memories/mine/import?file=a.tsv"):
        with target.connect() as connection:
            head = HEAD.replace(b"/translate", path) + b"Transfer-Encoding: chunked\r\n\r\n"
            connection.sendall(head)
            chunk = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
            sent = 0
            with contextlib.suppress(OSError):
                for _ in range(1024):
                    connection.sendall(chunk)
                    sent += len(chunk)
            assert sent < 64 << 20
            assert b" 413 " in read(connection)[:200] or sent
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB
    target.check_alive()
    assert target.service.jobs._stored_bytes == 0


def test_dripping_bodies_time_out(target: Target) -> None:
    connections = [target.connect() for _ in range(20)]
    for connection in connections:
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
    began = time.monotonic()
    while time.monotonic() - began < 1.5:
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.sendall(b" ")
        target.check_alive()
        time.sleep(0.1)
    for connection in connections:
        assert b" 408 " in read(connection)[:50]
        connection.close()


def test_slow_headers_do_not_block_others(target: Target) -> None:
    connections = [target.connect() for _ in range(100)]
    for number, connection in enumerate(connections):
        connection.sendall(HEAD[: 1 + number % len(HEAD)])
    target.check_alive()
    for connection in connections:
        connection.close()
    target.check_alive()


def test_vanishing_clients(target: Target, budget: Budget) -> None:
    """Connections end after a random part of a request, with a reset or without."""
    whole = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    upload = b"POST /memories/mine/import?file=a.tsv HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\na\tb\n"
    for _ in budget.rounds(60):
        content = budget.random.choice([whole, upload])
        connection = target.connect()
        connection.sendall(content[: budget.random.randrange(1, len(content) + 1)])
        if budget.random.random() < 0.5:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # a reset
        connection.close()
        budget.count("vanishing clients")
    target.check_alive()
    end = time.monotonic() + 10
    while target.service.jobs._stored_bytes and time.monotonic() < end:
        time.sleep(0.02)
    assert target.service.jobs._stored_bytes == 0


def test_pipelined_requests_are_answered_in_order(target: Target) -> None:
    health = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    translate = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    last = b"GET /missing HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    with target.connect() as connection:
        connection.sendall((health + translate) * 10 + last)
        answers = read(connection)
    assert answers.count(b"HTTP/1.1 200 OK") == 20
    assert answers.rfind(b" 404 ") > answers.rfind(b" 200 ")
    target.check_alive()


def test_half_closed_connection(target: Target) -> None:
    """The client closes its sending side after the request; the server may answer, and stays alive."""
    with target.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
        connection.shutdown(socket.SHUT_WR)
        read(connection)
    with target.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\n" + BODY)
        connection.shutdown(socket.SHUT_WR)
        assert b" 200 " not in read(connection)
    target.check_alive()


@pytest.mark.parametrize(
    "content",
    [
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: " + b"y" * (1 << 17) + b"\r\n\r\n",
        b"\0" * 1000 + b"\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
    ],
)
def test_malformed_requests(target: Target, content: bytes) -> None:
    with target.connect() as connection:
        with contextlib.suppress(OSError):
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
        answer = read(connection)
    assert b" 5" not in answer[:13], answer[:100]
    assert b" 200 " not in answer[:20], answer[:100]
    target.check_alive()
