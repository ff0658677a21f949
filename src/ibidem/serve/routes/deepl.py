"""DeepL's API, as far as its clients use it to translate text with a memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations
from starlette.responses import Response  # noqa: TC002

from ibidem.serve.deepl_schemas import (
    DeeplLanguage,
    DeeplMemories,
    DeeplMemory,
    DeeplRequest,
    DeeplResponse,
    DeeplTranslation,
    DeeplUsage,
)
from ibidem.serve.http_error import HttpError
from ibidem.serve.request import (
    RequestOptions,
    check_languages,
    choose_memories,
    choose_splitting,
    language_name,
    read_fields,
)
from ibidem.serve.routes.libretranslate import round_confidence
from ibidem.serve.schemas import DEEPL_ERRORS, describe_body, json_response

if TYPE_CHECKING:
    from ibidem.serve.service import Service

_CHARACTER_LIMIT = 1_000_000_000_000
ACCEPTED_FORMALITIES = (None, "", "default", "prefer_more", "prefer_less")


def make_routes(service: Service) -> APIRouter:
    """Create the routes for text, languages, usage and memories.

    Args:
        service: The service that the routes call.
    """
    router = APIRouter(tags=["DeepL"], responses=DEEPL_ERRORS)
    engine = service.engine

    @router.post(
        "/v2/translate",
        response_model=DeeplResponse,
        openapi_extra=describe_body(DeeplRequest),
        summary="Translate texts",
    )
    async def translate_texts(request: Request) -> Response:
        """`translation_memory_id` is the name of a memory. Default: all memories."""
        body = await service.read(request, DeeplRequest)
        named_glossaries = [name for name in (body.glossary_id, *(body.glossary_ids or ())) if name]
        if len(named_glossaries) > 1:
            raise HttpError(400, "Invalid request: one glossary at most; join them to one.")
        if body.formality not in ACCEPTED_FORMALITIES:
            raise HttpError(400, "'formality' is not supported for given 'target_lang'.")
        check_languages((engine.source, engine.target), body.source_lang, body.target_lang)
        named = None if body.translation_memory_id is None else [body.translation_memory_id]
        translate = service.translate_markup if body.tag_handling else service.translate
        memories = choose_memories(named, service.usable_memories(request), service.limits.memories)
        splitting = choose_splitting(body.split_sentences, body.tag_handling)
        glossary = service.glossaries.choose(next(iter(named_glossaries), None))
        found = await translate(request, body.text, RequestOptions(memories, glossary=glossary), splitting)
        return json_response(
            DeeplResponse(
                translations=[
                    DeeplTranslation(
                        detected_source_language=engine.source.upper(),
                        text=one.text,
                        billed_characters=len(text),
                        confidence=round_confidence(one.confidence) if body.show_confidence else None,
                    )
                    for text, one in zip(body.text, found, strict=True)
                ]
            )
        )

    @router.get("/v2/languages", response_model=list[DeeplLanguage], summary="List source or target languages")
    async def languages(request: Request, type: str = "source") -> Response:
        """There is one of each. DeepL's own client sends `type` in the body."""
        service.authenticator.check(request)
        kind = (await read_fields(request, service.limits)).fields.get("type", type)
        code = engine.target if kind == "target" else engine.source
        return json_response([DeeplLanguage(language=code.upper(), name=language_name(code))])

    @router.get("/v2/usage", response_model=DeeplUsage, summary="Characters translated since the server started")
    async def usage(request: Request) -> Response:
        """Clients use this request to check their key."""
        service.authenticator.check(request)
        return json_response(DeeplUsage(character_count=service.metrics.characters, character_limit=_CHARACTER_LIMIT))

    @router.get("/v3/translation_memories", response_model=DeeplMemories, summary="List the memories")
    async def list_memories(request: Request) -> Response:
        """The id of a memory is its name."""
        service.authenticator.check(request)
        return json_response(
            DeeplMemories(
                translation_memories=[
                    DeeplMemory(
                        translation_memory_id=info.name,
                        name=info.name,
                        source_language=engine.source.upper(),
                        target_languages=[engine.target.upper()],
                        segment_count=info.pairs,
                    )
                    for info in await service.run_in_thread(service.writers.list_memories)
                    if service.rights(request, info.name) != "none"
                ]
            )
        )

    return router
