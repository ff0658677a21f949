"""HTTP/1.1 for clients that may be slow on purpose."""

from __future__ import annotations

import asyncio  # noqa: TC003 - a base class's annotations
from typing import TYPE_CHECKING

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

HEADER_SECONDS = 20.0


class PatientProtocol(H11Protocol):
    """uvicorn's own, which would wait forever for the end of a header; this one has patience for some seconds."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._patience = self.loop.call_later(HEADER_SECONDS, self._lose_patience)

    def connection_lost(self, exc: Exception | None) -> None:
        self._regain_patience()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        begun = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        if not begun:
            self._regain_patience()
        elif self._patience is None:
            self._patience = self.loop.call_later(HEADER_SECONDS, self._lose_patience)

    def _regain_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _lose_patience(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
