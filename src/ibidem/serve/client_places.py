"""Limits on what one client does at the same time, so that others are not blocked."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from ibidem.serve.http_error import HttpError

if TYPE_CHECKING:
    from collections.abc import Hashable

_WAIT_SECONDS = 1.0


class ClientPlaces:
    """Limits the requests of one client that are active, whose body arrives, or that take long, at the same time.

    A further request waits for some time before it fails. Clients that send many requests in parallel often send
    headers and bodies in separate packets, and would otherwise fail although each body takes milliseconds.

    Args:
        most: Places of one client.
        seconds: Seconds that a further request waits.
    """

    def __init__(self, most: int, seconds: float = _WAIT_SECONDS) -> None:
        self._most = most
        self._seconds = seconds
        self._semaphores: dict[Hashable, asyncio.Semaphore] = {}
        self._requests: Counter[Hashable] = Counter()

    async def acquire(self, client: Hashable) -> ClientPlace:
        """Reserve a place, which `ClientPlace.release` frees.

        Args:
            client: Identifies the client, see `Authenticator.identify`.

        Raises:
            HttpError: 503, no place became free in time.
        """
        self._requests[client] += 1
        try:
            async with asyncio.timeout(self._seconds):
                await self._semaphores.setdefault(client, asyncio.Semaphore(self._most)).acquire()
        except BaseException as error:
            self._forget_idle(client)
            if not isinstance(error, TimeoutError):
                raise
            raise HttpError(503, "Too many requests at once: try again.", retry_after=1) from None
        return ClientPlace(self, client)

    def release(self, client: Hashable) -> None:
        """Free a place.

        Args:
            client: The client that the place was reserved for.
        """
        self._semaphores[client].release()
        self._forget_idle(client)

    def _forget_idle(self, client: Hashable) -> None:
        self._requests[client] -= 1
        if not self._requests[client]:
            del self._requests[client], self._semaphores[client]


class ClientPlace:
    """The place of one request among those of its client.

    Args:
        places: The limit that the place belongs to.
        client: The client that the place is reserved for.
    """

    def __init__(self, places: ClientPlaces, client: Hashable) -> None:
        self._places = places
        self._client = client
        self._released = False

    def release(self) -> None:
        """Free the place; further calls have no effect."""
        if not self._released:
            self._released = True
            self._places.release(self._client)
