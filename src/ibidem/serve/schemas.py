"""Schemas of the requests and responses, and the OpenAPI document that describes them.

Bodies are read as JSON or as a form, which FastAPI does not support, so their descriptions are added here.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from fastapi import APIRouter
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, BeforeValidator, Field
from starlette.responses import JSONResponse, Response

import ibidem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastapi import FastAPI


Item = TypeVar("Item")

# Without `fail_fast`, a list of invalid items has an error for each item, which is slow for a large body.
Items = Annotated[list[Item], Field(fail_fast=True)]

_MAX_NAMES = 1_000


def as_list(value: Any) -> Any:
    """Convert a single string to a list, as forms and some clients send it.

    Args:
        value: What the client sent.
    """
    return [value] if isinstance(value, str) else value


def _as_string(value: Any) -> Any:
    """Convert a number or a truth value to a string, as some clients send it."""
    return str(int(value)) if isinstance(value, int) else value


def _check_count(value: Any) -> Any:
    """Refuse a large object of weights, because `fail_fast` applies to lists only."""
    if isinstance(value, dict) and len(value) > _MAX_NAMES:
        raise ValueError(f"at most {_MAX_NAMES} memories")
    return value


Memories = Annotated[
    Items[str] | dict[str, float] | None,
    BeforeValidator(as_list),
    BeforeValidator(_check_count),
    Field(
        description="Names of memories, each alone or as NAME:WEIGHT, or an object of weights by name; `none` or an "
        "empty list for the base model alone. Default: all memories with their default weights.",
    ),
]
SplitSentences = Annotated[
    Literal["0", "1", "nonewlines"] | None,
    BeforeValidator(_as_string),
    Field(
        description="`1` splits each text at line breaks and ends of sentences, `nonewlines` at ends of sentences "
        "only, `0` not at all: line breaks count as spaces. Default: `1`, or with tags in HTML `nonewlines`."
    ),
]
ApiKey = Annotated[str | None, Field(description="API key, if the server requires one")]


class TranslateRequest(BaseModel):
    """LibreTranslate's request, extended by `memories` and `explain`."""

    q: str | Items[str] = Field(description="Text to translate, or a list of texts")
    source: str = Field(default="auto", description="Source language of the server, or `auto`")
    target: str | None = Field(default=None, description="Target language of the server")
    format: Literal["text", "html"] = Field(default="text", description="`html` keeps tags as they are")
    alternatives: int = Field(default=0, ge=0, description="Number of further translations")
    api_key: ApiKey = None
    memories: Memories = None
    explain: bool = Field(default=False, description="Return the neighbours and probabilities of every word")
    split_sentences: SplitSentences = None
    glossary: str | None = Field(
        default=None, description="Id or name of the glossary to use, or `none`. Default: that of the server, if any"
    )
    matches: int = Field(
        default=0, ge=0, le=20, description="Return this many stored pairs whose sources are like each sentence"
    )
    min_confidence: float = Field(
        default=0.0, ge=0, le=1, description="Leave sentences empty whose confidence is lower than this"
    )


class DetectedLanguage(BaseModel):
    """A language and its confidence from 0 to 100."""

    confidence: float = Field(description="From 0 to 100")
    language: str = Field(description="Code of the language")


class CitedPair(BaseModel):
    """A sentence pair of a memory, with the file and the line it was learnt from."""

    memory: str = Field(description="Name of the memory")
    id: int = Field(description="Id of the pair in the memory")
    source: str = Field(description="Source sentence")
    target: str = Field(description="Target sentence")
    origin: str = Field(description="File that the pair was learnt from, without its folder")
    location: int = Field(description="Line in this file, or number of the entry; 0 if unknown")


class CitedNeighbour(BaseModel):
    """A retrieved entry of a memory."""

    pair: int = Field(description="Index in `pairs`; the entry is target[start:end] of this pair")
    start: int = Field(description="First character of the entry")
    end: int = Field(description="End of the entry")
    text: str = Field(description="The token of the entry")
    distance: float = Field(description="Distance between the entry's key and the query")
    weight: float = Field(description="Weight of the entry in the mixture")
    agrees: bool = Field(description="Whether the entry has the token of the translation")


class CitedToken(BaseModel):
    """A token of the translation.

    Its `probability` is base_weight * base_probability plus the `weight` of all neighbours with `agrees`.
    """

    text: str = Field(description="The token")
    start: int = Field(description="First character of the token in the translation")
    end: int = Field(description="End of the token")
    base_probability: float = Field(description="Probability of the token by the base model")
    memory_probability: float | None = Field(
        default=None, description="Probability of the token by the memory alone; missing if no neighbour has a weight"
    )
    probability: float = Field(description="Probability of the token by the mixture")
    base_weight: float = Field(description="Weight of the base model in the mixture, from 0 to 1")
    memory_share: float = Field(description="Memory's share of the probability, from 0 to 1")
    neighbours: list[CitedNeighbour] = Field(description="The retrieved entries")


class CitedWord(BaseModel):
    """A word of the translation, translation[start:end], and the memory's share of its probability."""

    text: str = Field(description="The word")
    start: int = Field(description="First character of the word")
    end: int = Field(description="End of the word")
    memory_share: float = Field(description="Mean share of the memory over the tokens, from 0 to 1")
    agreeing: int = Field(description="Number of neighbours with the token of the translation")
    retrieved: int = Field(description="Number of all neighbours")
    summary: str = Field(description="Summary of these figures in words")
    tokens: list[CitedToken] = Field(description="The tokens of the word")


class CitedTerm(BaseModel):
    """A term of the glossary that the source has."""

    glossary: str = Field(description="Name of the glossary")
    source: str = Field(description="The term in the glossary")
    targets: list[str] = Field(description="Its translations in the glossary")
    start: int | None = Field(default=None, description="First character of its translation; missing if not met")
    end: int | None = Field(default=None, description="End of its translation; missing if not met")
    forced: bool = Field(description="Whether the translation without the glossary lacks the term")
    met: bool = Field(description="Whether the translation has the term")


class Citations(BaseModel):
    """The explanation of a translation; `pairs` are the pairs that its neighbours refer to."""

    translation: str = Field(description="The translated text")
    words: list[CitedWord] = Field(description="The words in order")
    pairs: list[CitedPair] = Field(description="The pairs that the neighbours refer to, each once")
    terms: list[CitedTerm] = Field(default=[], description="The terms of the glossary that the source has")


class TranslationWarning(BaseModel):
    """A suspicious sentence of a translation, translation[start:end]: too short, repeated, or a copy of the source."""

    start: int = Field(description="First character of the sentence in the translation")
    end: int = Field(description="End of the sentence")
    message: str = Field(description="Why the sentence is suspicious")


class MatchingPair(CitedPair):
    """A sentence pair of a memory whose source is like a sentence."""

    percent: int = Field(description="Similarity of the sources from 50 to 100; 100 for an equal one only")


class TranslatedSegment(BaseModel):
    """A sentence of a text, text[source_start:source_end], and its translation, translation[start:end]."""

    start: int = Field(description="First character of the sentence in the translation")
    end: int = Field(description="End of the sentence in the translation")
    source_start: int = Field(description="First character of the sentence in the text")
    source_end: int = Field(description="End of the sentence in the text")
    confidence: float | None = Field(
        default=None, description="Probability that the translation needs no edit; missing if unknown"
    )
    left_empty: bool | None = Field(
        default=None, description="True if the translation is left out, as its confidence is too low"
    )
    matches: list[MatchingPair] | None = Field(
        default=None, description="Stored pairs whose sources are like the sentence, best first, if requested"
    )


class TranslateResponse(BaseModel):
    """LibreTranslate's response; each field is a list if `q` is one."""

    translatedText: str | list[str] = Field(description="Translation of each text")  # noqa: N815 - LibreTranslate's name
    alternatives: list[str] | list[list[str]] | None = Field(
        default=None, description="Further translations of each text, if requested"
    )
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = Field(  # noqa: N815
        default=None, description="Source language of each text, if the source was `auto`"
    )
    explanation: Citations | list[Citations] | None = Field(
        default=None, description="Explanation of each text, if requested"
    )
    warnings: list[TranslationWarning] | list[list[TranslationWarning]] | None = Field(
        default=None, description="Suspicious sentences of each text; missing if there are none"
    )
    confidence: float | list[float | None] | None = Field(
        default=None,
        description="Probability that each text needs no edit: the product over its sentences; missing if unknown",
    )
    segments: list[TranslatedSegment] | list[list[TranslatedSegment]] | None = Field(
        default=None, description="The sentences of each text with their confidence; missing for HTML"
    )
    missing_shards: list[int] | list[list[int]] | None = Field(
        default=None,
        description="Shards of a memory that did not answer in time, so that each text was translated without their "
        "entries; missing if all answered",
    )


class PlainResponse(BaseModel):
    """Response of GET: `translation` for plugins that send `text`, `translatedText` for those that send `q`."""

    translation: str = Field(description="The translation")
    translatedText: str = Field(description="The same translation")  # noqa: N815


class DetectRequest(BaseModel):
    """A text for language detection."""

    q: str = Field(description="The text")
    api_key: ApiKey = None


class Language(BaseModel):
    """A language and its target languages."""

    code: str = Field(description="Two-letter code")
    name: str = Field(description="English name")
    targets: list[str] = Field(description="Codes of the languages that it is translated into")


class LanguageName(BaseModel):
    """The code and the English name of a language."""

    code: str = Field(description="Two-letter code")
    name: str = Field(description="English name")


class LanguagePair(BaseModel):
    """The source and the target language of the server."""

    source: LanguageName = Field(description="Source language")
    target: LanguageName = Field(description="Target language")


class FrontendSettings(BaseModel):
    """LibreTranslate's settings for web pages; `learnsInto` is the memory that receives suggestions."""

    apiKeys: bool = Field(description="Whether requests need an API key")  # noqa: N815
    charLimit: int = Field(description="Most characters of a request")  # noqa: N815
    filesTranslation: bool = Field(description="Always true: documents are translated")  # noqa: N815
    frontendTimeout: int = Field(description="Milliseconds that a page waits after typing before it translates")  # noqa: N815
    keyRequired: bool = Field(description="Whether requests need an API key")  # noqa: N815
    language: LanguagePair = Field(description="Languages of the server")
    suggestions: bool = Field(description="Whether suggestions are accepted")
    learnsInto: str | None = Field(  # noqa: N815
        default=None, description="Name of the memory that receives suggestions; missing if there is none"
    )
    supportedFilesFormat: list[str] = Field(description="Endings of the documents that are translated")  # noqa: N815
    features: list[str] = Field(
        default=[],
        description="What the server can do: `memories` and `glossaries`: clients create them; `search`: in memories",
    )


class Health(BaseModel):
    """State of the decoder: `stuck` means that it is busy and exceeded `stuck_seconds` without a step."""

    status: Literal["ok", "stuck"] = Field(
        description="`stuck`: the decoder is busy and exceeded `stuck_seconds` without a step"
    )
    seconds_since_step: float | None = Field(
        default=None, description="If `stuck`: seconds since the last decoding step"
    )
    seconds_behind: float | None = Field(
        default=None, description="If a read-only server is stale: seconds since its memories were up to date"
    )


class Readiness(BaseModel):
    """Whether a server should get requests: `loading` and `stuck` mean no, `stale` depends on `max_stale_seconds`."""

    status: Literal["ready", "loading", "stale", "stuck"] = Field(
        description="`loading`: model or memories are being loaded; `stale`: a read-only server exceeded "
        "`stale_seconds` since its memories were up to date; `stuck`: as in `/health`"
    )
    seconds_since_step: float | None = Field(default=None, description="If `stuck`: seconds since the last step")
    seconds_behind: float | None = Field(default=None, description="If `stale`: seconds since it was up to date")


class ErrorMessage(BaseModel):
    """An error message."""

    error: str = Field(description="What happened and what to do")


class DeeplErrorMessage(BaseModel):
    """An error message in DeepL's format."""

    message: str = Field(description="What happened and what to do")


class MemoryInfo(BaseModel):
    """A memory with its size, its weight, and what the key of the request may do with it."""

    name: str = Field(description="Name of the folder")
    pairs: int = Field(description="Number of sentence pairs")
    entries: int = Field(description="Number of entries (stored tokens)")
    weight: float = Field(description="Default weight")
    learns: bool = Field(description="Whether pairs can be added and removed")
    rights: Literal["read", "write", "manage"] | None = Field(
        default=None, description="What the key of the request may do; `manage`: also rename and delete"
    )
    others: Literal["none", "read", "write"] | None = Field(
        default=None, description="What keys other than that of the creator may do; missing for an operator's memory"
    )
    source: str | None = Field(default=None, description="Source language")
    target: str | None = Field(default=None, description="Target language")


class MemoryList(BaseModel):
    """All memories of the server."""

    memories: list[MemoryInfo] = Field(description="The memories in the order of the server")
    creates: bool = Field(description="Whether the key of the request can create memories")


class FoundPair(BaseModel):
    """A sentence pair that a search found."""

    id: int = Field(description="Id of the pair in the memory")
    source: str = Field(description="Source sentence")
    target: str = Field(description="Target sentence")
    origin: str = Field(description="File that the pair was learnt from, without its folder")
    location: int = Field(description="Line in this file, or number of the entry; 0 if unknown")


class SearchResponse(BaseModel):
    """The pairs that a search found, the newest first."""

    pairs: list[FoundPair] = Field(description="The requested pairs")
    total: int = Field(description="Number of all pairs that match, as far as they were searched")
    complete: bool = Field(description="Whether all pairs were searched within the time limit")


class NewPair(BaseModel):
    """A sentence and its translation."""

    source: str = Field(description="Source sentence")
    target: str = Field(description="Target sentence")


class AddRequest(BaseModel):
    """Pairs to add, and their origin for citations."""

    pairs: Items[NewPair] = Field(description="Pairs to add")
    origin: str = Field(default="by hand", max_length=200, description="Where the pairs come from, for citations")
    replace: bool = Field(default=False, description="Remove all other pairs of exactly the same source")
    api_key: ApiKey = None


class ReplacedPair(BaseModel):
    """A pair that another one replaced."""

    id: int = Field(description="Id of the removed pair")
    source: str = Field(description="Its source")
    target: str = Field(description="Its target")
    origin: str = Field(description="File that it was learnt from, without its folder")


class AddResponse(BaseModel):
    """The ids of new pairs and of pairs that the memory already had, and the number of pairs left out.

    A pair with an empty side, or one that is too long for the model, is left out.
    """

    added: list[int] = Field(description="Ids of new pairs")
    known: list[int] = Field(description="Ids of pairs that the memory already had")
    left_out: int = Field(description="Number of pairs with an empty side or too long for the model")
    replaced: list[ReplacedPair] = Field(description="Pairs that were removed, if `replace` is set")


class RemoveRequest(BaseModel):
    """Pairs to remove: by ids, by source and target, or by origin as citations show it."""

    ids: Items[int] | None = Field(default=None, description="Ids of the pairs")
    source: str | None = Field(default=None, description="Source of the pairs, together with `target`")
    target: str | None = Field(default=None, description="Target of the pairs, together with `source`")
    origin: str | None = Field(default=None, description="Origin of the pairs, as citations show it")
    api_key: ApiKey = None


class RemoveResponse(BaseModel):
    """The ids of the removed pairs; ids are never reused."""

    removed: list[int] = Field(description="Ids of the removed pairs")


class SuggestRequest(BaseModel):
    """LibreTranslate's suggestion: `s` is a better translation of `q`."""

    q: str = Field(description="The source text")
    s: str = Field(description="A better translation of it")
    source: str = Field(default="auto", description="Source language of the server, or `auto`")
    target: str | None = Field(default=None, description="Target language of the server")
    api_key: ApiKey = None


class SuggestResponse(BaseModel):
    """Whether the suggestion was added to a memory."""

    success: bool = Field(description="Always true; a failure is an error")


class JobInfo(BaseModel):
    """An import; `share` is the fraction of the file that was learnt, if known."""

    id: str = Field(description="Id of the import, for its path")
    memory: str = Field(description="Name of the memory")
    file: str = Field(description="Name of the file")
    state: Literal["running", "done", "failed", "cancelled"] = Field(description="State of the import")
    share: float | None = Field(
        default=None, description="Fraction of the file that was learnt, from 0 to 1; missing if unknown"
    )
    read: int = Field(description="Pairs that were read")
    added: int = Field(description="Pairs that were added")
    message: str = Field(description="Result in words; empty while the import is running")
    refused: bool = Field(description="Whether nothing was learnt because of a defect; `bad_pairs` can be given then")


class DocumentInfo(BaseModel):
    """A document; `share` grows from 0 to 1 while it is translated."""

    id: str = Field(description="Id of the document, for its path")
    file: str = Field(description="Name of the file")
    state: Literal["queued", "running", "done", "failed", "cancelled"] = Field(description="State of the translation")
    share: float = Field(description="Fraction that is translated, from 0 to 1")
    characters: int = Field(description="Characters of all texts; 0 until the file is read")
    message: str = Field(description="Result in words; empty while the document is translated")
    failures: list[dict[str, Any]] = Field(
        description="Texts without a translation, such as those that lost a placeholder, with the reason"
    )
    confidence: float | None = Field(
        default=None, description="Mean confidence of the translated texts; missing if unknown"
    )


class TranslateFileRequest(BaseModel):
    """LibreTranslate's form with a file, extended by `memories`."""

    source: str = Field(default="auto", description="Source language of the server, or `auto`")
    target: str | None = Field(default=None, description="Target language of the server")
    api_key: ApiKey = None
    memories: Memories = None


class TranslateFileResponse(BaseModel):
    """The address of a translated file."""

    translatedFileUrl: str = Field(description="Address of the translation, which is removed after a time")  # noqa: N815


def json_response(content: BaseModel | Sequence[BaseModel], status: int = 200) -> JSONResponse:
    """Convert models to a response without fields that are None, as the APIs expect it.

    Args:
        content: A model or a list of models.
        status: HTTP status code.
    """
    if isinstance(content, BaseModel):
        return JSONResponse(content.model_dump(mode="json", exclude_none=True), status)
    return JSONResponse([item.model_dump(mode="json", exclude_none=True) for item in content], status)


_REFERENCE = "#/components/schemas/{model}"
# The schemas of all described bodies by name; FastAPI does not collect them.
_BODIES: dict[str, type[BaseModel]] = {}
_STATUSES = {
    400: "The request is invalid",
    403: "The API key is missing or invalid, or the page is of another origin",
    408: "The body took too long to arrive",
    413: "The body is too large",
    429: "Too many requests; `Retry-After` gives the seconds to wait",
    503: "The server is busy, and `Retry-After` gives the seconds to wait; or the translation took too long",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorMessage, "description": text} for status, text in _STATUSES.items()
}
DEEPL_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": DeeplErrorMessage, "description": text} for status, text in _STATUSES.items()
}


def describe_body(model: type[BaseModel], *, form: bool = True) -> dict[str, Any]:
    """Return FastAPI's `openapi_extra` for a body.

    Args:
        model: Schema of the body.
        form: Whether the body may be a form as well as JSON.

    Returns:
        A dictionary with the key `requestBody`.
    """
    _BODIES[model.__name__] = model
    schema = {"schema": {"$ref": _REFERENCE.format(model=model.__name__)}}
    kinds = ["application/json", *(["application/x-www-form-urlencoded", "multipart/form-data"] if form else [])]
    return {"requestBody": {"required": True, "content": dict.fromkeys(kinds, schema)}}


def describe_file(field: str | None = None, model: type[BaseModel] | None = None) -> dict[str, Any]:
    """Return FastAPI's `openapi_extra` for a body with a file.

    Args:
        field: Name of the file's field in a form; None if the body is the file itself.
        model: Schema of the other fields of the form.

    Returns:
        A dictionary with the key `requestBody`.
    """
    binary: dict[str, Any] = {"type": "string", "format": "binary"}
    if field is None or model is None:
        return {"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": binary}}}}
    fields = model.model_json_schema()
    fields["properties"] = {field: binary, **fields["properties"]}
    fields["required"] = [field, *fields.get("required", [])]
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": fields}}}}


def make_routes(app: FastAPI) -> APIRouter:
    """Create the route `/openapi.json`; the document is built at the first request.

    Args:
        app: The application, with all other routes.
    """
    router = APIRouter(include_in_schema=False)

    @cache
    def document() -> bytes:
        return json.dumps(make_document(app), ensure_ascii=False, separators=(",", ":")).encode("utf-8")

    @router.get("/openapi.json")
    async def openapi() -> Response:
        return Response(document(), media_type="application/json")

    return router


def make_document(app: FastAPI) -> dict[str, Any]:
    """Build the document of an application, without FastAPI's status 422, which the server never sends.

    Args:
        app: The application, with all its routes.

    Returns:
        The OpenAPI document as a JSON object.
    """
    document = get_openapi(title="ibidem", version=ibidem.__version__, description=ibidem.__doc__, routes=app.routes)
    parts = document.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        parts.pop(name, None)
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            content = operation.get("requestBody", {}).get("content", {})
            for body in content.values():
                name = body["schema"].get("$ref", "").rpartition("/")[2]
                if name and name not in parts:
                    schema = _BODIES[name].model_json_schema(ref_template=_REFERENCE)
                    parts.update(schema.pop("$defs", {}))
                    parts[name] = schema
    return document
