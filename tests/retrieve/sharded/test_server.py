"""A shard faces strangers: whatever they send, it goes on serving the others."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import socket
import struct
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from ibidem.native import SearchMode
from ibidem.retrieve import Hidden, Rows
from ibidem.retrieve.sharded import ServerLimits, ShardServer, parse_address
from ibidem.retrieve.sharded.channel import SocketChannel
from ibidem.retrieve.sharded.handshake import greet
from ibidem.retrieve.sharded.protocol import (
    FOUND,
    HEADER,
    HELLO,
    HIDE,
    MAGIC,
    SEARCH,
    VERSION,
    WELCOME,
    encode_header,
    encode_hidden,
    encode_search,
)

from .conftest import connect, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.memory import Memory

SECRET = b"a secret of the tests"
SOON = ServerLimits(connections=8, pending=3, handshake_seconds=0.4, frame_seconds=0.4)


@contextlib.contextmanager
def opened(server: ShardServer) -> Iterator[socket.socket]:
    with socket.create_connection((server.address.host, server.address.port), timeout=5) as connected:
        yield connected


def is_closed(connected: socket.socket, seconds: float = 5) -> bool:
    """Return whether the shard closes the connection without an answer."""
    connected.settimeout(seconds)
    try:
        return connected.recv(1) == b""
    except ConnectionError:
        return True


@contextlib.contextmanager
def authenticated(server: ShardServer) -> Iterator[SocketChannel]:
    with opened(server) as connected:
        channel = SocketChannel(connected, 1 << 20, 5)
        greet(channel, SECRET, server.address)
        yield channel


def header(kind: int, size: int, magic: bytes = MAGIC, version: int = VERSION) -> bytes:
    return HEADER.pack(magic, version, kind, 0, size, 0, 1, 0)


@pytest.fixture
def server(divided: Memory) -> Iterator[ShardServer]:
    with serving(divided, 1, secret=SECRET, limits=SOON) as one:
        yield one


@pytest.fixture
def works(divided: Memory, server: ShardServer) -> Iterator[None]:
    """A client that is served before, during and after what a test does."""
    with serving(divided, 2, secret=SECRET) as other:
        base, parts = connect(divided, [str(server.address), str(other.address)], secret=SECRET)
        queries = torch.zeros(3, divided.dimension)
        before = base.index.search(queries, 4)
        yield
        begun = time.monotonic()
        after = base.index.search(queries, 4)
        assert torch.equal(before.entries, after.entries)
        assert time.monotonic() - begun < 5
        assert parts.missed_steps == 0
        connect(divided, [str(server.address), str(other.address)], secret=SECRET)[1].close()


STRANGE = {
    "garbage": b"GET / HTTP/1.1\r\nHost: shard\r\n\r\n" * 4,
    "zeros": b"\0" * 400,
    "a large frame": header(HELLO, 1 << 31),
    "a frame beyond the limit": header(HELLO, 513),
    "a search before the handshake": header(SEARCH, 0),
    "a short nonce": header(HELLO, 3) + b"abc",
    "an unknown kind": header(99, 0),
    "kind 0": header(0, 0),
}


@pytest.mark.usefixtures("works")
@pytest.mark.parametrize("content", STRANGE.values(), ids=STRANGE.keys())
def test_strange_bytes_close_the_connection(server: ShardServer, content: bytes) -> None:
    with opened(server) as connected:
        connected.sendall(content)
        assert is_closed(connected)


def test_another_version_is_told(server: ShardServer) -> None:
    with opened(server) as connected:
        connected.sendall(header(HELLO, 32, version=VERSION + 1) + bytes(32))
        answer = b""
        while part := connected.recv(4096):
            answer += part
    assert f"version {VERSION + 1} of the protocol".encode() in answer


@pytest.mark.usefixtures("works")
def test_half_handshakes_end_and_do_not_keep_others_out(server: ShardServer) -> None:
    silent = [socket.create_connection((server.address.host, server.address.port)) for _ in range(10)]
    try:
        silent[-1].sendall(header(HELLO, 32)[:7])
        silent[-2].sendall(header(HELLO, 32) + bytes(32))
        silent[-2].recv(65)
        for connected in silent:
            assert is_closed(connected)
    finally:
        for connected in silent:
            connected.close()


@pytest.mark.usefixtures("works")
def test_a_dripping_client_is_closed(server: ShardServer) -> None:
    with opened(server) as connected:
        begun = time.monotonic()
        with contextlib.suppress(ConnectionError):
            for byte in header(HELLO, 32) + bytes(500):
                connected.sendall(bytes([byte]))
                time.sleep(0.05)
        assert time.monotonic() - begun < 5


@pytest.mark.usefixtures("works")
def test_a_proof_without_the_secret_gets_nothing(server: ShardServer) -> None:
    """Also not one that repeats what the shard itself would send."""
    for proof in (bytes(32), hmac.new(b"wrong", b"x", hashlib.sha256).digest(), b""):
        with opened(server) as connected:
            channel = SocketChannel(connected, 1 << 14, 5)
            channel.send(HELLO, bytes(32))
            channel.receive(2)
            channel.send(3, proof)
            assert channel.receive(WELCOME).kind != WELCOME
            assert is_closed(connected)


def search_of(dimension: int, rows: int = 2, k: int = 3, group: int = 1) -> bytes:
    queries = np.zeros((rows, dimension), np.float32)
    return b"".join(encode_search(Rows(queries, np.full(rows, 2, np.uint8), group, k)))


@pytest.mark.usefixtures("works")
def test_searches_beyond_the_limits_close_the_connection(server: ShardServer, divided: Memory) -> None:
    good = search_of(divided.dimension)
    shapes = [(1 << 31, 3, 1), (2, 1 << 20, 1), (2, 0, 1), (0, 3, 1), (2, 3, 0), (2, 3, 5)]
    bad = [struct.pack("<III", *shape) + good[12:] for shape in shapes]
    bad += [good[:-4], good + bytes(4), good[:8], search_of(divided.dimension + 1), good[:16] + b"\x07" + good[17:]]
    for payload in bad:
        with authenticated(server) as channel:
            channel.send(SEARCH, payload)
            assert is_closed(channel.socket)
    with authenticated(server) as channel:
        channel.send(SEARCH, good)
        assert channel.receive(FOUND).kind == FOUND
        channel.socket.sendall(header(SEARCH, (1 << 32) - 1))
        assert is_closed(channel.socket)


@pytest.mark.usefixtures("works")
def test_wrong_hidden_entries_close_the_connection(server: ShardServer, divided: Memory) -> None:
    for entries in ([-1, 3], [3, 3], [5, 3], [divided.entries], []):
        with authenticated(server) as channel:
            content = b"" if not entries else bytes(encode_hidden(np.array(entries)))
            channel.send_pieces(HIDE, [content], hidden=7)
            assert is_closed(channel.socket)
    with authenticated(server) as channel:
        channel.send_pieces(SEARCH, [search_of(divided.dimension)], 1, hidden=7)  # which were never sent
        assert is_closed(channel.socket)


@pytest.mark.usefixtures("works")
def test_a_client_that_reads_no_answers_is_closed(server: ShardServer, divided: Memory) -> None:
    with authenticated(server) as channel:
        payload = search_of(divided.dimension, rows=2000, k=300)
        frame = encode_header(SEARCH, len(payload)) + payload
        channel.socket.settimeout(5)
        begun = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - begun < 60:
                channel.socket.sendall(frame)
        assert time.monotonic() - begun < 30


def test_skipped_rows_have_no_neighbours(divided: Memory) -> None:
    """And a search that fails ends neither the shard nor the connection of another client."""
    with serving(divided, 1) as one, opened(one) as connected:
        channel = SocketChannel(connected, 1 << 20, 5)
        description = greet(channel, None, one.address)
        modes = np.array([SearchMode.SKIP, SearchMode.FULL], np.uint8)
        rows = Rows(np.zeros((2, divided.dimension), np.float32), modes, 1, 2)
        channel.send_pieces(SEARCH, encode_search(rows), 9)
        frame = channel.receive(FOUND)
        assert frame.request == 9
        entries = np.frombuffer(frame.payload, "<i8", 4, 16).reshape(2, 2).copy()
        assert (entries[0] == -1).all()
        assert ((entries[1] >= 0) & (entries[1] < description.size)).all()
        hidden = Hidden(5, np.sort(entries[1]))
        channel.send_pieces(HIDE, [encode_hidden(hidden.entries)], hidden=5)
        channel.send_pieces(SEARCH, encode_search(rows), 10, hidden=5)
        others = np.frombuffer(channel.receive(FOUND).payload, "<i8", 4, 16).reshape(2, 2)
        assert not np.isin(others[1], entries[1]).any()


def test_an_address_is_read_and_shown() -> None:
    for text in ("127.0.0.1:7001", "[::1]:80", "unix:/run/x", "shard.example:65535"):
        assert str(parse_address(text)) == text
