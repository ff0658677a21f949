"""The ASGI application: all routes, the handler of exceptions, and the middleware around them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

import ibidem
from ibidem.errors import IbidemError, LockedMemoryError, MemoryFolderError, ShardError, UsageError
from ibidem.serve import metrics, schemas
from ibidem.serve.http_error import HttpError, error_response
from ibidem.serve.middleware import Middleware
from ibidem.serve.routes import (
    deepl,
    documents,
    glossaries,
    libretranslate,
    memories,
    openai,
    page,
    replication,
    segments,
    trash,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.types import ASGIApp

    from ibidem.serve.service import Service

_MESSAGES = {404: "Not found", 405: "Method not allowed"}


def make_app(service: Service) -> ASGIApp:
    """Create the ASGI application of a service; its shutdown closes the service.

    Args:
        service: The service that the routes call.

    Returns:
        The application with its middleware, for uvicorn or a test client.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.close)

    app = FastAPI(title="ibidem", version=ibidem.__version__, openapi_url=None, lifespan=lifespan)

    async def handle(request: Request, error: Exception) -> JSONResponse:
        if isinstance(error, MemoryFolderError) and await service.run_in_thread(service.memories.follow):
            error = HttpError(503, "The memories of the server have just changed: try again.", retry_after=1)
        return await handle_exception(request, error)

    handled: tuple[Any, ...] = (HttpError, HTTPException, RequestValidationError, ShardError, Exception)
    for kind in handled:
        app.add_exception_handler(kind, handle)
    for module in (
        *(libretranslate, segments, deepl, openai, documents, glossaries, memories, trash),
        *(metrics, replication),
    ):
        app.include_router(module.make_routes(service))
    app.include_router(page.make_routes())
    app.include_router(schemas.make_routes(app))
    inner: ASGIApp = app
    if service.settings.origins:
        inner = CORSMiddleware(
            app,
            allow_origins=service.settings.origins,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return Middleware(inner, service.settings, service.authenticator, service.metrics)


async def handle_exception(request: Request, error: Exception) -> JSONResponse:
    """Convert any exception to a JSON response without details of the server.

    Args:
        request: The request; its path decides the name of the field with the message.
        error: Any exception of a route.

    Returns:
        The status and message of an `HttpError`; 500 for an unexpected exception.
    """
    return error_response(_to_http_error(error), request.url.path)


def _to_http_error(error: Exception) -> HttpError:
    if isinstance(error, HttpError):
        return error
    if isinstance(error, HTTPException):
        return HttpError(error.status_code, _MESSAGES.get(error.status_code, "Error"))
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        return HttpError(400, f"Invalid request: {first['loc'][-1]}: {first['msg']}")
    if isinstance(error, LockedMemoryError):
        return HttpError(503, "Another program is writing to the memory: try again.", retry_after=2)
    if isinstance(error, ShardError):
        return HttpError(503, "A shard of the memory does not answer: try again later.", retry_after=5)
    if isinstance(error, UsageError):
        return HttpError(400, "Invalid request for this memory.")
    if isinstance(error, IbidemError):
        return HttpError(500, "The memory cannot be used: see the log of the server.")
    return HttpError(500, "Internal error: see the log of the server.")
