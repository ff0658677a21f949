"""The API of the memories: list them, add and remove pairs, import files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations
from starlette.responses import Response  # noqa: TC002

from ibidem.serve.http_error import HttpError
from ibidem.serve.memory_writer import file_name
from ibidem.serve.request import stream_body
from ibidem.serve.schemas import (
    ERRORS,
    AddRequest,
    AddResponse,
    JobInfo,
    MemoryList,
    RemoveRequest,
    RemoveResponse,
    ReplacedPair,
    describe_body,
    describe_file,
    json_response,
)

if TYPE_CHECKING:
    from ibidem.serve.jobs import Job
    from ibidem.serve.service import Service


def make_routes(service: Service) -> APIRouter:
    """Create the routes for memories, their pairs, and imports.

    Args:
        service: The service that the routes call.
    """
    router = APIRouter(tags=["Memories"], responses=ERRORS)
    writers = service.writers

    @router.get("/memories", response_model=MemoryList, summary="List the memories")
    async def list_memories(request: Request) -> Response:
        """All memories with their sizes and weights."""
        service.authenticator.check(request)
        return json_response(MemoryList(memories=await service.run_in_thread(writers.list_memories)))

    @router.post(
        "/memories/{name}/pairs",
        response_model=AddResponse,
        openapi_extra=describe_body(AddRequest, form=False),
        summary="Add pairs",
    )
    async def add(request: Request, name: str) -> Response:
        """The pairs are on disk when the response is sent, and the next translation uses them."""
        body = await service.read(request, AddRequest, scope="write")
        pairs = [(pair.source, pair.target) for pair in body.pairs]
        written = await service.learn(request, name, pairs, body.origin, replace=body.replace)
        replaced = [
            ReplacedPair(id=pair.id, source=pair.source, target=pair.target, origin=file_name(pair.origin))
            for pair in written.replaced
        ]
        return json_response(
            AddResponse(added=written.added, known=written.known, left_out=written.left_out, replaced=replaced)
        )

    @router.delete(
        "/memories/{name}/pairs",
        response_model=RemoveResponse,
        openapi_extra=describe_body(RemoveRequest, form=False),
        summary="Remove pairs",
    )
    async def remove(request: Request, name: str) -> Response:
        """By ids, by source and target, or by origin, which needs a key with the scope `admin`; all or none."""
        body = await service.read(request, RemoveRequest, scope="write")
        if body.ids:
            removed = await service.remove(request, name, writers.remove, body.ids)
        elif body.source and body.target:
            removed = await service.remove(request, name, writers.remove_pair, body.source, body.target)
        elif body.origin:
            service.authenticator.check_scope(request, "admin")
            removed = await service.remove(request, name, writers.remove_origin, body.origin)
        else:
            raise HttpError(400, "Invalid request: set ids, or source and target, or origin")
        return json_response(RemoveResponse(removed=removed))

    @router.post(
        "/memories/{name}/import",
        response_model=JobInfo,
        status_code=202,
        openapi_extra=describe_file(),
        summary="Import a file",
    )
    async def import_file(request: Request, name: str, file: str) -> Response:
        """The body is the file. Its name `file` gives the format: TMX, XLIFF, PO, MO, TSV, CSV, XLSX or JSONL.

        The ending .gz or .xz may follow.

        A key must be in the header or the query. The import continues after a restart of the server.
        """
        service.authenticator.check(request, scope="write")
        writers.check_writable(name)
        with service.jobs.receive(name, file) as upload:
            with upload.path.open("wb") as copy:
                async for part in stream_body(request, service.limits.import_bytes, service.limits.body_seconds):
                    service.jobs.grow(upload, len(part))
                    await service.run_in_thread(copy.write, part)
            job = await service.run_in_thread(service.jobs.start, name, upload)
            service.audit.write("import", name, request, job=job.id, bytes=upload.size)
        return json_response(_describe(job), 202)

    @router.get("/jobs/{id}", response_model=JobInfo, summary="State of an import")
    async def job(request: Request, id: str) -> Response:
        """`share` grows from 0 to 1 while the job is `running`."""
        service.authenticator.check(request)
        return json_response(_describe(service.jobs.find(id)))

    @router.delete("/jobs/{id}", response_model=JobInfo, summary="Cancel an import")
    async def cancel(request: Request, id: str) -> Response:
        """Pairs that were already added remain."""
        service.authenticator.check(request, scope="write")
        found = service.jobs.find(id)
        service.jobs.cancel(found)
        service.audit.write("cancel", found.memory, request, job=found.id)
        return json_response(_describe(found))

    return router


def _describe(job: Job) -> JobInfo:
    return JobInfo.model_validate(job, from_attributes=True)
