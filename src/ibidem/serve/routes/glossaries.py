"""DeepL's API for glossaries: version 2 for one pair of languages, version 3 for several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations
from starlette.responses import Response

from ibidem.glossary import write_terms
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
from ibidem.serve.schemas import DEEPL_ERRORS, describe_body, json_response
from ibidem.text import primary_language

if TYPE_CHECKING:
    from ibidem.glossary import Glossary
    from ibidem.serve.service import Service


def make_routes(service: Service) -> APIRouter:
    """Create the routes for glossaries.

    Args:
        service: The service that the routes call.
    """
    router = APIRouter(tags=["Glossaries"], responses=DEEPL_ERRORS)
    _add_version_2(router, service)
    _add_version_3(router, service)
    return router


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
        """The glossary is on disk when the response is sent. Only the key that created it can delete it."""
        body = await service.read(request, GlossaryRequest, scope="write")
        owner = service.authenticator.owner_of(request, body.auth_key)
        stored = await service.run_in_thread(store.create, body.name, [_terms(body)], owner)
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
        """Only the key that created a glossary can delete it."""
        check(request, scope="write")
        await service.run_in_thread(store.delete, id, service.authenticator.owner_of(request))
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
        """The glossary is on disk when the response is sent. Only the key that created it can change it."""
        body = await service.read(request, MultilingualGlossaryRequest, scope="write")
        terms = [_terms(one) for one in body.dictionaries]
        stored = await service.run_in_thread(store.create, body.name, terms, owner_of(request, body.auth_key))
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
            return store.change(id, owner_of(request, body.auth_key), name=body.name, add=terms)

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
            return store.change(id, owner_of(request, body.auth_key), replaced=terms)

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
        """Only the key that created a glossary can delete it."""
        check(request, scope="write")
        await service.run_in_thread(store.delete, id, owner_of(request))
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
        await service.run_in_thread(store.delete, id, owner_of(request), pair)
        return Response(status_code=204)


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
