"""The server of a shard: answers the searches of many clients in one part of an index.

Every connection has a thread of its own, so that a client that is slow, silent or hostile delays no other.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import select
import socket
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ibidem.errors import UsageError
from ibidem.retrieve.sharded.address import address_of, bind, tune
from ibidem.retrieve.sharded.channel import SocketChannel
from ibidem.retrieve.sharded.handshake import welcome
from ibidem.retrieve.sharded.protocol import (
    FAILED,
    FOUND,
    HELLO,
    HIDE,
    MOST_BYTES,
    MOST_BYTES_BEFORE,
    REFUSED,
    SEARCH,
    SHARE,
    VersionError,
    WireError,
    decode_hidden,
    decode_search,
    encode_found,
)
from ibidem.retrieve.sharded.shared_memory import SharedMemory, is_supported, offer

if TYPE_CHECKING:
    from ibidem.retrieve.parts import LoadedPart
    from ibidem.retrieve.sharded.address import Address
    from ibidem.retrieve.sharded.handshake import Description
    from ibidem.retrieve.sharded.protocol import Frame

logger = logging.getLogger(__name__)

_KEPT_VIEWS = 4
# What a refused client may still send, in pieces of at most 4 KiB.
_MOST_READ = 16


@dataclass(frozen=True)
class ServerLimits:
    """The limits of a shard.

    Attributes:
        connections: The most clients that are connected at a time.
        pending: The most connections without a finished handshake; the oldest is closed for another.
        handshake_seconds: The most time of a handshake.
        frame_seconds: The most time from the first byte of a message to its last, in both directions.
    """

    connections: int = 64
    pending: int = 16
    handshake_seconds: float = 5.0
    frame_seconds: float = 10.0


class ShardServer:
    """Listens on an address and serves one part of an index.

    Args:
        part: The part.
        description: The description that clients receive.
        address: Where to listen.
        secret: The secret that clients must have; None for none.
        limits: The limits.

    Attributes:
        address: Where it listens, with the port that the system chose.
        searches: The number of searches that were answered.

    Raises:
        UsageError: The address cannot be used, or can be reached from other machines and there is no secret.
    """

    def __init__(
        self,
        part: LoadedPart,
        description: Description,
        address: Address,
        secret: bytes | None = None,
        limits: ServerLimits | None = None,
    ) -> None:
        check_open(address, secret)
        self._part = part
        self._description = description
        self._secret = secret
        self._limits = limits or ServerLimits()
        self._listener = bind(address)
        self._listener.setblocking(False)
        self.address = address_of(self._listener, address)
        self._stop, self._stopped = socket.socketpair()
        self._lock = threading.Lock()
        self._pending: OrderedDict[int, socket.socket] = OrderedDict()
        self._connected: dict[int, socket.socket] = {}
        self._views: OrderedDict[bytes, LoadedPart] = OrderedDict()
        self.searches = 0

    def run(self) -> None:
        """Accept and serve connections until `close` is called."""
        waiting = select.poll()
        for one in (self._listener, self._stopped):
            waiting.register(one, select.POLLIN)
        while True:
            if self._stopped.fileno() in [number for number, _ in waiting.poll()]:
                break
            try:
                connected, _ = self._listener.accept()
            except OSError as error:
                logger.warning("A connection cannot be accepted: %s", error)
                time.sleep(0.05)  # too many open files: others must be closed first
                continue
            self._begin(connected)
        self._end()

    def close(self) -> None:
        """End `run` and all connections; any thread or signal handler may call this."""
        with contextlib.suppress(OSError):
            self._stop.send(b"x")

    def _begin(self, connected: socket.socket) -> None:
        connected.setblocking(True)
        tune(connected)
        with self._lock:
            while len(self._pending) >= self._limits.pending:
                _, oldest = self._pending.popitem(last=False)
                _shut(oldest)
            self._pending[connected.fileno()] = connected
        threading.Thread(target=self._serve, args=(connected,), name="ibidem-shard", daemon=True).start()

    def _serve(self, connected: socket.socket) -> None:
        number = connected.fileno()
        try:
            channel = self._shake_hands(connected)
            if channel is not None:
                self._answer(channel)
        except VersionError as error:
            _refuse(connected, str(error))
            logger.warning("A client was refused: %s", error)
        except WireError as error:
            logger.warning("A client was refused: %s", error)
        except (OSError, EOFError) as error:
            # Health checks open a connection and close it.
            logger.log(logging.INFO if number in self._connected else logging.DEBUG, "A connection ended: %s", error)
        except Exception:
            logger.exception("A connection ended with an unexpected error")
        finally:
            with self._lock:
                if self._pending.get(number) is connected:
                    del self._pending[number]
                if self._connected.get(number) is connected:
                    del self._connected[number]
            connected.close()

    def _shake_hands(self, connected: socket.socket) -> SocketChannel | None:
        channel = SocketChannel(connected, MOST_BYTES_BEFORE, self._limits.frame_seconds)
        channel.deadline = time.monotonic() + self._limits.handshake_seconds
        with self._lock:
            full = len(self._connected) >= self._limits.connections
        if full:
            channel.receive(HELLO)
            channel.send(REFUSED, f"it has {self._limits.connections} clients, the most that it serves".encode())
            return None
        welcome(channel, self._secret, self._description)
        with self._lock:
            number = connected.fileno()
            if self._pending.pop(number, None) is not connected:
                return None
            self._connected[number] = connected
        channel.deadline = None
        channel.reader.most = max(MOST_BYTES, 8 * self._description.size)
        return channel

    def _answer(self, channel: SocketChannel) -> None:
        """Answer one client until it leaves."""
        shown, shown_id, shared = self._part, 0, None
        try:
            while (received := _next(channel, shared)) is not None:
                frame, way = received
                if frame.kind == SHARE:
                    shared = self._share(channel, shared)
                elif frame.kind == HIDE:
                    shown, shown_id = self._view(frame), frame.hidden
                elif frame.kind == SEARCH:
                    if frame.hidden == 0:
                        shown, shown_id = self._part, 0
                    elif frame.hidden != shown_id:
                        raise WireError("it named hidden entries that it did not send")
                    self._search(channel, way, frame, shown)
                else:
                    raise WireError(f"it sent a message of kind {frame.kind}")
        finally:
            if shared is not None:
                shared.close()

    def _share(self, channel: SocketChannel, shared: SharedMemory | None) -> SharedMemory | None:
        """Share memory with a client on this machine that requests it."""
        if shared is not None:
            raise WireError("it requested shared memory twice")
        if self.address.path and is_supported():
            try:
                return offer(channel.socket)
            except OSError as error:
                logger.warning("No memory can be shared with a client: %s", error)
                raise
        channel.send(FAILED, b"")
        return None

    def _search(self, channel: SocketChannel, way: SharedMemory | None, frame: Frame, part: LoadedPart) -> None:
        """Answer a search in the way in which it came."""
        rows = decode_search(frame.payload, self._description.dimension)
        try:
            found = part.search(rows)
        except Exception:
            logger.exception("A search failed")
            channel.send_pieces(FAILED, [b"the search failed: see the log of the shard"], frame.request)
            return
        self.searches += 1
        pieces = encode_found(found)
        if way is None or not way.send(FOUND, pieces, frame.request):
            channel.send_pieces(FOUND, pieces, frame.request)

    def _view(self, frame: Frame) -> LoadedPart:
        """Return the part without the entries of a HIDE frame; clients that hide the same entries share it."""
        entries = decode_hidden(frame.payload, self._description.size)
        key = hashlib.sha256(entries.tobytes()).digest()
        with self._lock:
            if key in self._views:
                self._views.move_to_end(key)
                return self._views[key]
        made = self._part.without(entries)
        with self._lock:
            self._views[key] = made
            while len(self._views) > _KEPT_VIEWS:
                self._views.popitem(last=False)
        return made

    def _end(self) -> None:
        self._listener.close()
        if self.address.path:
            with contextlib.suppress(OSError):
                Path(self.address.path).unlink()
        with self._lock:
            for connected in [*self._pending.values(), *self._connected.values()]:
                _shut(connected)
        self._stop.close()
        self._stopped.close()


def check_open(address: Address, secret: bytes | None) -> None:
    """Check that an address which other machines can reach has a secret.

    Args:
        address: Where a shard is to listen.
        secret: The secret; None for none.

    Raises:
        UsageError: Other machines can reach the address, and there is no secret.
    """
    if secret is None and not address.is_private:
        raise UsageError(
            f"Any program that reaches {address} could search in this shard: set IBIDEM_SHARD_SECRET or give "
            "--shard-secret FILE, here and for the clients."
        )


def _refuse(connected: socket.socket, reason: str) -> None:
    """Send a reason, and take what the client still sends, since it would lose the reason otherwise."""
    with contextlib.suppress(OSError):
        SocketChannel(connected, 0, 1.0).send(REFUSED, reason.encode())
        connected.shutdown(socket.SHUT_WR)
        connected.settimeout(1.0)
        for _ in range(_MOST_READ):
            if not connected.recv(4096):
                return


def _next(channel: SocketChannel, shared: SharedMemory | None) -> tuple[Frame, SharedMemory | None] | None:
    """Wait for the next frame; return it with the shared memory if it came there, None where the client left."""
    if shared is not None:
        waiting = select.poll()
        for number in (channel.socket.fileno(), shared.arrived):
            waiting.register(number, select.POLLIN)
        while True:
            ready = [number for number, _ in waiting.poll()]
            if channel.socket.fileno() in ready:
                break
            if (frame := shared.receive()) is not None:
                return frame, shared
    frame = channel.receive_any()
    return None if frame is None else (frame, None)


def _shut(connected: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
