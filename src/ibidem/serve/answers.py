"""Answers as they are sent, and errors in the words of the API that was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from ibidem.errors import IbidemError, LockedMemoryError, UsageError
from ibidem.serve.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import BaseModel
    from starlette.requests import Request

_DEEPL = ("/v2/", "/v3/")


def answer(content: BaseModel, status: int = 200) -> JSONResponse:
    """A model as JSON; what is None is left out, as LibreTranslate and DeepL do."""
    return JSONResponse(content.model_dump(mode="json", exclude_none=True), status)


def answer_list(content: Sequence[BaseModel]) -> JSONResponse:
    """Models as a JSON list."""
    return JSONResponse([item.model_dump(mode="json", exclude_none=True) for item in content])


def refuse(refusal: Refusal, path: str) -> JSONResponse:
    """A refusal as JSON: DeepL's clients read `message`, LibreTranslate's `error`."""
    field = "message" if path.startswith(_DEEPL) else "error"
    headers = {}
    if refusal.retry_after is not None:
        headers["Retry-After"] = str(refusal.retry_after)
    if refusal.status in (408, 413):
        headers["Connection"] = "close"  # what is left of the body is not read
    return JSONResponse({field: refusal.message}, refusal.status, headers)


async def answer_error(request: Request, error: Exception) -> JSONResponse:
    """Anything that was raised, as JSON; what was not meant for a client is not told to one."""
    return refuse(_explain(error), request.url.path)


def _explain(error: Exception) -> Refusal:
    if isinstance(error, Refusal):
        return error
    if isinstance(error, HTTPException):
        return Refusal(error.status_code, {404: "Not found", 405: "Method not allowed"}.get(error.status_code, "Error"))
    if isinstance(error, RequestValidationError):
        return Refusal(400, "Invalid request: a parameter is missing or wrong")
    if isinstance(error, LockedMemoryError):
        return Refusal(503, "Another program is writing to the memory: try again.", retry_after=2)
    if isinstance(error, UsageError):
        return Refusal(400, "That cannot be done with this memory.")
    if isinstance(error, IbidemError):
        return Refusal(500, "The memory cannot be used; the server's log says why.")
    return Refusal(500, "Something went wrong on the server; its log says what.")
