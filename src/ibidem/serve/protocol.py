"""HTTP/1.1 that answers at once, and has no endless patience with clients that are slow on purpose."""

from __future__ import annotations

import asyncio  # noqa: TC003 - a base class's annotations
import socket
from typing import TYPE_CHECKING

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ibidem.serve.gate import network_of

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

HEADER_SECONDS = 20.0
READ_SECONDS = 60.0
# The part of all connections that clients of one address may have.
_ADDRESS_SHARE = 4


class PatientProtocol(H11Protocol):
    """uvicorn's own, which would wait forever for a slow client; this one closes the connection.

    The client has `HEADER_SECONDS` for a header, and for the rest of a body that was answered before its end, and
    `READ_SECONDS` to read what is buffered of an answer. A connection is closed at once if its address has too many.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._patience: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._has_too_many():
            transport.close()
            return
        # An answer is two packets, and the second would wait for the client to say that it has the first: 40 ms.
        # asyncio sees to that only for sockets that were made with the protocol's number.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._patience = self.loop.call_later(HEADER_SECONDS, self._lose_patience)

    def connection_lost(self, exc: Exception | None) -> None:
        self._regain_patience()
        self._stop_stalled()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        # Closing would first wait for the client to read; what waits for the answer to be sent holds a request's place.
        self._stalled = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_stalled()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        begun = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        answered = self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY
        if not begun and not answered:
            self._regain_patience()
        elif self._patience is None:
            self._patience = self.loop.call_later(HEADER_SECONDS, self._lose_patience)

    def _has_too_many(self) -> bool:
        """Whether the address of this client has more connections than its part of `limit_concurrency`."""
        if self.limit_concurrency is None or self.client is None:
            return False
        own = network_of(self.client[0])
        others = (other.client for other in self.connections if isinstance(other, PatientProtocol))
        count = sum(client is not None and network_of(client[0]) == own for client in others)
        return count > max(1, self.limit_concurrency // _ADDRESS_SHARE)

    def _stop_stalled(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _regain_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _lose_patience(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
