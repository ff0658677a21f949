"""OpenAI's API for chat completions, for assistants and translation tools that support no other.

The last message of the role `user` is the text, as a whole; other messages have no effect. The name of the model names
the languages.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations
from starlette.responses import Response, StreamingResponse

from ibidem.serve.http_error import HttpError
from ibidem.serve.openai_schemas import (
    ChatAnswer,
    ChatChoice,
    ChatCompletion,
    ChatRequest,
    ChatUsage,
    OpenaiError,
    OpenaiModel,
    OpenaiModels,
)
from ibidem.serve.request import RequestOptions
from ibidem.serve.schemas import ERRORS, describe_body, json_response

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.serve.engine import Pair
    from ibidem.serve.service import Service

_NAME = "ibidem"
_MODEL = re.compile(r"ibidem(?:-([A-Za-z]{2,3})-([A-Za-z]{2,3}))?")
_REFUSED = ("stop", "tools", "functions", "logit_bias", "logprobs", "audio")
# A response in parts has one part for each line.
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": OpenaiError, "description": error["description"]} for status, error in ERRORS.items()
} | {
    401: {"model": OpenaiError, "description": "The API key is missing or invalid"},
    404: {"model": OpenaiError, "description": "There is no such model"},
}


def make_routes(service: Service) -> APIRouter:
    """Create the routes for chat completions and models.

    Args:
        service: The service that the routes call.
    """
    router = APIRouter(tags=["OpenAI"], responses=_ERRORS)
    engine = service.engine
    started = int(time.time())

    @router.post(
        "/v1/chat/completions",
        response_model=ChatCompletion,
        openapi_extra=describe_body(ChatRequest, form=False),
        summary="Translate the last message",
    )
    async def complete(request: Request) -> Response:
        """The last message of the role `user` is the text; other messages, such as instructions, have no effect."""
        body = await service.read(request, ChatRequest)
        _refuse_unsupported(body)
        text = find_text(body)
        source, target = find_languages(body)
        pair = await service.choose_pair(source, target, [text])
        memories = service.choose_memories(request, body.memories, pair)
        glossary = service.glossaries.choose(body.glossary, pair)
        options = RequestOptions(memories, (body.n or 1) - 1, glossary=glossary, pair=pair)
        (found,) = await service.translate(request, [text], options)
        # A short text may have fewer different translations than the request says.
        translations = ([found.text, *found.alternatives] + [found.text] * (body.n or 1))[: body.n or 1]
        completion = ChatCompletion(
            id=f"chatcmpl-{secrets.token_hex(12)}",
            created=int(time.time()),
            model=_model_of(pair),
            choices=[
                ChatChoice(index=number, message=ChatAnswer(content=translation))
                for number, translation in enumerate(translations)
            ],
            usage=await service.run_in_thread(count_tokens, pair, text, translations),
            missing_shards=list(found.missing_shards) or None,
        )
        if not body.stream:
            return json_response(completion)
        with_usage = body.stream_options is not None and body.stream_options.include_usage
        return StreamingResponse(_write_parts(completion, with_usage=with_usage), media_type="text/event-stream")

    def count_tokens(pair: Pair, text: str, translations: list[str]) -> ChatUsage:
        tokens = engine.model_for(pair).tokens
        given = sum(map(len, tokens.encode_sources(text.splitlines())))
        made = sum(map(len, tokens.encode_targets([line for one in translations for line in one.splitlines()])))
        return ChatUsage(prompt_tokens=given, completion_tokens=made, total_tokens=given + made)

    @router.get("/v1/models", response_model=OpenaiModels, summary="List the pairs of languages as models")
    async def list_models(request: Request) -> Response:
        """Each pair of languages is a model, `ibidem-de-en` for German to English."""
        service.authenticator.check(request)
        return json_response(
            OpenaiModels(data=[OpenaiModel(id=_model_of(pair), created=started) for pair in engine.pairs])
        )

    @router.get("/v1/models/{name}", response_model=OpenaiModel, summary="Describe a pair of languages as a model")
    async def describe_model(request: Request, name: str) -> Response:
        """The time is the start of the server."""
        service.authenticator.check(request)
        if name not in [_model_of(pair) for pair in engine.pairs]:
            raise HttpError(404, f"There is no model {name[:40]}: GET /v1/models lists them.")
        return json_response(OpenaiModel(id=name, created=started))

    return router


def find_text(body: ChatRequest) -> str:
    """Return the text to translate: the last message of the role `user`.

    Args:
        body: The request.

    Raises:
        HttpError: 400, there is no such message, or it has a part that is no text.
    """
    message = next((one for one in reversed(body.messages) if one.role == "user"), None)
    if message is None or message.content is None:
        raise HttpError(400, "There is no message of the role user: its content is the text to translate.")
    if isinstance(message.content, str):
        return message.content
    if any(part.type != "text" for part in message.content):
        raise HttpError(400, "Only text can be translated: leave out images, audio and files.")
    return "".join(part.text or "" for part in message.content)


def find_languages(body: ChatRequest) -> tuple[str | None, str | None]:
    """Return the source and the target language of a request, None where it names none.

    Args:
        body: The request. Its fields `source_language` and `target_language` have precedence over the model's name.

    Raises:
        HttpError: 404, the name of the model is unknown.
    """
    named = _MODEL.fullmatch(body.model)
    if named is None:
        raise HttpError(404, f"There is no model {body.model[:40]}: GET /v1/models lists them.")
    return body.source_language or named[1], body.target_language or named[2]


def _refuse_unsupported(body: ChatRequest) -> None:
    """Refuse fields that would change the response and are not supported."""
    for name in _REFUSED:
        if getattr(body, name):
            raise HttpError(400, f"{name} is not supported: leave it out.")
    if body.response_format and body.response_format != {"type": "text"}:
        raise HttpError(400, "response_format must be text: a translation has no other format.")


def _model_of(pair: Pair) -> str:
    return f"{_NAME}-{pair[0]}-{pair[1]}"


def _write_parts(completion: ChatCompletion, *, with_usage: bool) -> Iterator[str]:
    """Yield a response as server-sent events: a part for each line of each translation."""
    common = {"id": completion.id, "object": "chat.completion.chunk", "created": completion.created}
    common["model"] = completion.model

    def event(choices: list[Any], usage: object = None) -> str:
        chunk = {**common, "choices": choices} | ({"usage": usage} if with_usage else {})
        return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n"

    for choice in completion.choices:
        first: dict[str, str] = {"role": "assistant"}
        for line in _LINES.findall(choice.message.content) or [""]:
            yield event([{"index": choice.index, "delta": {**first, "content": line}, "finish_reason": None}])
            first = {}
        yield event([{"index": choice.index, "delta": {}, "finish_reason": "stop"}])
    if with_usage:
        yield event([], completion.usage.model_dump())
    yield "data: [DONE]\n\n"
