"""The API of the memories: list, create, rename, delete and export them, add and remove pairs, import files."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query
from starlette.background import BackgroundTask
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations
from starlette.responses import FileResponse, Response

from ibidem.check import POLICIES
from ibidem.memory import remove_file
from ibidem.serve.http_error import HttpError
from ibidem.serve.memory_writer import file_name
from ibidem.serve.request import choose_pair, stream_body
from ibidem.serve.schemas import (
    ERRORS,
    AddRequest,
    AddResponse,
    FoundPair,
    JobInfo,
    MemoryInfo,
    MemoryList,
    RemoveRequest,
    RemoveResponse,
    ReplacedPair,
    SearchResponse,
    describe_body,
    describe_file,
    json_response,
)
from ibidem.serve.search import SearchQuery, search_memory
from ibidem.serve.store_schemas import ChangeMemoryRequest, CreateMemoryRequest, Named, TrashItem
from ibidem.text import write_pairs

if TYPE_CHECKING:
    from ibidem.serve.jobs import Job
    from ibidem.serve.service import Service


def make_routes(service: Service) -> APIRouter:
    """Create the routes for memories, their pairs, imports and exports.

    Args:
        service: The service that the routes call.
    """
    router = APIRouter(tags=["Memories"], responses=ERRORS)
    writers = service.writers
    _add_management(router, service)

    @router.get("/memories/{name}/search", response_model=SearchResponse, summary="Search the pairs of a memory")
    async def search(
        request: Request,
        name: str,
        q: str,
        side: Literal["source", "target", "both"] = "both",
        mode: Literal["words", "phrase"] = "words",
        limit: Annotated[int, Query(ge=0, le=100)] = 20,
        offset: Annotated[int, Query(ge=0)] = 0,
    ) -> Response:
        """All `words` in any order, or the `phrase` as it stands; upper and lower case are alike."""
        service.authenticator.check(request)
        service.check_rights(request, name, "read")
        query = SearchQuery(q, side, mode, limit, offset)
        found = await service.run_long_task(request, search_memory, service.engine, name, query)
        pairs = [
            FoundPair(
                id=pair.id,
                source=pair.source,
                target=pair.target,
                origin=file_name(pair.origin),
                location=pair.location,
            )
            for pair in found.pairs
        ]
        return json_response(SearchResponse(pairs=pairs, total=found.total, complete=found.complete))

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
    async def import_file(request: Request, name: str, file: str, bad_pairs: str = "stop") -> Response:
        """The body is the file. Its name `file` gives the format: TMX, XLIFF, PO, MO, TSV, CSV, XLSX or JSONL.

        The ending .gz or .xz may follow.

        The file is checked before it is learnt. `bad_pairs` is `stop` (certain defects such as exchanged languages make
        the import fail, others are reported in its message), `fix` (bad pairs are repaired or left out) or `keep`.

        A key must be in the header or the query. The import continues after a restart of the server.
        """
        service.authenticator.check(request, scope="write")
        if bad_pairs not in POLICIES:
            raise HttpError(400, f"Invalid request: bad_pairs is one of {', '.join(POLICIES)}")
        service.check_rights(request, name, "write")
        writers.check_writable(name)
        with service.jobs.receive(name, file) as upload:
            with upload.path.open("wb") as copy:
                async for part in stream_body(request, service.limits.import_bytes, service.limits.body_seconds):
                    service.jobs.grow(upload, len(part))
                    await service.run_in_thread(copy.write, part)
            job = await service.run_in_thread(service.jobs.start, name, upload, bad_pairs, request.state.owner)
            service.audit.write("import", name, request, job=job.id, bytes=upload.size)
        return json_response(_describe(job), 202)

    def find_job(request: Request, id: str) -> Job:
        found = service.jobs.find(id)
        if service.rights(request, found.memory) == "none":
            raise HttpError(404, "There is no such job.")
        return found

    @router.get("/jobs/{id}", response_model=JobInfo, summary="State of an import")
    async def job(request: Request, id: str) -> Response:
        """`share` grows from 0 to 1 while the job is `running`."""
        service.authenticator.check(request)
        return json_response(_describe(find_job(request, id)))

    @router.delete("/jobs/{id}", response_model=JobInfo, summary="Cancel an import")
    async def cancel(request: Request, id: str) -> Response:
        """Pairs that were already added remain."""
        service.authenticator.check(request, scope="write")
        found = find_job(request, id)
        if found.state == "running":
            service.check_rights(request, found.memory, "write")
        await service.run_in_thread(service.jobs.cancel, found)
        service.audit.write("cancel", found.memory, request, job=found.id)
        return json_response(_describe(found))

    return router


def _add_management(router: APIRouter, service: Service) -> None:
    writers, store, engine = service.writers, service.memories, service.engine

    def list_infos() -> list[MemoryInfo]:
        store.follow()
        return writers.list_memories()

    @router.get("/memories", response_model=MemoryList, summary="List the memories")
    async def list_memories(request: Request) -> Response:
        """The memories that the key may use, with their sizes and weights."""
        service.authenticator.check(request)
        found = []
        for info in await service.run_in_thread(list_infos):
            rights = service.rights(request, info.name)
            if rights != "none":
                info.rights, info.others = rights, store.others(info.name)
                info.learns = rights != "read"
                info.source, info.target = engine.pair_of(info.name)
                found.append(info)
        creates = store.creates and (not service.authenticator.required or request.state.scope in ("write", "admin"))
        return json_response(MemoryList(memories=found, creates=creates))

    @router.post(
        "/memories",
        response_model=Named,
        status_code=201,
        openapi_extra=describe_body(CreateMemoryRequest, form=False),
        summary="Create a memory",
    )
    async def create(request: Request) -> Response:
        """The memory is empty, and on disk when the response is sent. It belongs to the key of the request."""
        body = await service.read(request, CreateMemoryRequest, scope="write")
        pair = choose_pair(engine.pairs, body.source, body.target)
        owner = request.state.owner

        def apply() -> str:
            name = store.create(body.name, owner, body.others, pair)
            service.audit.write("create", name, request, others=body.others)
            return name

        return json_response(Named(name=await service.run_long_task(request, apply)), 201)

    @router.patch(
        "/memories/{name}",
        response_model=Named,
        openapi_extra=describe_body(ChangeMemoryRequest, form=False),
        summary="Rename a memory, or change the rights of other keys",
    )
    async def change(request: Request, name: str) -> Response:
        """Only for memories that clients created, with the key of the creator or the scope `admin`."""
        body = await service.read(request, ChangeMemoryRequest, scope="write")
        service.check_rights(request, name, "manage")

        def apply() -> str:
            if body.others is not None:
                store.share(name, body.others)
                service.audit.write("access", name, request, others=body.others)
            if body.name is None:
                return name
            new = store.rename(name, body.name)
            service.audit.write("rename", name, request, new=new)
            return new

        return json_response(Named(name=await service.run_long_task(request, apply)))

    @router.delete("/memories/{name}", response_model=TrashItem, summary="Move a memory to the trash")
    async def delete(request: Request, name: str) -> Response:
        """`POST /trash/memory/ID/restore` undoes this, until `expires`."""
        service.authenticator.check(request, scope="write")
        service.check_rights(request, name, "manage")

        def apply() -> TrashItem:
            deleted = store.delete(name)
            service.audit.write("delete", name, request, kind="memory", id=deleted.id)
            return TrashItem.model_validate(deleted, from_attributes=True)

        return json_response(await service.run_long_task(request, apply))

    @router.get("/memories/{name}/export", response_class=Response, summary="Export all pairs")
    async def export(request: Request, name: str, format: Literal["tmx", "tsv", "jsonl"] = "tmx") -> Response:
        """A file that can be imported again; TMX and JSONL also have the origins of the pairs."""
        service.authenticator.check(request, scope="write")
        service.check_rights(request, name, "read")
        path = Path(tempfile.mkdtemp(prefix="ibidem-")) / f"memory.{format}"

        def write() -> None:
            memory = writers.newest(name)
            source, target = engine.pair_of(name)
            write_pairs(memory.sentences(), path, source_language=source, target_language=target, format=format)

        try:
            await service.run_long_task(request, write)
        except BaseException:
            remove_file(path.parent)
            raise
        headers = {"Content-Disposition": f"attachment; filename*=utf-8''{quote(name)}.{format}"}
        return FileResponse(
            path,
            media_type="application/octet-stream",
            headers=headers,
            background=BackgroundTask(remove_file, path.parent),
        )


def _describe(job: Job) -> JobInfo:
    return JobInfo.model_validate(job, from_attributes=True)
