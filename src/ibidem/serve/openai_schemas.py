"""The JSON of OpenAI's API for chat completions and models, as far as a translation needs it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from ibidem.serve.schemas import Items, Memories  # noqa: TC001 - pydantic reads the annotations


class ChatPart(BaseModel):
    """A part of a message; only text is supported."""

    type: str = Field(description="`text`; other kinds are refused")
    text: str | None = Field(default=None, description="The text")


class ChatMessage(BaseModel):
    """A message. The last one of the role `user` is the text to translate."""

    role: str = Field(description="`user` for the text; messages of other roles have no effect")
    content: str | Items[ChatPart] | None = Field(default=None, description="The text, or parts of it")


class StreamOptions(BaseModel):
    """Options of a response in parts."""

    include_usage: bool = Field(default=False, description="Send a last part with the numbers of tokens")


class ChatRequest(BaseModel):
    """OpenAI's request; `source_language`, `target_language`, `memories` and `glossary` are further fields.

    `temperature`, `max_tokens` and all other fields that are not listed have no effect.
    """

    model: str = Field(description="`ibidem-de-en` for German to English, or `ibidem`")
    messages: Items[ChatMessage] = Field(min_length=1, description="The last message of the role `user` is translated")
    n: int | None = Field(default=None, ge=1, description="Number of translations")
    stream: bool | None = Field(default=None, description="Send the response in parts")
    stream_options: StreamOptions | None = Field(default=None, description="Options of a response in parts")
    source_language: str | None = Field(default=None, description="Source language, if the model does not name it")
    target_language: str | None = Field(default=None, description="Target language, if the model does not name it")
    memories: Memories = None
    glossary: str | None = Field(default=None, description="Id or name of the glossary to use, or `none`")
    stop: Any = Field(default=None, description="Refused unless it is empty")
    tools: Any = Field(default=None, description="Refused unless it is empty")
    functions: Any = Field(default=None, description="Refused unless it is empty")
    logit_bias: Any = Field(default=None, description="Refused unless it is empty")
    logprobs: bool | None = Field(default=None, description="Refused if it is true")
    audio: Any = Field(default=None, description="Refused unless it is empty")
    response_format: Any = Field(default=None, description="Refused unless its type is `text`")


class ChatAnswer(BaseModel):
    """The translation as a message."""

    role: Literal["assistant"] = Field(default="assistant", description="Always `assistant`")
    content: str = Field(description="The translation")
    refusal: None = Field(default=None, description="Always null")


class ChatChoice(BaseModel):
    """One translation."""

    index: int = Field(description="Number of the translation, the best first")
    message: ChatAnswer = Field(description="The translation")
    finish_reason: Literal["stop"] = Field(default="stop", description="Always `stop`: a translation is never cut")


class ChatUsage(BaseModel):
    """Numbers of tokens of the translation model."""

    prompt_tokens: int = Field(description="Tokens of the text")
    completion_tokens: int = Field(description="Tokens of all translations")
    total_tokens: int = Field(description="The sum")


class ChatCompletion(BaseModel):
    """OpenAI's response."""

    id: str = Field(description="A random id")
    object: Literal["chat.completion"] = Field(default="chat.completion", description="Kind of the response")
    created: int = Field(description="Time in seconds since 1970")
    model: str = Field(description="The model with the languages of the translation")
    choices: list[ChatChoice] = Field(description="The translations")
    usage: ChatUsage = Field(description="Numbers of tokens")
    missing_shards: list[int] | None = Field(
        default=None, description="Shards of a memory that did not answer in time; missing if all answered"
    )


class OpenaiModel(BaseModel):
    """A pair of languages as a model."""

    id: str = Field(description="`ibidem-` and the two languages")
    object: Literal["model"] = Field(default="model", description="Kind of the response")
    created: int = Field(description="Time at which the server started, in seconds since 1970")
    owned_by: str = Field(default="ibidem", description="Always `ibidem`")


class OpenaiModels(BaseModel):
    """All pairs of languages as models."""

    object: Literal["list"] = Field(default="list", description="Kind of the response")
    data: list[OpenaiModel] = Field(description="The models, that of the default pair first")


class OpenaiErrorDetails(BaseModel):
    """An error in OpenAI's format."""

    message: str = Field(description="What happened and what to do")
    type: str = Field(description="`invalid_request_error` or `server_error`")
    param: str | None = Field(default=None, description="Always null")
    code: str | None = Field(default=None, description="`invalid_api_key`, or null")


class OpenaiError(BaseModel):
    """An error in OpenAI's format."""

    error: OpenaiErrorDetails = Field(description="The error")
