"""Requests that are not served, and what is said to whoever sent them."""

from __future__ import annotations

import math


class Refusal(Exception):  # noqa: N818 - an answer rather than an error
    """An answer other than success: a status and a message for the client, which names no file and no code.

    retry_after: seconds after which the same request may be served.
    """

    def __init__(self, status: int, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = None if retry_after is None else max(1, math.ceil(retry_after))


class BusyError(Refusal):
    """The queue is full, or the request waited too long in it."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(503, "The server is busy: try again later.", retry_after=retry_after)


class SlowError(Refusal):
    """Translating took longer than a request may take."""

    def __init__(self, seconds: float) -> None:
        super().__init__(503, f"The translation took longer than {seconds:g} seconds: send less text at once.")


class ClosingError(Refusal):
    """The server is being shut down."""

    def __init__(self) -> None:
        super().__init__(503, "The server is shutting down.", retry_after=10)
