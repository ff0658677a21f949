"""Glossaries: DeepL's API (version 2 for one pair of languages, version 3 for several), and files of terms."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations
from starlette.responses import Response

from ibidem.glossary import FORMATS, write_terms
from ibidem.serve.deepl_schemas import (
    GlossaryDictionaries,
    GlossaryDictionary,
    GlossaryDictionaryInfo,
    GlossaryInfo,
    GlossaryInfos,
    GlossaryPair,
    GlossaryPairs,
    GlossaryRequest,
    MultilingualGlossaryChange,
    MultilingualGlossaryInfo,
    MultilingualGlossaryInfos,
    MultilingualGlossaryRequest,
)
from ibidem.serve.glossaries import GlossaryStore, StoredGlossary, Terms
from ibidem.serve.http_error import HttpError
from ibidem.serve.memory_writer import file_name
from ibidem.serve.request import choose_pair, stream_body
from ibidem.serve.schemas import DEEPL_ERRORS, ERRORS, describe_body, describe_file, json_response
from ibidem.serve.store_schemas import GlossaryList, StoredGlossaryInfo
from ibidem.text import primary_language

if TYPE_CHECKING:
    from ibidem.glossary import Glossary
    from ibidem.serve.service import Service


def make_routes(service: Service) -> APIRouter:
    """Create the routes for glossaries.

    Args:
        service: The service that the routes call.
    """
    router = APIRouter(tags=["Glossaries"])
    _add_files(router, service)
    of_deepl = APIRouter(responses=DEEPL_ERRORS)
    _add_version_2(of_deepl, service)
    _add_version_3(of_deepl, service)
    router.include_router(of_deepl)
    return router


def _add_files(router: APIRouter, service: Service) -> None:
    store, check, engine = service.glossaries, service.authenticator.check, service.engine

    def may_change(request: Request) -> bool:
        return store.creates and (not service.authenticator.required or request.state.scope in ("write", "admin"))

    @router.get("/glossaries", response_model=GlossaryList, responses=ERRORS, summary="List the glossaries")
    async def list_all(request: Request) -> Response:
        """One object for each pair of languages, with what the key may do."""
        owner = check(request)
        found = []
        for stored in store.list_glossaries():
            of_owner = stored.owner in ("", owner) or _changer(service, request) is None
            managed = may_change(request) and not stored.is_fixed and of_owner
            found += [
                StoredGlossaryInfo(
                    id=stored.id,
                    name=one.name,
                    source=one.source_language,
                    target=one.target_language,
                    terms=len(one),
                    rights="manage" if managed else "read",
                )
                for one in stored.dictionaries.values()
            ]
        return json_response(GlossaryList(glossaries=found, creates=may_change(request)))

    @router.post(
        "/glossaries/import",
        response_model=StoredGlossaryInfo,
        status_code=201,
        responses=ERRORS,
        openapi_extra=describe_file(),
        summary="Create a glossary from a file",
    )
    async def import_file(request: Request, file: str, name: str = "", source: str = "", target: str = "") -> Response:
        """The body is the file: CSV, TSV or TBX in UTF-8 or UTF-16, which the ending of its name `file` says.

        The terms are translated from `source` to `target`, by default the first pair of languages of the server.
        Default for `name`: the name of the file. A key must be in the header or the query.
        """
        owner = check(request, scope="write")
        pair = choose_pair(engine.pairs, source, target)
        limit = min(service.limits.body_bytes * 4, service.limits.document_bytes)
        content = b"".join([part async for part in stream_body(request, limit, service.limits.body_seconds)])
        path = PurePath(file_name(file))
        format = path.suffix.removeprefix(".").lower()
        if format not in FORMATS:
            raise HttpError(400, "Invalid request: a glossary is a file with the ending .csv, .tsv or .tbx")
        terms = Terms(*pair, content, format, header=True)

        stored = await service.run_in_thread(_create, service, request, name or path.stem, [terms], owner)
        return json_response(
            StoredGlossaryInfo(
                id=stored.id,
                name=stored.first.name,
                source=pair[0],
                target=pair[1],
                terms=len(stored.first),
                rights="manage",
            ),
            201,
        )

    @router.get("/glossaries/{id}/export", response_class=Response, responses=ERRORS, summary="Export the terms")
    async def export(request: Request, id: str, format: Literal["csv", "tsv", "tbx"] = "csv") -> Response:
        """The terms of the server's languages, else of the first pair of languages."""
        check(request)
        stored = store.find(id)
        glossary = stored.dictionaries.get((engine.source, engine.target), stored.first)
        headers = {"Content-Disposition": f"attachment; filename*=utf-8''{quote(glossary.name)}.{format}"}
        content = await service.run_in_thread(write_terms, glossary, format)
        return Response(content, media_type="application/octet-stream", headers=headers)


def _add_version_2(router: APIRouter, service: Service) -> None:
    store, check = service.glossaries, service.authenticator.check

    @router.post(
        "/v2/glossaries",
        response_model=GlossaryInfo,
        status_code=201,
        openapi_extra=describe_body(GlossaryRequest),
        summary="Create a glossary",
    )
    async def create(request: Request) -> Response:
        """The glossary is on disk when the response is sent. It belongs to the key of the request."""
        body = await service.read(request, GlossaryRequest, scope="write")
        owner = service.authenticator.owner_of(request, body.auth_key)
        stored = await service.run_in_thread(_create, service, request, body.name, [_terms(body)], owner)
        return json_response(_describe(store, stored), 201)

    @router.get("/v2/glossaries", response_model=GlossaryInfos, summary="List the glossaries")
    async def list_glossaries(request: Request) -> Response:
        """All glossaries of the server, of all keys."""
        check(request)
        return json_response(GlossaryInfos(glossaries=[_describe(store, one) for one in store.list_glossaries()]))

    @router.get("/v2/glossary-language-pairs", response_model=GlossaryPairs, summary="Languages of glossaries")
    async def pairs(request: Request) -> Response:
        """The languages of the server."""
        check(request)
        pairs = [GlossaryPair(source_lang=source, target_lang=target) for source, target in service.engine.pairs]
        return json_response(GlossaryPairs(supported_languages=pairs))

    @router.get("/v2/glossaries/{id}", response_model=GlossaryInfo, summary="Describe a glossary")
    async def describe(request: Request, id: str) -> Response:
        """Of a glossary with several pairs of languages, the first pair is described."""
        check(request)
        return json_response(_describe(store, store.find(id)))

    @router.get("/v2/glossaries/{id}/entries", response_class=Response, summary="Terms of a glossary")
    async def entries(request: Request, id: str) -> Response:
        """A line for each term: term, tab, translation. Several translations are separated by `|`."""
        check(request)
        return Response(_write(store.find(id).first), media_type="text/tab-separated-values; charset=utf-8")

    @router.delete("/v2/glossaries/{id}", status_code=204, response_class=Response, summary="Delete a glossary")
    async def delete(request: Request, id: str) -> Response:
        """With the key that created it or the scope `admin`; `POST /trash/glossary/ID/restore` undoes this."""
        check(request, scope="write")
        await _delete(service, request, id)
        return Response(status_code=204)


def _add_version_3(router: APIRouter, service: Service) -> None:
    store, check = service.glossaries, service.authenticator.check
    owner_of = service.authenticator.owner_of

    @router.post(
        "/v3/glossaries",
        response_model=MultilingualGlossaryInfo,
        status_code=201,
        openapi_extra=describe_body(MultilingualGlossaryRequest, form=False),
        summary="Create a glossary of several pairs of languages",
    )
    async def create(request: Request) -> Response:
        """The glossary is on disk when the response is sent. It belongs to the key of the request."""
        body = await service.read(request, MultilingualGlossaryRequest, scope="write")
        terms = [_terms(one) for one in body.dictionaries]
        owner = owner_of(request, body.auth_key)
        stored = await service.run_in_thread(_create, service, request, body.name, terms, owner)
        return json_response(_describe_all(store, stored), 201)

    @router.get("/v3/glossaries", response_model=MultilingualGlossaryInfos, summary="List the glossaries")
    async def list_glossaries(request: Request) -> Response:
        """All glossaries of the server, of all keys."""
        check(request)
        found = [_describe_all(store, one) for one in store.list_glossaries()]
        return json_response(MultilingualGlossaryInfos(glossaries=found))

    @router.get("/v3/glossaries/{id}", response_model=MultilingualGlossaryInfo, summary="Describe a glossary")
    async def describe(request: Request, id: str) -> Response:
        """All pairs of languages with the number of their terms."""
        check(request)
        return json_response(_describe_all(store, store.find(id)))

    @router.patch(
        "/v3/glossaries/{id}",
        response_model=MultilingualGlossaryInfo,
        openapi_extra=describe_body(MultilingualGlossaryChange, form=False),
        summary="Rename a glossary, or add terms",
    )
    async def change(request: Request, id: str) -> Response:
        """New terms replace entries of the same terms; other entries stay."""
        body = await service.read(request, MultilingualGlossaryChange, scope="write")
        terms = [_terms(one) for one in body.dictionaries or ()]

        def apply() -> StoredGlossary:
            changer = _changer(service, request, body.auth_key)
            stored = store.change(id, changer, name=body.name, add=terms)
            service.audit.write("change", stored.first.name, request, kind="glossary", id=id)
            return stored

        return json_response(_describe_all(store, await service.run_in_thread(apply)))

    @router.put(
        "/v3/glossaries/{id}/dictionaries",
        response_model=GlossaryDictionaryInfo,
        openapi_extra=describe_body(GlossaryDictionary, form=False),
        summary="Replace the terms of one pair of languages",
    )
    async def replace(request: Request, id: str) -> Response:
        """All terms of this pair of languages are replaced."""
        body = await service.read(request, GlossaryDictionary, scope="write")
        terms = _terms(body)

        def apply() -> StoredGlossary:
            stored = store.change(id, _changer(service, request, body.auth_key), replaced=terms)
            service.audit.write("change", stored.first.name, request, kind="glossary", id=id)
            return stored

        stored = await service.run_in_thread(apply)
        return json_response(_describe_pair(stored.dictionaries[terms.pair]))

    @router.get("/v3/glossaries/{id}/entries", response_model=GlossaryDictionaries, summary="Terms of a glossary")
    async def entries(request: Request, id: str, source_lang: str, target_lang: str) -> Response:
        """The terms of one pair of languages, a line each."""
        check(request)
        glossary = store.find(id).dictionaries.get((primary_language(source_lang), primary_language(target_lang)))
        if glossary is None:
            raise HttpError(404, "The glossary does not have these languages.")
        found = GlossaryDictionary(
            source_lang=glossary.source_language, target_lang=glossary.target_language, entries=_write(glossary)
        )
        return json_response(GlossaryDictionaries(dictionaries=[found]))

    @router.delete("/v3/glossaries/{id}", status_code=204, response_class=Response, summary="Delete a glossary")
    async def delete(request: Request, id: str) -> Response:
        """With the key that created it or the scope `admin`; `POST /trash/glossary/ID/restore` undoes this."""
        check(request, scope="write")
        await _delete(service, request, id)
        return Response(status_code=204)

    @router.delete(
        "/v3/glossaries/{id}/dictionaries",
        status_code=204,
        response_class=Response,
        summary="Delete the terms of one pair of languages",
    )
    async def delete_pair(request: Request, id: str, source_lang: str, target_lang: str) -> Response:
        """A glossary without any terms is deleted."""
        check(request, scope="write")
        pair = (primary_language(source_lang), primary_language(target_lang))
        await _delete(service, request, id, pair)
        return Response(status_code=204)


def _create(service: Service, request: Request, name: str, terms: list[Terms], owner: str) -> StoredGlossary:
    stored = service.glossaries.create(name, terms, owner)
    service.audit.write("create", stored.first.name, request, kind="glossary", id=stored.id)
    return stored


def _changer(service: Service, request: Request, key: str | None = None) -> str | None:
    """Return the owner whose glossaries a request may change; None for all owners, with the scope `admin`."""
    authenticator = service.authenticator
    return None if authenticator.required and request.state.scope == "admin" else authenticator.owner_of(request, key)


async def _delete(service: Service, request: Request, id: str, pair: tuple[str, str] | None = None) -> None:
    changer = _changer(service, request)

    def apply() -> None:
        name = service.glossaries.find(id).first.name
        service.glossaries.delete(id, changer, pair)
        service.audit.write("delete" if pair is None else "change", name, request, kind="glossary", id=id)

    await service.run_in_thread(apply)


def _terms(body: GlossaryRequest | GlossaryDictionary) -> Terms:
    return Terms(body.source_lang, body.target_lang, body.entries, body.entries_format)


def _write(glossary: Glossary) -> str:
    """Return the terms as DeepL's clients read them: without quotation marks and without a header."""
    return write_terms(glossary, "tsv").partition("\n")[2].rstrip("\n")


def _describe(store: GlossaryStore, stored: StoredGlossary) -> GlossaryInfo:
    first = stored.first
    return GlossaryInfo(
        glossary_id=stored.id,
        name=first.name,
        source_lang=first.source_language,
        target_lang=first.target_language,
        creation_time=store.created(stored),
        entry_count=len(first),
    )


def _describe_pair(glossary: Glossary) -> GlossaryDictionaryInfo:
    return GlossaryDictionaryInfo(
        source_lang=glossary.source_language, target_lang=glossary.target_language, entry_count=len(glossary)
    )


def _describe_all(store: GlossaryStore, stored: StoredGlossary) -> MultilingualGlossaryInfo:
    return MultilingualGlossaryInfo(
        glossary_id=stored.id,
        name=stored.first.name,
        creation_time=store.created(stored),
        dictionaries=[_describe_pair(one) for one in stored.dictionaries.values()],
    )
