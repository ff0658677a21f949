"""The application: all routes behind one door."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

import ibidem
from ibidem.serve import deepl, figures, libretranslate, memories, openapi, page
from ibidem.serve.answers import answer_error
from ibidem.serve.door import Door
from ibidem.serve.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import ASGIApp

    from ibidem.serve.service import Service


def make_app(service: Service) -> ASGIApp:
    """An ASGI application over a service, which it closes when it is shut down."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.close)

    app = FastAPI(title="ibidem", version=ibidem.__version__, openapi_url=None, lifespan=lifespan)
    handled: tuple[Any, ...] = (Refusal, HTTPException, RequestValidationError, Exception)
    for kind in handled:
        app.add_exception_handler(kind, answer_error)
    for routes in (libretranslate, deepl, memories, figures):
        app.include_router(routes.make_routes(service))
    app.include_router(page.make_routes())
    app.include_router(openapi.make_routes(app))
    inside: ASGIApp = app
    if service.settings.origins:
        inside = CORSMiddleware(
            app,
            allow_origins=service.settings.origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return Door(inside, service.settings, service.gate, service.metrics)
