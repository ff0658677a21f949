"""LibreTranslate's API, extended by the selection of memories and by explanations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations
from starlette.responses import Response  # noqa: TC002

from ibidem.serve.http_error import HttpError, ReadOnlyError
from ibidem.serve.language_detection import probability_of, shown_languages
from ibidem.serve.memory_writer import file_name
from ibidem.serve.request import (
    Body,
    RequestOptions,
    choose_splitting,
    language_name,
    parse_fields,
    read_query,
)
from ibidem.serve.schemas import (
    ERRORS,
    Citations,
    CitedNeighbour,
    CitedPair,
    CitedTerm,
    CitedToken,
    CitedWord,
    DetectedLanguage,
    DetectRequest,
    ErrorMessage,
    FrontendSettings,
    Health,
    Language,
    LanguageName,
    LanguagePair,
    MatchingPair,
    PlainResponse,
    SuggestRequest,
    SuggestResponse,
    TranslatedSegment,
    TranslateRequest,
    TranslateResponse,
    TranslationWarning,
    describe_body,
    json_response,
)
from ibidem.serve.text_translation import Suspicion, TextTranslation, pair_lines
from ibidem.serve.weblate_probe import is_weblate_probe, probe_warning
from ibidem.text import document_endings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ibidem.decode import Neighbour, Term, Word
    from ibidem.serve.service import Service


SUGGESTION_ORIGIN = "suggested"
# The parameters of GET /translate.
_PLAIN = (
    *("q", "text", "source", "target", "format", "api_key"),
    *("memories", "glossary", "split_sentences", "min_confidence"),
)


def make_routes(service: Service) -> APIRouter:
    """Create the routes of LibreTranslate.

    Args:
        service: The service that the routes call.
    """
    router = APIRouter(tags=["LibreTranslate"])
    engine = service.engine

    @router.post(
        "/translate",
        response_model=TranslateResponse,
        responses=ERRORS,
        openapi_extra=describe_body(TranslateRequest),
        summary="Translate a text, or a list of texts",
    )
    async def translate(request: Request) -> Response:
        """Sentences are translated separately; line breaks and other white space between them are kept."""
        body = await service.read(request, TranslateRequest)
        return json_response(await _translate(request, body))

    @router.get(
        "/translate",
        response_model=PlainResponse,
        responses=ERRORS,
        openapi_extra={"parameters": [{"name": name, "in": "query", "schema": {"type": "string"}} for name in _PLAIN]},
        summary="Translate a short text",
    )
    async def translate_plain(request: Request) -> Response:
        """For plugins that can only send GET requests: `q` or `text` is the text.

        The other parameters are fields of POST. Those for more than one translation are refused.
        """
        service.authenticator.check(request)
        fields = read_query(request).fields
        if not fields.get("q") and "text" in fields:
            fields["q"] = fields["text"]
        if not fields.get("q"):
            raise HttpError(400, "Invalid request: missing q parameter")
        body = parse_fields(TranslateRequest, Body(fields, typed=False))
        for name in ("alternatives", "explain", "matches"):
            if getattr(body, name):
                raise HttpError(400, f"Invalid request: {name} needs POST")
        if isinstance(body.q, list):
            raise HttpError(400, "Invalid request: several texts need POST")
        translation = str((await _translate(request, body)).translatedText)
        return json_response(PlainResponse(translation=translation, translatedText=translation))

    async def _translate(request: Request, body: TranslateRequest) -> TranslateResponse:
        texts = body.q if isinstance(body.q, list) else [body.q]
        if is_weblate_probe(texts, body.source, body.target, engine.pairs):
            warning = Suspicion(0, len(texts[0]), probe_warning(engine.pairs))
            return respond(body, [TextTranslation(texts[0], [], suspicions=[warning])], [])
        pair = await service.choose_pair(body.source, body.target, texts)
        memories = service.choose_memories(request, body.memories, pair)
        glossary = service.glossaries.choose(body.glossary, pair)
        with_vectors = body.matches > 0
        options = RequestOptions(memories, body.alternatives, body.explain, glossary, pair, with_vectors)
        splitting = choose_splitting(body.split_sentences, "html" if body.format == "html" else None)
        if body.format == "html":
            if body.matches or body.min_confidence:
                raise HttpError(400, "Invalid request: markup has no matches and no confidence; send plain text")
            found = await service.translate_markup(request, texts, options, splitting)
        else:
            found = await service.translate(
                request, texts, options, splitting, matches=body.matches, min_confidence=body.min_confidence
            )
        languages: list[DetectedLanguage] = []
        if body.source in ("", "auto"):
            detected = await service.run_in_thread(lambda: [service.detect([text]) for text in texts])
            languages = [
                DetectedLanguage(confidence=_percent(probability_of(pair[0], one)), language=pair[0])
                for one in detected
            ]
        return respond(body, found, languages)

    def respond(
        body: TranslateRequest, found: Sequence[TextTranslation], languages: Sequence[DetectedLanguage]
    ) -> TranslateResponse:
        warnings = [[TranslationWarning(**item._asdict()) for item in one.suspicions] for one in found]

        def like_request(values: Sequence[Any]) -> Any:
            """Return a list if the request has one, else its only item."""
            return values if isinstance(body.q, list) else values[0]

        return TranslateResponse(
            translatedText=like_request([one.text for one in found]),
            alternatives=like_request([one.alternatives for one in found]) if body.alternatives else None,
            detectedLanguage=like_request(languages) if languages else None,
            explanation=like_request([cite(one, engine.names_by_folder) for one in found]) if body.explain else None,
            warnings=like_request(warnings) if any(warnings) else None,
            confidence=like_request([round_confidence(one.confidence) for one in found]),
            segments=like_request([_convert_segments(one, shown=body.matches > 0) for one in found])
            if body.format == "text"
            else None,
            missing_shards=like_request([list(one.missing_shards) for one in found])
            if any(one.missing_shards for one in found)
            else None,
        )

    @router.post(
        "/detect",
        response_model=list[DetectedLanguage],
        responses=ERRORS,
        openapi_extra=describe_body(DetectRequest),
        summary="Detect the language of a text",
    )
    async def detect(request: Request) -> Response:
        """Up to three languages with their probabilities in percent, the best first; 0 for a text without letters."""
        body = await service.read(request, DetectRequest)
        service.check_size([body.q])
        found = shown_languages(await service.run_in_thread(service.detect, [body.q]))
        if not found:
            return json_response([DetectedLanguage(confidence=0.0, language=engine.source)])
        return json_response(
            [DetectedLanguage(confidence=_percent(one.probability), language=one.language) for one in found]
        )

    @router.post(
        "/suggest",
        response_model=SuggestResponse,
        responses=ERRORS,
        openapi_extra=describe_body(SuggestRequest),
        summary="Suggest a better translation",
    )
    async def suggest(request: Request) -> Response:
        """The next translation uses the suggestion, which replaces other pairs of the same source.

        If both texts have the same number of lines, each pair of lines is added separately.
        """
        body = await service.read(request, SuggestRequest, scope="write")
        pair = await service.choose_pair(body.source, body.target, [body.q])
        memory = service.suggestion_memory_for(pair)
        if memory is None:
            if service.settings.read_only:
                raise ReadOnlyError(service.settings.writer)
            raise HttpError(403, f"This server does not accept suggestions from {pair[0]} to {pair[1]}.")
        service.check_size([body.q, body.s])
        pairs = pair_lines(body.q, body.s)
        await service.learn(request, memory, pairs, SUGGESTION_ORIGIN, replace=True)
        return json_response(SuggestResponse(success=True))

    @router.get("/languages", response_model=list[Language], summary="List the languages")
    async def languages() -> Response:
        """All languages of the server; those that it does not translate from have no targets."""
        codes = dict.fromkeys(language for pair in engine.pairs for language in pair)
        return json_response(
            [
                Language(
                    code=code,
                    name=language_name(code),
                    targets=[target for source, target in engine.pairs if source == code],
                )
                for code in codes
            ]
        )

    @router.get(
        "/health",
        response_model=Health,
        responses={503: {"model": Health | ErrorMessage, "description": "The decoder is stuck or has ended"}},
        summary="State of the decoder",
    )
    async def health() -> Response:
        """This request needs no key and does not count against any limit."""
        if not service.batcher.alive:
            raise HttpError(503, "The decoding thread has ended: restart the server.")
        seconds = service.batcher.seconds_since_step
        if seconds > service.limits.stuck_seconds:
            return json_response(Health(status="stuck", seconds_since_step=round(seconds, 1)), 503)
        behind = service.seconds_behind
        stale = behind > service.limits.stale_seconds
        return json_response(Health(status="ok", seconds_behind=round(behind, 1) if stale else None))

    @router.get("/frontend/settings", response_model=FrontendSettings, summary="Settings for pages")
    async def frontend_settings() -> Response:
        """The fields that LibreTranslate sends to its page, `learnsInto` and `features`."""
        features = {
            "memories": service.memories.creates,
            "glossaries": service.glossaries.creates,
            "search": True,
        }
        return json_response(
            FrontendSettings(
                apiKeys=service.authenticator.required,
                charLimit=service.limits.characters,
                filesTranslation=True,
                frontendTimeout=500,
                keyRequired=service.authenticator.required,
                language=LanguagePair(
                    source=LanguageName(code=engine.source, name=language_name(engine.source)),
                    target=LanguageName(code=engine.target, name=language_name(engine.target)),
                ),
                suggestions=service.suggestion_memory is not None,
                learnsInto=service.suggestion_memory,
                supportedFilesFormat=document_endings(),
                features=[name for name, offered in features.items() if offered],
            )
        )

    return router


def round_confidence(confidence: float | None) -> float | None:
    """Round a confidence for a response.

    Args:
        confidence: A probability, or None.
    """
    return None if confidence is None else round(confidence, 4)


def _convert_segments(translation: TextTranslation, *, shown: bool) -> list[TranslatedSegment]:
    """Convert the sentences of a translation, with their matches if they are to be shown."""
    return [
        TranslatedSegment(
            start=segment.start,
            end=segment.end,
            source_start=segment.source_start,
            source_end=segment.source_end,
            confidence=round_confidence(segment.confidence),
            left_empty=True if segment.left_empty else None,
            matches=[
                MatchingPair(
                    memory=one.memory,
                    id=one.match.pair.id,
                    source=one.match.pair.source,
                    target=one.match.pair.target,
                    origin=file_name(one.match.pair.origin),
                    location=one.match.pair.location,
                    percent=one.match.percent,
                )
                for one in segment.matches
            ]
            if shown
            else None,
        )
        for segment in translation.segments
    ]


def _percent(probability: float) -> float:
    """Return a probability as LibreTranslate shows it: from 0 to 100, with one decimal."""
    return round(100 * probability, 1)


def cite(translation: TextTranslation, names: Mapping[str, str]) -> Citations:
    """Join the explanations of the pieces of a text.

    Args:
        translation: A translation with explanations.
        names: Names of the memories by folder.

    Returns:
        The explanation of the whole text; positions count from its start.
    """
    cache = PairCache(names)
    words = [
        _convert_word(word, start, cache)
        for piece, start in zip(translation.explanations, translation.starts, strict=True)
        for word in piece.words
    ]
    terms = [
        _convert_term(term, start)
        for line, start in zip(translation.explanations, translation.starts, strict=True)
        for term in line.terms
    ]
    return Citations(translation=translation.text, words=words, pairs=cache.pairs, terms=terms)


def _convert_term(term: Term, shift: int) -> CitedTerm:
    """Convert a term of a line that starts at the offset `shift`."""
    return CitedTerm(
        glossary=term.glossary,
        source=term.source,
        targets=list(term.targets),
        start=shift + term.start if term.met else None,
        end=shift + term.end if term.met else None,
        forced=term.forced,
        met=term.met,
    )


class PairCache:
    """Numbers the cited pairs and converts each of them once.

    Args:
        names: Names of the memories by folder.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._numbers: dict[tuple[str, int], int] = {}
        self.pairs: list[CitedPair] = []

    def number_of(self, neighbour: Neighbour) -> int:
        """Return the index in `pairs` of a neighbour's pair, which is added if it is new.

        Args:
            neighbour: A cited neighbour of any memory in `names`.
        """
        pair = neighbour.pair
        key = (pair.memory, pair.id)
        if key not in self._numbers:
            self._numbers[key] = len(self.pairs)
            self.pairs.append(
                CitedPair(
                    # The memory may have been renamed since its folder was read.
                    memory=self._names.get(pair.memory) or file_name(pair.memory),
                    id=pair.id,
                    source=pair.source,
                    target=pair.target,
                    origin=file_name(pair.origin),
                    location=pair.location,
                )
            )
        return self._numbers[key]


def _convert_word(word: Word, shift: int, cache: PairCache) -> CitedWord:
    """Convert a word of a line that starts at the offset `shift`."""
    tokens = [
        CitedToken(
            text=token.text,
            start=shift + token.start,
            end=shift + token.end,
            base_probability=token.base_probability,
            memory_probability=token.memory_probability,
            probability=token.probability,
            base_weight=token.base_weight,
            memory_share=token.memory_share,
            neighbours=[_convert_neighbour(neighbour, cache) for neighbour in token.neighbours],
        )
        for token in word.tokens
    ]
    return CitedWord(
        text=word.text,
        start=shift + word.start,
        end=shift + word.end,
        memory_share=word.memory_share,
        agreeing=word.agreeing,
        retrieved=word.retrieved,
        summary=word.summary,
        tokens=tokens,
    )


def _convert_neighbour(neighbour: Neighbour, cache: PairCache) -> CitedNeighbour:
    return CitedNeighbour(
        pair=cache.number_of(neighbour),
        start=neighbour.start,
        end=neighbour.end,
        text=neighbour.text,
        distance=neighbour.distance,
        weight=neighbour.weight,
        agrees=neighbour.agrees,
    )
