"""Ends the work for a request whose client closed the connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from ibidem.serve.http_error import HttpError

if TYPE_CHECKING:
    from starlette.requests import Request

Outcome = TypeVar("Outcome")


async def cancel_on_disconnect(request: Request, result: asyncio.Future[Outcome]) -> Outcome:
    """Wait for a future, and cancel it if the client closes the connection first.

    Args:
        request: The request; its body must have been read.
        result: The work for the request.

    Returns:
        The result of the future.

    Raises:
        HttpError: 499, the client closed the connection.
    """
    disconnected = asyncio.ensure_future(_wait_for_disconnect(request))
    both: set[asyncio.Future[Any]] = {result, disconnected}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise HttpError(499, "The client closed the connection.")
        return result.result()
    finally:
        disconnected.cancel()
        result.cancel()


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
