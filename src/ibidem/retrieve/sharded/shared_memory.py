"""Frames in memory that a shard and a client on one machine share, which is faster than a socket.

The shard makes the memory and two event counters, and passes them over its Unix socket. One half of the memory holds a
request, the other its answer; a counter tells that a frame is there. The memory is sealed, so that neither side can cut
it off while the other reads, and every frame is copied before it is read. What is too large goes over the socket.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import socket
import struct
from typing import TYPE_CHECKING

from ibidem.retrieve.sharded.protocol import HEADER, SHARED, Frame, WireError, encode_header, read_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.retrieve.sharded.channel import SocketChannel

HALF_BYTES = 1 << 20
_SIZE = struct.Struct("<I")
_DESCRIPTORS = 3


def is_supported() -> bool:
    """Return whether this system has what shared memory needs (Linux)."""
    return hasattr(os, "memfd_create") and hasattr(os, "eventfd") and hasattr(fcntl, "F_ADD_SEALS")


class SharedMemory:
    """One side of a shared memory: its own half is written, the other one read.

    Args:
        descriptors: Of the memory, of the counter of requests and of that of answers; the object owns them.
        is_shard: Whether this is the side of the shard.

    Attributes:
        arrived: The descriptor that becomes readable when a frame has arrived.
    """

    def __init__(self, descriptors: Sequence[int], *, is_shard: bool) -> None:
        self._descriptors = tuple(descriptors)
        memory, requests, answers = descriptors
        self._map = mmap.mmap(memory, 2 * HALF_BYTES)
        self.arrived, self._sent = (requests, answers) if is_shard else (answers, requests)
        self._read_at, self._write_at = (0, HALF_BYTES) if is_shard else (HALF_BYTES, 0)

    def send(self, kind: int, pieces: Sequence[bytes | memoryview], request: int = 0, hidden: int = 0) -> bool:
        """Write a frame; the one before must have been answered.

        Args:
            kind: Its kind.
            pieces: Its content.
            request: The number of the request.
            hidden: The digest of the hidden entries.

        Returns:
            Whether it fits; else it was not written.
        """
        size = sum(len(piece) for piece in pieces)
        if HEADER.size + size > HALF_BYTES:
            return False
        place = self._write_at
        for piece in (encode_header(kind, size, request, hidden), *pieces):
            self._map[place : place + len(piece)] = piece
            place += len(piece)
        os.eventfd_write(self._sent, 1)
        return True

    def receive(self) -> Frame | None:
        """Return a copy of the frame that has arrived; None where there is none.

        Raises:
            WireError: What arrived is no frame.
        """
        try:
            os.eventfd_read(self.arrived)
        except BlockingIOError:
            return None
        begin = self._read_at
        kind, size, request, hidden = read_header(self._map[begin : begin + HEADER.size], HALF_BYTES - HEADER.size)
        begin += HEADER.size
        return Frame(kind, request, hidden, memoryview(bytearray(self._map[begin : begin + size])))

    def close(self) -> None:
        """Unmap the memory and close the descriptors."""
        self._map.close()
        for descriptor in self._descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._descriptors = ()


def offer(connected: socket.socket) -> SharedMemory:
    """Make a shared memory and pass it to a client.

    Args:
        connected: The Unix socket of the client.

    Raises:
        OSError: There is no memory or no descriptor left, or the client is gone.
    """
    descriptors: list[int] = []
    try:
        memory = os.memfd_create("ibidem-shard", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        descriptors.append(memory)
        os.ftruncate(memory, 2 * HALF_BYTES)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _seals())
        descriptors += [os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(_DESCRIPTORS - 1)]
        made = SharedMemory(descriptors, is_shard=True)
    except BaseException:
        _close(descriptors)
        raise
    try:
        content = encode_header(SHARED, _SIZE.size) + _SIZE.pack(2 * HALF_BYTES)
        socket.send_fds(connected, [content], descriptors)
    except BaseException:
        made.close()
        raise
    return made


def accept(channel: SocketChannel) -> SharedMemory | None:
    """Take the shared memory that a shard offers.

    Args:
        channel: The connection, after the client has requested it.

    Returns:
        The memory; None where the shard offers none.

    Raises:
        WireError: What the shard offers is not safe to read.
        OSError: The shard is gone.
    """
    wanted = HEADER.size + _SIZE.size
    content, descriptors, _, _ = socket.recv_fds(channel.socket, wanted, _DESCRIPTORS)
    try:
        while len(content) < HEADER.size:
            content += _more(channel, HEADER.size - len(content))
        kind, size, _, _ = read_header(content[: HEADER.size], 1 << 10)
        while len(content) < HEADER.size + size:
            content += _more(channel, HEADER.size + size - len(content))
        if kind != SHARED:
            _close(descriptors)
            return None
        if len(descriptors) != _DESCRIPTORS or content[HEADER.size :] != _SIZE.pack(2 * HALF_BYTES):
            raise WireError("it offered no shared memory of the agreed size")
        memory = descriptors[0]
        if os.fstat(memory).st_size != 2 * HALF_BYTES or fcntl.fcntl(memory, fcntl.F_GET_SEALS) & _seals() != _seals():
            raise WireError("it offered shared memory that it could cut off")
        for descriptor in descriptors[1:]:
            os.set_blocking(descriptor, False)
        return SharedMemory(descriptors, is_shard=False)
    except BaseException:
        _close(descriptors)
        raise


def _more(channel: SocketChannel, count: int) -> bytes:
    part = channel.socket.recv(count)
    if not part:
        raise WireError("it closed the connection during the handshake")
    return part


def _seals() -> int:
    return fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
