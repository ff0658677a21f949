"""DeepL's API, as far as its clients need it to translate text with a memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations
from starlette.responses import Response  # noqa: TC002

from ibidem.serve.answers import answer, answer_list
from ibidem.serve.bodies import read_fields
from ibidem.serve.choice import Choice
from ibidem.serve.languages import language_name
from ibidem.serve.openapi import DEEPL_ERRORS, described_body
from ibidem.serve.refusal import Refusal
from ibidem.serve.schemas import (
    DeeplAnswer,
    DeeplLanguage,
    DeeplMemories,
    DeeplMemory,
    DeeplRequest,
    DeeplTranslation,
    DeeplUsage,
)

if TYPE_CHECKING:
    from ibidem.serve.service import Service

_NO_LIMIT = 1_000_000_000_000
_FORMALITIES = (None, "", "default", "prefer_more", "prefer_less")


def make_routes(service: Service) -> APIRouter:
    """Text, languages, usage, and the list of memories."""
    router = APIRouter(tags=["DeepL"], responses=DEEPL_ERRORS)
    desk = service.desk

    @router.post(
        "/v2/translate",
        response_model=DeeplAnswer,
        openapi_extra=described_body(DeeplRequest),
        summary="Translate texts",
    )
    async def translate_texts(request: Request) -> Response:
        """`translation_memory_id` is the name of a memory; without one all memories are used."""
        wanted = await service.read(request, DeeplRequest)
        if wanted.glossary_id:
            raise Refusal(400, "There are no glossaries here: add the terms to a memory, and name that.")
        if wanted.formality not in _FORMALITIES:
            raise Refusal(400, "'formality' is not supported for given 'target_lang'.")
        service.check_languages(wanted.source_lang, wanted.target_lang)
        named = None if wanted.translation_memory_id is None else [wanted.translation_memory_id]
        translate = service.translate_markup if wanted.tag_handling else service.translate
        found = await translate(request, wanted.text, Choice(service.choose_memories(named)))
        return answer(
            DeeplAnswer(
                translations=[
                    DeeplTranslation(
                        detected_source_language=desk.source.upper(), text=one.text, billed_characters=len(text)
                    )
                    for text, one in zip(wanted.text, found, strict=True)
                ]
            )
        )

    @router.get("/v2/languages", response_model=list[DeeplLanguage], summary="List source or target languages")
    async def languages(request: Request, type: str = "source") -> Response:
        """One of each. DeepL's own client sends `type` in the body."""
        service.gate.admit(request)
        asked = (await read_fields(request, service.limits)).fields.get("type", type)
        code = desk.target if asked == "target" else desk.source
        return answer_list([DeeplLanguage(language=code.upper(), name=language_name(code))])

    @router.get("/v2/usage", response_model=DeeplUsage, summary="Characters translated since the server started")
    async def usage(request: Request) -> Response:
        """Clients ask for this to see whether their key is good."""
        service.gate.admit(request)
        return answer(DeeplUsage(character_count=service.metrics.characters, character_limit=_NO_LIMIT))

    @router.get("/v3/translation_memories", response_model=DeeplMemories, summary="List the memories")
    async def memories(request: Request) -> Response:
        """A memory's id is its name."""
        service.gate.admit(request)
        return answer(
            DeeplMemories(
                translation_memories=[
                    DeeplMemory(
                        translation_memory_id=info.name,
                        name=info.name,
                        source_language=desk.source.upper(),
                        target_languages=[desk.target.upper()],
                        segment_count=info.pairs,
                    )
                    for info in await service.call(service.registrar.list_memories)
                ]
            )
        )

    return router
