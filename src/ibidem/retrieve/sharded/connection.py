"""A client's connection to one shard: requests are sent and answers collected without waiting."""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

from ibidem.retrieve.sharded.address import connect
from ibidem.retrieve.sharded.channel import ClosedError, SocketChannel, drop_sent
from ibidem.retrieve.sharded.handshake import RefusedShardError, greet
from ibidem.retrieve.sharded.protocol import (
    HIDE,
    MOST_BYTES,
    MOST_BYTES_OF_GREETING,
    SHARE,
    VersionError,
    WireError,
    encode_header,
    encode_hidden,
)
from ibidem.retrieve.sharded.shared_memory import SharedMemory, accept, is_supported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.retrieve.parts import Hidden
    from ibidem.retrieve.sharded.address import Address
    from ibidem.retrieve.sharded.handshake import Description
    from ibidem.retrieve.sharded.protocol import Frame


class Connection:
    """A connection to a shard after its handshake.

    Args:
        address: The address of the shard.
        channel: The connection; its socket is not blocking from now on.
        description: What the shard serves.
        shared: Memory that is shared with the shard; None for none.

    Attributes:
        address: The address of the shard.
        description: What the shard serves.
        outstanding: The number of the request that the shard has not answered; 0 for none.
        since: When that request was sent, by `time.monotonic`.
    """

    def __init__(
        self,
        address: Address,
        channel: SocketChannel,
        description: Description,
        shared: SharedMemory | None = None,
    ) -> None:
        self.address = address
        self.description = description
        self.outstanding = 0
        self.since = 0.0
        self._hidden = 0
        self._reader = channel.reader
        self._reader.most = MOST_BYTES
        self._socket = channel.socket
        self._socket.setblocking(False)
        self._shared = shared
        self._writable = select.poll()
        self._writable.register(self._socket, select.POLLOUT)

    @property
    def shares_memory(self) -> bool:
        """Whether requests and answers are passed in shared memory."""
        return self._shared is not None

    def descriptors(self) -> list[int]:
        """Return the descriptors of which one becomes readable when an answer arrives, or the shard is gone."""
        return [self._socket.fileno(), *([] if self._shared is None else [self._shared.arrived])]

    def send(
        self, kind: int, pieces: Sequence[bytes | memoryview], request: int, hidden: Hidden, deadline: float
    ) -> None:
        """Send a request, after the hidden entries where the shard does not have them yet.

        Args:
            kind: The kind of the request.
            pieces: Its payload.
            request: Its number.
            hidden: The entries that must not be found.
            deadline: The time until which it must be sent.

        Raises:
            OSError: The shard is gone, or does not take it in time; the connection cannot be used any more.
        """
        is_known = hidden.id in (0, self._hidden)
        self.hide(hidden, deadline)
        self.outstanding, self.since = request, time.monotonic()
        # The socket keeps the order where hidden entries were sent before.
        if self._shared is not None and is_known and self._shared.send(kind, pieces, request, hidden.id):
            return
        self._send([encode_header(kind, sum(map(len, pieces)), request, hidden.id), *pieces], deadline)

    def hide(self, hidden: Hidden, deadline: float) -> None:
        """Send hidden entries where the shard does not have them yet.

        Args:
            hidden: The entries.
            deadline: The time until which they must be sent.

        Raises:
            OSError: The shard is gone, or does not take them in time; the connection cannot be used any more.
        """
        if hidden.id not in (0, self._hidden):
            payload = encode_hidden(hidden.entries)
            self._send([encode_header(HIDE, len(payload), 0, hidden.id), payload], deadline)
            self._hidden = hidden.id

    def receive(self) -> Frame | None:
        """Return a frame that has arrived; None where there is none yet.

        Raises:
            OSError: The shard is gone.
            WireError: What arrived is no frame.
        """
        if self._shared is not None and (frame := self._shared.receive()) is not None:
            return frame
        while True:
            try:
                count = self._socket.recv_into(self._reader.place())
            except BlockingIOError:
                return None
            if not count:
                raise ClosedError
            if (frame := self._reader.add(count)) is not None:
                return frame

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
        if self._shared is not None:
            self._shared.close()
            self._shared = None

    def _send(self, pieces: Sequence[bytes | memoryview], deadline: float) -> None:
        left = [memoryview(piece) for piece in pieces]
        while left:
            try:
                left = drop_sent(left, self._socket.sendmsg(left))
            except BlockingIOError:
                wait = deadline - time.monotonic()
                if wait <= 0 or not self._writable.poll(1e3 * wait):
                    raise TimeoutError("it takes no requests") from None


def open_connection(address: Address, secret: bytes | None, seconds: float) -> Connection:
    """Connect to a shard and make the handshake.

    Args:
        address: The address.
        secret: The secret; None for none.
        seconds: The most time to wait.

    Raises:
        RefusedShardError: The shard refuses the client, or has another secret or another version of the protocol.
        WireError: What listens there is no shard.
        OSError: The shard cannot be reached.
    """
    deadline = time.monotonic() + seconds
    connected = connect(address, seconds)
    try:
        channel = SocketChannel(connected, MOST_BYTES_OF_GREETING, seconds)
        channel.deadline = deadline
        description, shared = greet(channel, secret, address), None
        if address.path and is_supported():
            channel.send(SHARE, b"")
            shared = accept(channel)
        return Connection(address, channel, description, shared)
    except VersionError as error:
        connected.close()
        raise RefusedShardError(f"The shard {address} cannot be used: {error}.") from error
    except EOFError as error:
        connected.close()
        raise WireError("it closed the connection during the handshake") from error
    except BaseException:
        connected.close()
        raise
