"""Shared memory that a hostile side offers or writes is refused, or read as what it is."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from ibidem.retrieve.sharded.channel import SocketChannel
from ibidem.retrieve.sharded.protocol import FAILED, SEARCH, SHARED, WireError, encode_header
from ibidem.retrieve.sharded.shared_memory import HALF_BYTES, accept, is_supported, offer

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not is_supported(), reason="no shared memory")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, SocketChannel]]:
    """The socket of a shard, and the channel of its client."""
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        other.settimeout(5)
        yield one, SocketChannel(other, 1 << 10, 5)


def test_frames_arrive_in_both_directions(pair: tuple[socket.socket, SocketChannel]) -> None:
    shard = offer(pair[0])
    client = accept(pair[1])
    assert client is not None
    for number in range(3):
        assert shard.receive() is None
        assert client.send(SEARCH, [b"ab", b"c" * number], number, 9)
        frame = shard.receive()
        assert frame is not None
        assert (frame.kind, frame.request, frame.hidden, bytes(frame.payload)) == (
            SEARCH,
            number,
            9,
            b"ab" + b"c" * number,
        )
        assert shard.receive() is None
        assert shard.send(SHARED, [bytes(HALF_BYTES - 32)])
        answer = client.receive()
        assert answer is not None
        assert len(answer.payload) == HALF_BYTES - 32
    assert not client.send(SEARCH, [bytes(HALF_BYTES)])
    client.close()
    shard.close()


def test_written_garbage_is_no_frame(pair: tuple[socket.socket, SocketChannel]) -> None:
    shard = offer(pair[0])
    client = accept(pair[1])
    assert client is not None
    for content in (b"\xff" * 64, encode_header(SEARCH, HALF_BYTES), bytes(32)):
        client._map[: len(content)] = content
        os.eventfd_write(client._sent, 1)
        with pytest.raises(WireError):
            shard.receive()
    client.close()
    shard.close()


def offered(pair: tuple[socket.socket, SocketChannel], size: int, seals: int, told: int, count: int) -> None:
    memory = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, size)
    if seals:
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, seals)
    descriptors = [memory, os.eventfd(0), os.eventfd(0)]
    content = encode_header(SHARED, 4) + told.to_bytes(4, "little")
    socket.send_fds(pair[0], [content], descriptors[:count])
    for descriptor in descriptors:
        os.close(descriptor)


def test_memory_that_can_be_cut_off_is_refused(pair: tuple[socket.socket, SocketChannel]) -> None:
    """Reading it would kill the process."""
    whole, all_seals = 2 * HALF_BYTES, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for given in (
        (whole, 0, whole, 3),
        (whole, fcntl.F_SEAL_GROW, whole, 3),
        (4096, all_seals, whole, 3),
        (whole, all_seals, 4096, 3),
        (whole, all_seals, whole, 2),
        (whole, all_seals, whole, 0),
    ):
        offered(pair, *given)
        with pytest.raises(WireError):
            accept(pair[1])
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    offered(pair, whole, all_seals, whole, 3)
    taken = accept(pair[1])
    assert taken is not None
    taken.close()


def test_a_shard_may_offer_none(pair: tuple[socket.socket, SocketChannel]) -> None:
    header = encode_header(FAILED, 0)
    timer = threading.Timer(0.05, pair[0].sendall, [header[20:]])
    pair[0].sendall(header[:20])
    timer.start()
    assert accept(pair[1]) is None
    timer.join()
    pair[0].close()
    with pytest.raises(WireError):
        accept(pair[1])
