"""LibreTranslate's API: what its clients send, and the answers they read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations
from starlette.responses import Response  # noqa: TC002

from ibidem.serve.answers import answer, answer_list
from ibidem.serve.choice import Choice
from ibidem.serve.languages import language_name
from ibidem.serve.layout import pair_lines
from ibidem.serve.openapi import ERRORS, described_body
from ibidem.serve.refusal import Refusal
from ibidem.serve.schemas import (
    DetectedLanguage,
    DetectRequest,
    FrontendSettings,
    Health,
    Language,
    LanguageName,
    LanguagePair,
    PlainAnswer,
    Problem,
    SuggestAnswer,
    SuggestRequest,
    TranslateAnswer,
    TranslateRequest,
)

if TYPE_CHECKING:
    from ibidem.serve.service import Service

SUGGESTED = "suggested"


def make_routes(service: Service) -> APIRouter:
    """The endpoints of LibreTranslate that a server of one language pair can have."""
    router = APIRouter(tags=["LibreTranslate"])
    desk = service.desk

    @router.post(
        "/translate",
        response_model=TranslateAnswer,
        responses=ERRORS,
        openapi_extra=described_body(TranslateRequest),
        summary="Translate a text, or a list of texts",
    )
    async def translate(request: Request) -> Response:
        """Lines are translated one by one and keep their breaks and indentation."""
        wanted = await service.read(request, TranslateRequest)
        return answer(await _translate(request, wanted))

    @router.get("/translate", response_model=PlainAnswer, responses=ERRORS, summary="Translate a short text")
    async def translate_plain(
        request: Request, q: str = "", text: str = "", source: str = "auto", target: str = ""
    ) -> Response:
        """For plugins that can only ask for an address: `q` or `text` is the text."""
        service.gate.admit(request)
        if not (q or text):
            raise Refusal(400, "Invalid request: missing q parameter")
        found = await _translate(request, TranslateRequest(q=q or text, source=source, target=target))
        translation = str(found.translatedText)
        return answer(PlainAnswer(translation=translation, translatedText=translation))

    async def _translate(request: Request, wanted: TranslateRequest) -> TranslateAnswer:
        service.check_languages(wanted.source, wanted.target)
        choice = Choice(service.choose_memories(wanted.memories), wanted.alternatives, wanted.explain)
        many = isinstance(wanted.q, list)
        texts = wanted.q if isinstance(wanted.q, list) else [wanted.q]
        translate = service.translate_markup if wanted.format == "html" else service.translate
        found = await translate(request, texts, choice)

        def listed(values: list[Any]) -> Any:
            return values if many else values[0]

        assumed = DetectedLanguage(confidence=_confidence(texts), language=desk.source)
        return TranslateAnswer(
            translatedText=listed([one.text for one in found]),
            alternatives=listed([one.alternatives for one in found]) if wanted.alternatives else None,
            detectedLanguage=listed([assumed] * len(texts)) if wanted.source in ("", "auto") else None,
            explanation=listed([one.citations for one in found]) if wanted.explain else None,
        )

    @router.post(
        "/detect",
        response_model=list[DetectedLanguage],
        responses=ERRORS,
        openapi_extra=described_body(DetectRequest),
        summary="Name the source language",
    )
    async def detect(request: Request) -> Response:
        """A server of one language pair takes every text for its source language, and does not look at it."""
        wanted = await service.read(request, DetectRequest)
        service.check_size([wanted.q])
        return answer_list([DetectedLanguage(confidence=_confidence([wanted.q]), language=desk.source)])

    @router.post(
        "/suggest",
        response_model=SuggestAnswer,
        responses=ERRORS,
        openapi_extra=described_body(SuggestRequest),
        summary="Suggest a better translation",
    )
    async def suggest(request: Request) -> Response:
        """It is learnt at once: the next translation uses it, whatever the memory had for the same sentence.

        Lines are learnt one by one where there are as many.
        """
        wanted = await service.read(request, SuggestRequest)
        service.check_languages(wanted.source, wanted.target)
        if service.learns_into is None:
            raise Refusal(403, "Suggestions are disabled on this server.")
        service.check_size([wanted.q, wanted.s])
        await service.learn(service.learns_into, pair_lines(wanted.q, wanted.s), SUGGESTED, replace=True)
        return answer(SuggestAnswer(success=True))

    @router.get("/languages", response_model=list[Language], summary="List the languages")
    async def languages() -> Response:
        """The source language with its target, and the target language with none."""
        return answer_list(
            [
                Language(code=desk.source, name=language_name(desk.source), targets=[desk.target]),
                Language(code=desk.target, name=language_name(desk.target), targets=[]),
            ]
        )

    @router.get(
        "/health",
        response_model=Health,
        responses={503: {"model": Health | Problem, "description": "The decoder is stuck, or has ended"}},
        summary="Whether the server answers and translates",
    )
    async def health() -> Response:
        """Needs no key and no room in the queue."""
        if not service.batcher.alive:
            raise Refusal(503, "The server cannot translate any more: start it again.")
        stalled = service.batcher.stalled
        if stalled > service.limits.stuck_seconds:
            return answer(Health(status="stuck", seconds_since_step=round(stalled, 1)), 503)
        return answer(Health(status="ok"))

    @router.get("/frontend/settings", response_model=FrontendSettings, summary="Settings for pages")
    async def frontend_settings() -> Response:
        """What LibreTranslate tells its page."""
        return answer(
            FrontendSettings(
                apiKeys=service.gate.required,
                charLimit=service.limits.characters,
                filesTranslation=False,
                frontendTimeout=500,
                keyRequired=service.gate.required,
                language=LanguagePair(
                    source=LanguageName(code=desk.source, name=language_name(desk.source)),
                    target=LanguageName(code=desk.target, name=language_name(desk.target)),
                ),
                suggestions=service.learns_into is not None,
                learnsInto=service.learns_into,
                supportedFilesFormat=[],
            )
        )

    return router


def _confidence(texts: list[str]) -> float:
    """Full where there are any letters: there is only one language to be sure of."""
    return 100.0 if any(character.isalpha() for text in texts for character in text) else 0.0
