"""Errors that a client receives as an HTTP status and a JSON message.

This module imports starlette only when a response is made, because `ibidem serve --new-key` works without the extra
`serve`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.responses import JSONResponse

_DEEPL_PATHS = ("/v2/", "/v3/")
_OPENAI_PATHS = ("/v1/",)


class HttpError(Exception):
    """Ends a request with an HTTP status other than success.

    Args:
        status: HTTP status code.
        message: Text for the client. It must not contain a path or a stack trace of the server.
        retry_after: Seconds after which the client may repeat the request. It is rounded up to whole seconds and sent
            as the header `Retry-After`.
    """

    def __init__(self, status: int, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = None if retry_after is None else max(1, math.ceil(retry_after))


class InvalidKeyError(HttpError):
    """Reports a missing or an invalid API key, with the status 403 of LibreTranslate and DeepL; OpenAI's is 401.

    Args:
        message: Text for the client.
    """

    def __init__(self, message: str) -> None:
        super().__init__(403, message)


class BusyError(HttpError):
    """Reports a full queue, or a request that waited too long in it.

    Args:
        retry_after: Seconds after which the client may repeat the request.
    """

    def __init__(self, retry_after: float) -> None:
        super().__init__(503, "The server is busy: try again later.", retry_after=retry_after)


class RequestTimeoutError(HttpError):
    """Reports a translation that took longer than the limit `request_seconds`.

    Args:
        seconds: The limit that was exceeded.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(503, f"The translation took longer than {seconds:g} seconds: send less text at once.")


class ReadOnlyError(HttpError):
    """Reports a change that was sent to a read-only server.

    Args:
        writer: The address of the server that accepts changes; None if it is unknown.
    """

    def __init__(self, writer: str | None = None) -> None:
        where = writer or "the server of the memory that was started without --read-only and --follow"
        super().__init__(403, f"This server is read-only: send changes to {where}.")


class ClosingError(HttpError):
    """Reports that the server is shutting down."""

    def __init__(self) -> None:
        super().__init__(503, "The server is shutting down.", retry_after=10)


def error_response(error: HttpError, path: str) -> JSONResponse:
    """Convert an error to a JSON response.

    Args:
        error: The error to send.
        path: Path of the request. DeepL's clients read the field `message`, LibreTranslate's the field `error`, and
            OpenAI's an object in the field `error`.
    """
    from starlette.responses import JSONResponse

    field = "message" if path.startswith(_DEEPL_PATHS) else "error"
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if error.status in (408, 413):
        headers["Connection"] = "close"  # the rest of the body is not read
    message: object = error.message
    status = error.status
    if path.startswith(_OPENAI_PATHS):
        kind, code = "server_error" if status >= 500 else "invalid_request_error", None
        if isinstance(error, InvalidKeyError):
            status, code = 401, "invalid_api_key"
        message = {"message": error.message, "type": kind, "param": None, "code": code}
    return JSONResponse({field: message}, status, headers)
