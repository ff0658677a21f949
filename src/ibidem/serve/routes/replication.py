"""Routes for replicas, which fetch a memory from here, and for a proxy, which needs the readiness of each server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations
from starlette.responses import FileResponse, Response

from ibidem.serve.http_error import HttpError
from ibidem.serve.replication import ViewCache, find_file
from ibidem.serve.schemas import ERRORS, ErrorMessage, Readiness, json_response

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.serve.service import Service


def make_routes(service: Service) -> APIRouter:
    """Create the routes of replication and readiness.

    Args:
        service: The service that the routes call.
    """
    router = APIRouter(tags=["Replication"])
    views: dict[Path, ViewCache] = {}

    def check(request: Request, name: str) -> Path:
        """Check the key, and return the folder of a memory."""
        service.authenticator.check(request, scope="replicate")
        if not service.settings.replication:
            raise HttpError(403, "This server sends its memories only with keys: start it with --keys FILE.")
        loaded = service.engine.memories.get(name)
        if loaded is None:
            raise HttpError(404, f"There is no memory {name[:40]}")
        return loaded.memory.path

    @router.get(
        "/ready",
        response_model=Readiness,
        responses={503: {"model": Readiness | ErrorMessage, "description": "The server should get no requests"}},
        summary="Whether this server should get requests",
    )
    async def ready() -> Response:
        """This request needs no key and does not count against any limit.

        A server that is `stale` is ready until `max_stale_seconds`.
        """
        if not service.batcher.alive:
            raise HttpError(503, "The decoding thread has ended: restart the server.")
        limits = service.limits
        step, behind = service.batcher.seconds_since_step, service.seconds_behind
        if step > limits.stuck_seconds:
            return json_response(Readiness(status="stuck", seconds_since_step=round(step, 1)), 503)
        if behind > limits.stale_seconds:
            status = 503 if behind > limits.max_stale_seconds else 200
            return json_response(Readiness(status="stale", seconds_behind=round(behind, 1)), status)
        return json_response(Readiness(status="ready"))

    @router.get(
        "/replication/{name}/view", response_class=Response, responses=ERRORS, summary="The current state of a memory"
    )
    async def view(request: Request, name: str) -> Response:
        """Manifest, snapshots and committed ends of the journals, for `ibidem serve --follow`.

        The response is 304 if the header `If-None-Match` has the current ETag.
        """
        folder = check(request, name)
        encoded = await service.run_in_thread(views.setdefault(folder, ViewCache(folder)).read)
        headers = {"ETag": encoded.tag}
        if request.headers.get("if-none-match") == encoded.tag:
            return Response(status_code=304, headers=headers)
        return Response(encoded.content, headers=headers, media_type="application/json")

    @router.get(
        "/replication/{name}/files/{path:path}",
        response_class=FileResponse,
        responses=ERRORS | {410: {"model": ErrorMessage, "description": "A newer generation does not need the file"}},
        summary="A file of a memory",
    )
    async def file(request: Request, name: str, path: str) -> Response:
        """A segment, an artefact or a journal; the header `Range` selects a part."""
        found = await service.run_in_thread(find_file, check(request, name), path)
        if found is None:
            raise HttpError(410, "There is no such file in the memory: read its view again.")
        return FileResponse(found, media_type="application/octet-stream")

    return router
