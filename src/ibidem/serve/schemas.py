"""Schemas of requests and responses: LibreTranslate's, DeepL's, and those of the memories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, Field
from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

Item = TypeVar("Item")

# Without `fail_fast`, a list of invalid items has an error for each item, which is slow for a large body.
Items = Annotated[list[Item], Field(fail_fast=True)]

_MAX_NAMES = 1_000


def _as_list(value: Any) -> Any:
    """Convert a single string to a list, as forms and some clients send it."""
    return [value] if isinstance(value, str) else value


def _check_count(value: Any) -> Any:
    """Refuse a large object of weights, because `fail_fast` applies to lists only."""
    if isinstance(value, dict) and len(value) > _MAX_NAMES:
        raise ValueError(f"at most {_MAX_NAMES} memories")
    return value


Memories = Annotated[
    Items[str] | dict[str, float] | None,
    BeforeValidator(_as_list),
    BeforeValidator(_check_count),
    Field(
        description="Names of memories, each alone or as NAME:WEIGHT, or an object of weights by name; `none` or an "
        "empty list for the base model alone. Default: all memories with their default weights.",
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


class DetectedLanguage(BaseModel):
    """A language and its confidence from 0 to 100."""

    confidence: float
    language: str


class CitedPair(BaseModel):
    """A sentence pair of a memory, with the file and the line it was learnt from."""

    memory: str
    id: int
    source: str
    target: str
    origin: str
    location: int


class CitedNeighbour(BaseModel):
    """A retrieved entry of a memory.

    Attributes:
        pair: Index in `pairs`; the entry is target[start:end] of this pair.
        start: First character of the entry.
        end: End of the entry.
        text: The token of the entry.
        distance: Distance between the entry's key and the query.
        weight: Weight of the entry in the mixture.
        agrees: Whether the entry has the token of the translation.
    """

    pair: int
    start: int
    end: int
    text: str
    distance: float
    weight: float
    agrees: bool


class CitedToken(BaseModel):
    """A token of the translation.

    Its `probability` is base_weight * base_probability plus the `weight` of all neighbours with `agrees`.
    """

    text: str
    start: int
    end: int
    base_probability: float
    memory_probability: float | None = None
    probability: float
    base_weight: float
    memory_share: float
    neighbours: list[CitedNeighbour]


class CitedWord(BaseModel):
    """A word of the translation, translation[start:end], and the memory's share of its probability.

    Attributes:
        text: The word.
        start: First character of the word.
        end: End of the word.
        memory_share: Mean share of the memory over the tokens, from 0 to 1.
        agreeing: Number of neighbours with the token of the translation.
        retrieved: Number of all neighbours.
        summary: These figures in words.
        tokens: The tokens of the word.
    """

    text: str
    start: int
    end: int
    memory_share: float
    agreeing: int
    retrieved: int
    summary: str
    tokens: list[CitedToken]


class Citations(BaseModel):
    """The explanation of a translation; `pairs` are the pairs that its neighbours refer to."""

    translation: str
    words: list[CitedWord]
    pairs: list[CitedPair]


class TranslateResponse(BaseModel):
    """LibreTranslate's response; each field is a list if `q` is one."""

    translatedText: str | list[str]  # noqa: N815 - LibreTranslate's name
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None  # noqa: N815
    explanation: Citations | list[Citations] | None = None


class PlainResponse(BaseModel):
    """Response of GET: `translation` for plugins that send `text`, `translatedText` for those that send `q`."""

    translation: str
    translatedText: str  # noqa: N815


class DetectRequest(BaseModel):
    """A text for language detection."""

    q: str
    api_key: ApiKey = None


class Language(BaseModel):
    """A language and its target languages."""

    code: str
    name: str
    targets: list[str]


class LanguageName(BaseModel):
    """The code and the English name of a language."""

    code: str
    name: str


class LanguagePair(BaseModel):
    """The source and the target language of the server."""

    source: LanguageName
    target: LanguageName


class FrontendSettings(BaseModel):
    """LibreTranslate's settings for web pages; `learnsInto` is the memory that receives suggestions."""

    apiKeys: bool  # noqa: N815
    charLimit: int  # noqa: N815
    filesTranslation: bool  # noqa: N815
    frontendTimeout: int  # noqa: N815
    keyRequired: bool  # noqa: N815
    language: LanguagePair
    suggestions: bool
    learnsInto: str | None = None  # noqa: N815
    supportedFilesFormat: list[str]  # noqa: N815


class Health(BaseModel):
    """State of the decoder: `stuck` means that it is busy and exceeded `stuck_seconds` without a step."""

    status: Literal["ok", "stuck"]
    seconds_since_step: float | None = Field(
        default=None, description="If `stuck`: seconds since the last decoding step"
    )


class ErrorMessage(BaseModel):
    """An error message."""

    error: str


class DeeplErrorMessage(BaseModel):
    """An error message in DeepL's format."""

    message: str


class DeeplRequest(BaseModel):
    """DeepL's request for text; options without meaning here are ignored, unsupported ones are refused."""

    text: Annotated[Items[str], BeforeValidator(_as_list)]
    target_lang: str
    source_lang: str | None = None
    tag_handling: Literal["html", "xml"] | None = None
    translation_memory_id: str | None = Field(default=None, description="Name of the memory to use. Default: all")
    translation_memory_threshold: float | None = Field(
        default=None,
        ge=0,
        le=100,
        description="Ignored: the memory is searched for every token, not by sentence",
    )
    glossary_id: str | None = Field(default=None, description="Refused: glossaries are not supported")
    formality: str | None = Field(default=None, description="Refused if it is `more` or `less`")
    auth_key: ApiKey = None


class DeeplTranslation(BaseModel):
    """One translated text."""

    detected_source_language: str
    text: str
    billed_characters: int


class DeeplResponse(BaseModel):
    """Translations in the order of the texts."""

    translations: list[DeeplTranslation]


class DeeplLanguage(BaseModel):
    """A language as DeepL names it."""

    language: str
    name: str
    supports_formality: bool = False


class DeeplUsage(BaseModel):
    """Characters since the start of the server; there is no quota, so the limit is a large number."""

    character_count: int
    character_limit: int


class DeeplMemory(BaseModel):
    """A memory as DeepL lists it; its id is its name."""

    translation_memory_id: str
    name: str
    source_language: str
    target_languages: list[str]
    segment_count: int


class DeeplMemories(BaseModel):
    """All memories."""

    translation_memories: list[DeeplMemory]


class MemoryInfo(BaseModel):
    """A memory with its number of pairs and entries (stored tokens), its weight, and whether it can be changed."""

    name: str
    pairs: int
    entries: int
    weight: float
    learns: bool


class MemoryList(BaseModel):
    """All memories of the server."""

    memories: list[MemoryInfo]


class NewPair(BaseModel):
    """A sentence and its translation."""

    source: str
    target: str


class AddRequest(BaseModel):
    """Pairs to add, and their origin for citations."""

    pairs: Items[NewPair]
    origin: str = Field(default="by hand", max_length=200)
    replace: bool = Field(default=False, description="Remove all other pairs of exactly the same source")
    api_key: ApiKey = None


class ReplacedPair(BaseModel):
    """A pair that another one replaced."""

    id: int
    source: str
    target: str
    origin: str


class AddResponse(BaseModel):
    """The ids of new pairs and of pairs that the memory already had, and the number of pairs left out.

    A pair with an empty side, or one that is too long for the model, is left out.
    """

    added: list[int]
    known: list[int]
    left_out: int
    replaced: list[ReplacedPair]


class RemoveRequest(BaseModel):
    """Pairs to remove: by ids, by source and target, or by origin as citations show it."""

    ids: Items[int] | None = None
    source: str | None = None
    target: str | None = None
    origin: str | None = None
    api_key: ApiKey = None


class RemoveResponse(BaseModel):
    """The ids of the removed pairs; ids are never reused."""

    removed: list[int]


class SuggestRequest(BaseModel):
    """LibreTranslate's suggestion: `s` is a better translation of `q`."""

    q: str
    s: str
    source: str = "auto"
    target: str | None = None
    api_key: ApiKey = None


class SuggestResponse(BaseModel):
    """Whether the suggestion was added to a memory."""

    success: bool


class JobInfo(BaseModel):
    """An import; `share` is the fraction of the file that was learnt, if known."""

    id: str
    memory: str
    file: str
    state: Literal["running", "done", "failed", "cancelled"]
    share: float | None = None
    read: int
    added: int
    message: str


def json_response(content: BaseModel | Sequence[BaseModel], status: int = 200) -> JSONResponse:
    """Convert a model or a list of models to a response without fields that are None, as the APIs expect it."""
    if isinstance(content, BaseModel):
        return JSONResponse(content.model_dump(mode="json", exclude_none=True), status)
    return JSONResponse([item.model_dump(mode="json", exclude_none=True) for item in content], status)
