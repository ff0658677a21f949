"""The memories of a server over HTTP: listed, added to, removed from, filled from files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations
from starlette.responses import Response  # noqa: TC002

from ibidem.serve.answers import answer
from ibidem.serve.bodies import stream_body
from ibidem.serve.citations import file_name
from ibidem.serve.openapi import ERRORS, described_body
from ibidem.serve.refusal import Refusal
from ibidem.serve.schemas import (
    AddAnswer,
    AddRequest,
    JobInfo,
    MemoryList,
    RemoveAnswer,
    RemoveRequest,
    ReplacedPair,
)

if TYPE_CHECKING:
    from ibidem.serve.jobs import Job
    from ibidem.serve.service import Service

_FILE = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


def make_routes(service: Service) -> APIRouter:
    """Memories, their pairs, and imports."""
    router = APIRouter(tags=["Memories"], responses=ERRORS)
    registrar = service.registrar

    @router.get("/memories", response_model=MemoryList, summary="List the memories")
    async def memories(request: Request) -> Response:
        """All memories that are mounted, with their sizes and weights."""
        service.gate.admit(request)
        return answer(MemoryList(memories=await service.call(registrar.list_memories)))

    @router.post(
        "/memories/{name}/pairs",
        response_model=AddAnswer,
        openapi_extra=described_body(AddRequest, form=False),
        summary="Learn pairs",
    )
    async def add(request: Request, name: str) -> Response:
        """They are on disk when this is answered, and the next translation uses them."""
        wanted = await service.read(request, AddRequest)
        pairs = [(pair.source, pair.target) for pair in wanted.pairs]
        written = await service.learn(name, pairs, wanted.origin, replace=wanted.replace)
        replaced = [
            ReplacedPair(id=pair.id, source=pair.source, target=pair.target, origin=file_name(pair.origin))
            for pair in written.replaced
        ]
        return answer(AddAnswer(added=written.added, known=written.known, left_out=written.left_out, replaced=replaced))

    @router.delete(
        "/memories/{name}/pairs",
        response_model=RemoveAnswer,
        openapi_extra=described_body(RemoveRequest, form=False),
        summary="Remove pairs",
    )
    async def remove(request: Request, name: str) -> Response:
        """By id, by both texts, or by origin; all or none."""
        wanted = await service.read(request, RemoveRequest)
        if wanted.ids:
            removed = await service.call(registrar.remove, name, wanted.ids)
        elif wanted.source and wanted.target:
            removed = await service.call(registrar.remove_pair, name, wanted.source, wanted.target)
        elif wanted.origin:
            removed = await service.call(registrar.remove_origin, name, wanted.origin)
        else:
            raise Refusal(400, "Invalid request: say what to remove: ids, or source and target, or origin")
        return answer(RemoveAnswer(removed=removed))

    @router.post(
        "/memories/{name}/import",
        response_model=JobInfo,
        status_code=202,
        openapi_extra=_FILE,
        summary="Learn a file",
    )
    async def import_file(request: Request, name: str, file: str) -> Response:
        """The body is the file, `file` its name: TMX, XLIFF, PO, MO, TSV or JSONL by its ending, also .gz and .xz.

        The key, where one is needed, comes in the header or the address.
        """
        service.gate.admit(request)
        if name not in registrar.names:
            raise Refusal(404, "There is no memory of that name that learns.")
        with service.jobs.receive(file) as upload:
            with upload.path.open("wb") as copy:
                async for part in stream_body(request, service.limits.import_bytes, service.limits.body_seconds):
                    service.jobs.grow(upload, len(part))
                    await service.call(copy.write, part)
            job = service.jobs.start(name, upload)
        return answer(_describe(job), 202)

    @router.get("/jobs/{id}", response_model=JobInfo, summary="How far an import is")
    async def job(request: Request, id: str) -> Response:
        """`share` grows from 0 to 1 while the job is `running`."""
        service.gate.admit(request)
        return answer(_describe(service.jobs.find(id)))

    @router.delete("/jobs/{id}", response_model=JobInfo, summary="Stop an import")
    async def cancel(request: Request, id: str) -> Response:
        """Pairs that were learnt so far stay."""
        service.gate.admit(request)
        found = service.jobs.find(id)
        found.cancelled = True
        return answer(_describe(found))

    return router


def _describe(job: Job) -> JobInfo:
    return JobInfo.model_validate(job, from_attributes=True)
