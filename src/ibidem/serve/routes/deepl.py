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
    choose_splitting,
    language_name,
    read_fields,
)
from ibidem.serve.routes.libretranslate import round_confidence
from ibidem.serve.schemas import DEEPL_ERRORS, describe_body, json_response
from ibidem.serve.weblate_probe import is_weblate_probe, probe_warning

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
        refuse_unsupported(body)
        if is_weblate_probe(body.text, body.source_lang, body.target_lang, engine.pairs):
            answer = DeeplTranslation(
                detected_source_language="EN", text=body.text[0], warning=probe_warning(engine.pairs)
            )
            return json_response(DeeplResponse(translations=[answer]))
        pair = await service.choose_pair(body.source_lang, body.target_lang, body.text)
        named = None if body.translation_memory_id is None else [body.translation_memory_id]
        memories = service.choose_memories(request, named, pair)
        named_glossaries = [name for name in (body.glossary_id, *(body.glossary_ids or ())) if name]
        glossary = service.glossaries.choose(next(iter(named_glossaries), None), pair)
        options = RequestOptions(memories, glossary=glossary, pair=pair)
        splitting = choose_splitting(body.split_sentences, body.tag_handling)
        if body.tag_handling:
            tags = body.ignore_tags or ()
            found = await service.translate_markup(request, body.text, options, splitting, tags)
        else:
            found = await service.translate(request, body.text, options, splitting)
        return json_response(
            DeeplResponse(
                translations=[
                    DeeplTranslation(
                        detected_source_language=pair[0].upper(),
                        text=one.text,
                        billed_characters=len(text) if body.show_billed_characters else None,
                        confidence=round_confidence(one.confidence) if body.show_confidence else None,
                        missing_shards=list(one.missing_shards) or None,
                    )
                    for text, one in zip(body.text, found, strict=True)
                ]
            )
        )

    @router.get("/v2/languages", response_model=list[DeeplLanguage], summary="List source or target languages")
    async def languages(request: Request, type: str = "source") -> Response:
        """`type` is `source` or `target`. DeepL's own client sends it in the body."""
        service.authenticator.check(request)
        kind = (await read_fields(request, service.limits)).fields.get("type", type)
        if kind not in ("source", "target"):
            raise HttpError(400, "Invalid request: type must be source or target")
        codes = dict.fromkeys(pair[kind == "target"] for pair in engine.pairs)
        return json_response([DeeplLanguage(language=code.upper(), name=language_name(code)) for code in codes])

    @router.get("/v2/usage", response_model=DeeplUsage, summary="Characters translated since the server started")
    async def usage(request: Request) -> Response:
        """Clients use this request to check their key."""
        service.authenticator.check(request)
        return json_response(DeeplUsage(character_count=service.metrics.characters, character_limit=_CHARACTER_LIMIT))

    for path in ("/v2/write/rephrase", "/v2/write/correct"):
        router.add_api_route(path, refuse_write, methods=["POST"], include_in_schema=False)

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
                        source_language=engine.pair_of(info.name)[0].upper(),
                        target_languages=[engine.pair_of(info.name)[1].upper()],
                        segment_count=info.pairs,
                    )
                    for info in await service.run_in_thread(service.writers.list_memories)
                    if service.rights(request, info.name) != "none"
                ]
            )
        )

    return router


async def refuse_write() -> Response:
    """Refuse DeepL Write.

    Raises:
        HttpError: 400, always.
    """
    raise HttpError(400, "Improving texts (DeepL Write) is not supported: this server only translates.")


def refuse_unsupported(body: DeeplRequest) -> None:
    """Refuse options that would change the translation and are not supported.

    Args:
        body: The request.

    Raises:
        HttpError: 400, with the name of the option.
    """
    if body.formality not in ACCEPTED_FORMALITIES:
        raise HttpError(400, "'formality' is not supported for given 'target_lang'.")
    unsupported = ("context", "custom_instructions", "style_id", "splitting_tags", "non_splitting_tags")
    for name in unsupported:
        if getattr(body, name):
            raise HttpError(400, f"'{name}' is not supported: leave it out.")
    if body.outline_detection is False:
        raise HttpError(400, "'outline_detection' cannot be turned off: leave it out.")
    if body.ignore_tags and not body.tag_handling:
        raise HttpError(400, "'ignore_tags' needs 'tag_handling': set it to xml or html.")
    if len([name for name in (body.glossary_id, *(body.glossary_ids or ())) if name]) > 1:
        raise HttpError(400, "Invalid request: one glossary at most; join them to one.")
