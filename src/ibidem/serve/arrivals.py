"""A limit for each client on requests whose body is still arriving."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from ibidem.serve.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Hashable

    from starlette.types import Message, Receive

_WAIT_SECONDS = 1.0


class Arrivals:
    """Limits the bodies of one client that may be arriving at the same time to `most`.

    A further request waits up to `seconds` before it is refused. Clients that send many requests in parallel often send
    headers and bodies in separate packets, and would otherwise be refused although each body takes milliseconds.
    """

    def __init__(self, most: int, seconds: float = _WAIT_SECONDS) -> None:
        self._most = most
        self._seconds = seconds
        self._places: dict[Hashable, asyncio.Semaphore] = {}
        self._users: Counter[Hashable] = Counter()

    async def begin(self, client: Hashable) -> Arrival:
        """Take a place, which `Arrival.end` gives back; raises Refusal 503 when there is none in time."""
        self._users[client] += 1
        try:
            async with asyncio.timeout(self._seconds):
                await self._places.setdefault(client, asyncio.Semaphore(self._most)).acquire()
        except BaseException as error:
            self._leave(client)
            if not isinstance(error, TimeoutError):
                raise
            raise Refusal(503, "Too many requests at once: try again.", retry_after=1) from None
        return Arrival(self, client)

    def end(self, client: Hashable) -> None:
        """Give a place back."""
        self._places[client].release()
        self._leave(client)

    def _leave(self, client: Hashable) -> None:
        """Forget a client when its last request has left."""
        self._users[client] -= 1
        if not self._users[client]:
            del self._users[client], self._places[client]


class Arrival:
    """The body of one request, from its header to its last byte."""

    def __init__(self, arrivals: Arrivals, client: Hashable) -> None:
        self._arrivals = arrivals
        self._client = client
        self._ended = False

    def watch(self, receive: Receive) -> Receive:
        """Wrap the ASGI `receive` of the request, so that the place is given back when the body is complete."""

        async def receive_part() -> Message:
            message = await receive()
            if not message.get("more_body", False):
                self.end()
            return message

        return receive_part

    def end(self) -> None:
        """Give the place back; does nothing the second time."""
        if not self._ended:
            self._ended = True
            self._arrivals.end(self._client)
