"""Translation of documents: the server's own API, and those of LibreTranslate and DeepL."""

from __future__ import annotations

import asyncio
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO
from urllib.parse import quote

from fastapi import APIRouter, Query
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations
from starlette.responses import FileResponse, Response

from ibidem.serve.deepl_schemas import DeeplDocument, DeeplDocumentKey, DeeplDocumentRequest, DeeplDocumentStatus
from ibidem.serve.disconnect import cancel_on_disconnect
from ibidem.serve.http_error import HttpError
from ibidem.serve.request import (
    RequestOptions,
    parse_fields,
    read_upload,
    stream_body,
)
from ibidem.serve.routes.deepl import ACCEPTED_FORMALITIES
from ibidem.serve.schemas import (
    DEEPL_ERRORS,
    ERRORS,
    DocumentInfo,
    TranslateFileRequest,
    TranslateFileResponse,
    describe_body,
    describe_file,
    json_response,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ibidem.serve.documents import DocumentJob
    from ibidem.serve.jobs import Upload
    from ibidem.serve.service import Service

_ALL = "*"
_DEEPL_STATES: dict[str, Any] = {"queued": "queued", "running": "translating", "done": "done"}
# Characters a second, for DeepL's estimate of the remaining time; its client waits that long before it polls again.
_EXPECTED_RATE = 400


def make_routes(service: Service) -> APIRouter:
    """Create the routes for documents.

    Args:
        service: The service that the routes call.
    """
    router = APIRouter()
    documents, limits = service.documents, service.limits

    async def options_for(
        request: Request,
        source: str | None,
        target: str | None,
        memories: Sequence[str] | Mapping[str, float] | None,
        glossary: str | None = None,
    ) -> RequestOptions:
        pair = await service.choose_pair(source, target)
        chosen = service.choose_memories(request, memories, pair)
        return RequestOptions(chosen, glossary=service.glossaries.choose(glossary, pair), pair=pair)

    async def store(upload: Upload, copy: BinaryIO, part: bytes) -> None:
        if upload.size + len(part) > limits.document_bytes:
            raise HttpError(413, f"The document is larger than {limits.document_bytes:,} bytes.")
        documents.grow(upload, len(part))
        await service.run_in_thread(copy.write, part)

    @router.post(
        "/documents",
        response_model=DocumentInfo,
        status_code=202,
        tags=["Documents"],
        responses=ERRORS,
        openapi_extra=describe_file(),
        summary="Send a document",
    )
    async def send(
        request: Request,
        file: str,
        memories: str = _ALL,
        glossary: str = _ALL,
        min_confidence: Annotated[float, Query(ge=0, le=1)] = 0.0,
        source: str = "",
        target: str = "",
    ) -> Response:
        """The body is the document; the ending of its name `file` gives the format.

        `memories` are names with commas between them, `*` for all of them; `glossary` is an id or a name, `none`
        for none, `*` for that of the server. Texts of a lower confidence than `min_confidence` are left out, and listed
        in `failures`. Without `source` and `target`, the document is in the source language of the first pair of
        languages of the server.

        A key must be in the header or the query.
        """
        owner = service.authenticator.check(request)
        names = None if memories == _ALL else [name for name in memories.split(",") if name]
        options = await options_for(request, source, target, names, None if glossary == _ALL else glossary)
        with documents.receive(file) as upload:
            with upload.path.open("wb") as copy:
                async for part in stream_body(request, limits.document_bytes, limits.body_seconds):
                    await store(upload, copy, part)
            job = documents.start(upload, owner, options, min_confidence=min_confidence)
        return json_response(_describe(job), 202)

    @router.get("/documents/{id}", response_model=DocumentInfo, tags=["Documents"], responses=ERRORS, summary="State")
    async def state(request: Request, id: str) -> Response:
        """`share` grows from 0 to 1 while the document is `running`."""
        return json_response(_describe(documents.find(id, service.authenticator.check(request))))

    @router.get(
        "/documents/{id}/file", response_class=Response, tags=["Documents"], responses=ERRORS, summary="Download"
    )
    async def download(request: Request, id: str) -> Response:
        """The translated document, as a file of the same name."""
        return _send_file(documents.find(id, service.authenticator.check(request)))

    @router.delete(
        "/documents/{id}", response_model=DocumentInfo, tags=["Documents"], responses=ERRORS, summary="Remove"
    )
    async def remove(request: Request, id: str) -> Response:
        """A translation that is running is stopped."""
        job = documents.find(id, service.authenticator.check(request))
        await service.run_in_thread(documents.remove, job)
        return json_response(_describe(job))

    @router.post(
        "/translate_file",
        response_model=TranslateFileResponse,
        tags=["LibreTranslate"],
        responses=ERRORS,
        openapi_extra=describe_file("file", TranslateFileRequest),
        summary="Translate a file",
    )
    async def translate_file(request: Request) -> Response:
        """The response is sent when the file is translated; the address in it works without a key, for a time."""
        service.authenticator.check_before_body(request)
        async with read_upload(request, limits, documents.receive, store) as (body, upload):
            owner = service.authenticator.check(request, _text(body.fields.get("api_key")))
            fields = parse_fields(TranslateFileRequest, body)
            options = await options_for(request, fields.source, fields.target, fields.memories)
            job = documents.start(upload, owner, options)
        try:
            await cancel_on_disconnect(request, asyncio.wrap_future(job.ended))
        except HttpError:
            documents.remove(job)
            raise
        if job.state != "done":
            raise HttpError(400, f"Invalid file: {job.message}")
        name = job.id + PurePath(job.file).suffix
        address = request.url_for("download_file", name=name)
        if (
            request.headers.get("x-forwarded-proto", "").lower() == "https"
        ):  # it concerns only the client's own response
            address = address.replace(scheme="https")
        return json_response(TranslateFileResponse(translatedFileUrl=str(address)))

    @router.get(
        "/download_file/{name}", response_class=Response, tags=["LibreTranslate"], responses=ERRORS, summary="Download"
    )
    async def download_file(name: str) -> Response:
        """The random name is the permission: clients of LibreTranslate send no key here."""
        return _send_file(documents.find_result(name))

    @router.post(
        "/v2/document",
        response_model=DeeplDocument,
        tags=["DeepL"],
        responses=DEEPL_ERRORS,
        openapi_extra=describe_file("file", DeeplDocumentRequest),
        summary="Send a document",
    )
    async def send_deepl(request: Request) -> Response:
        """`translation_memory_id` is the name of a memory. Default: all memories."""
        service.authenticator.check_before_body(request)
        async with read_upload(request, limits, documents.receive, store) as (body, upload):
            owner = service.authenticator.check(request, _text(body.fields.get("auth_key")))
            fields = parse_fields(DeeplDocumentRequest, body)
            _refuse_unsupported(fields, PurePath(fields.filename or upload.path).suffix)
            memory = fields.translation_memory_id
            names = None if memory is None else [memory]
            options = await options_for(request, fields.source_lang, fields.target_lang, names, fields.glossary_id)
            job = documents.start(upload, owner, options, fields.filename)
        return json_response(DeeplDocument(document_id=job.id, document_key=job.key))

    async def find_deepl(request: Request, id: str) -> DocumentJob:
        body = await service.read(request, DeeplDocumentKey)
        return documents.find(id, service.authenticator.owner_of(request, body.auth_key), body.document_key)

    @router.post(
        "/v2/document/{id}",
        response_model=DeeplDocumentStatus,
        tags=["DeepL"],
        responses=DEEPL_ERRORS,
        openapi_extra=describe_body(DeeplDocumentKey),
        summary="State of a document",
    )
    async def state_deepl(request: Request, id: str) -> Response:
        """The client repeats this request until the status is `done` or `error`."""
        job = await find_deepl(request, id)
        status = _DEEPL_STATES.get(job.state, "error")
        remaining = (
            max(1, round((1 - job.share) * job.characters / _EXPECTED_RATE)) if status == "translating" else None
        )
        return json_response(
            DeeplDocumentStatus(
                document_id=job.id,
                status=status,
                seconds_remaining=remaining,
                billed_characters=job.characters if status == "done" else None,
                error_message=job.message if status == "error" else None,
            )
        )

    @router.post(
        "/v2/document/{id}/result",
        response_class=Response,
        tags=["DeepL"],
        responses=DEEPL_ERRORS,
        openapi_extra=describe_body(DeeplDocumentKey),
        summary="Download a document",
    )
    async def download_deepl(request: Request, id: str) -> Response:
        """The translated document, as a file of the same name."""
        return _send_file(await find_deepl(request, id))

    return router


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _refuse_unsupported(fields: DeeplDocumentRequest, ending: str) -> None:
    if fields.formality not in ACCEPTED_FORMALITIES:
        raise HttpError(400, "'formality' is not supported for given 'target_lang'.")
    if fields.output_format and f".{fields.output_format.lower()}" != ending.lower():
        raise HttpError(
            400, f"output_format {fields.output_format[:20]} is not supported: it must be that of the document."
        )


def _describe(job: DocumentJob) -> DocumentInfo:
    return DocumentInfo.model_validate(job, from_attributes=True)


def _send_file(job: DocumentJob) -> Response:
    if job.state != "done":
        raise HttpError(404 if job.state in ("failed", "cancelled") else 503, job.message or "Not translated yet.")
    job.delivered = True
    # The browser must never open a document that a client sent as a page of this server.
    name = quote(job.file)
    headers = {"Content-Disposition": f"attachment; filename*=utf-8''{name}"}
    return FileResponse(job.result, media_type="application/octet-stream", headers=headers)
