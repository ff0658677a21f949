"""A shard that lies cannot harm its client: the step goes on without it, and it is counted as lost."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from ibidem.errors import ShardError
from ibidem.retrieve import Found, read_plan
from ibidem.retrieve.sharded import describe_part
from ibidem.retrieve.sharded.channel import SocketChannel
from ibidem.retrieve.sharded.handshake import welcome
from ibidem.retrieve.sharded.protocol import (
    CHALLENGE,
    FAILED,
    FOUND,
    HELLO,
    SEARCH,
    WELCOME,
    WireError,
    encode_found,
    encode_header,
)

from .conftest import connect, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ibidem.memory import Memory

ROWS, K = 3, 4


@contextmanager
def lying(answer: Callable[[SocketChannel], None]) -> Iterator[str]:
    """Listen, and let a function answer every connection; yields the address."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            try:
                connected, _ = listener.accept()
            except OSError:
                return
            with connected:
                try:
                    answer(SocketChannel(connected, 1 << 20, 2))
                except (OSError, EOFError, WireError):
                    continue

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def found_of(entries: list[int], distances: list[float]) -> bytes:
    one = Found(np.tile(np.array(distances, np.float64), (ROWS, 1)), np.tile(np.array(entries, np.int64), (ROWS, 1)))
    return b"".join(encode_found(one))


GOOD = found_of([0, 1, 2, 3], [0.0, 1.0, 2.0, 3.0])
LIES: dict[str, Callable[[int], bytes]] = {
    "entries out of range": lambda n: _frame(FOUND, found_of([0, 1, 2, 1 << 40], [0.0, 1.0, 2.0, 3.0]), n),
    "negative entries": lambda n: _frame(FOUND, found_of([0, 1, 2, -9], [0.0, 1.0, 2.0, 3.0]), n),
    "NaN": lambda n: _frame(FOUND, found_of([0, 1, 2, 3], [0.0, 1.0, 2.0, np.nan]), n),
    "another shape": lambda n: _frame(FOUND, struct.pack("<IIII", 9, 9, 8, 0) + GOOD[16:], n),
    "too short": lambda n: _frame(FOUND, GOOD[:-8], n),
    "nothing": lambda n: _frame(FOUND, b"", n),
    "another request": lambda n: _frame(FOUND, GOOD, n + 5),
    "request 0": lambda _: _frame(FOUND, GOOD, 0),
    "another kind": lambda n: _frame(SEARCH, GOOD, n),
    "a failure": lambda n: _frame(FAILED, b"no", n),
    "garbage": lambda _: b"\xde\xad" * 500,
    "a huge frame": lambda n: encode_header(FOUND, (1 << 32) - 1, n),
    "half a frame": lambda n: _frame(FOUND, GOOD, n)[:60],
}


def _frame(kind: int, payload: bytes, request: int) -> bytes:
    return encode_header(kind, len(payload), request) + payload


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
@pytest.mark.filterwarnings("ignore:Shard 2 of")
def test_lies_are_left_out(divided: Memory, lie: Callable[[int], bytes]) -> None:
    plan = read_plan(divided)
    assert plan is not None
    description = describe_part(divided, plan, 2)

    def answer(channel: SocketChannel) -> None:
        welcome(channel, None, description)
        while (frame := channel.receive_any()) is not None:
            channel.socket.sendall(lie(frame.request))

    queries = torch.zeros(ROWS, divided.dimension)
    with serving(divided, 1) as honest, lying(answer) as liar:
        base, parts = connect(divided, [str(honest.address), liar], deadline_ms=150)
        found = base.index.search(queries, K)
        assert ((found.entries >= 0) & (found.entries < description.first)).all()
        base.index.search(queries, K)
        parts.close()
    assert parts.missed_steps == 2


def test_a_true_answer_of_the_same_shard_counts(divided: Memory) -> None:
    """The test above would pass if every answer was refused."""
    plan = read_plan(divided)
    assert plan is not None
    description = describe_part(divided, plan, 2)

    def answer(channel: SocketChannel) -> None:
        welcome(channel, None, description)
        while (frame := channel.receive_any()) is not None:
            channel.socket.sendall(_frame(FOUND, GOOD, frame.request))

    with serving(divided, 1) as honest, lying(answer) as other:
        base, parts = connect(divided, [str(honest.address), other])
        found = base.index.search(torch.zeros(ROWS, divided.dimension), K)
        assert description.first in found.entries[0].tolist()
        assert parts.missed_steps == 0
        parts.close()


HANDSHAKES: dict[str, Callable[[SocketChannel], None]] = {
    "garbage": lambda channel: channel.socket.sendall(b"SSH-2.0-OpenSSH_9.9\r\n" * 9),
    "nothing": lambda channel: channel.socket.close(),
    "a huge challenge": lambda channel: channel.socket.sendall(encode_header(CHALLENGE, 1 << 30)),
    "a short challenge": lambda channel: channel.send(CHALLENGE, b"abc"),
    "a welcome at once": lambda channel: channel.send(WELCOME, bytes(32) + b"{}"),
    "no description": lambda channel: _welcome_with(channel, b"[]"),
    "a description of another part": lambda channel: _welcome_with(channel, b'{"part": 7}'),
}


def _welcome_with(channel: SocketChannel, content: bytes) -> None:
    channel.receive(HELLO)
    channel.send(CHALLENGE, bytes(33))
    channel.receive(3)
    channel.send(WELCOME, bytes(32) + content)


@pytest.mark.parametrize("answer", HANDSHAKES.values(), ids=HANDSHAKES.keys())
def test_what_is_no_shard_is_named_at_the_start(divided: Memory, answer: Callable[[SocketChannel], None]) -> None:
    with (
        serving(divided, 1) as honest,
        lying(answer) as liar,
        pytest.raises(ShardError, match=f"part 2 of 2.*{liar} cannot be used"),
    ):
        connect(divided, [str(honest.address), liar])


def test_a_false_shard_without_the_secret_is_refused(divided: Memory) -> None:
    """It can accept any proof, and cannot make its own."""
    plan = read_plan(divided)
    assert plan is not None
    content = describe_part(divided, plan, 2).to_bytes()

    def answer(channel: SocketChannel) -> None:
        channel.receive(HELLO)
        channel.send(CHALLENGE, bytes(32) + b"\1")
        proof = bytes(channel.receive(3).payload)
        channel.send(WELCOME, proof + content)

    with lying(answer) as liar, pytest.raises(ShardError, match="has another secret"):
        connect(divided, [liar], secret=b"a secret of the tests")
