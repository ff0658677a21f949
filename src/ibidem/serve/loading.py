"""Answers to health checks while a server loads its model and memories, and all other requests with 503."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_CONNECTION_SECONDS = 2.0
_REQUEST_BYTES = 1 << 13
_RETRY_SECONDS = 5


@contextlib.contextmanager
def answering(listener: socket.socket, progress: Callable[[], dict[str, object]] = dict) -> Iterator[None]:
    """Answer requests in a thread while a `with` block loads what the server needs.

    `/health` returns 200 and `/ready` 503, both with the status `loading`. One connection is served at a time, for two
    seconds at most.

    Args:
        listener: The listening socket; it stays open for the server.
        progress: Returns further fields of the answer of `/ready`.
    """
    stop, stopped = socket.socketpair()
    timeout = listener.gettimeout()
    # The server that follows and another process may share the socket: accept must not wait.
    listener.setblocking(False)
    thread = threading.Thread(target=_answer_all, args=(listener, stopped, progress), name="ibidem-loading")
    thread.start()
    try:
        yield
    finally:
        stop.send(b"x")
        thread.join()
        stop.close()
        stopped.close()
        listener.settimeout(timeout)


def _answer_all(listener: socket.socket, stopped: socket.socket, progress: Callable[[], dict[str, object]]) -> None:
    while True:
        ready, _, _ = select.select([listener, stopped], [], [])
        if stopped in ready:
            return
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                _answer(connection, stopped, progress)


def _answer(connection: socket.socket, stopped: socket.socket, progress: Callable[[], dict[str, object]]) -> None:
    deadline = time.monotonic() + _CONNECTION_SECONDS
    received = b""
    connection.setblocking(False)
    while b"\r\n\r\n" not in received:
        left = deadline - time.monotonic()
        ready, _, _ = select.select([connection, stopped], [], [], max(0.0, left))
        if connection not in ready or len(received) > _REQUEST_BYTES:
            return
        part = connection.recv(_REQUEST_BYTES)
        if not part:
            return
        received += part
    path = received.split(b" ", 2)[1].partition(b"?")[0] if received.count(b" ") else b""
    status, content = "503 Service Unavailable", {"error": "The server is loading: try again."}
    if path == b"/health":
        status, content = "200 OK", {"status": "loading"}
    elif path == b"/ready":
        content = {"status": "loading", **{name: str(value) for name, value in progress().items()}}
    body = json.dumps(content).encode()
    connection.settimeout(_CONNECTION_SECONDS)
    connection.sendall(
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"Retry-After: {_RETRY_SECONDS}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n".encode()
        + body
    )
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
