"""What requests and answers look like: LibreTranslate's, DeepL's, and our own."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, Field

Item = TypeVar("Item")

# Otherwise a list of wrong items has an error for each, and making these takes a second for a body of a megabyte.
Items = Annotated[list[Item], Field(fail_fast=True)]

_MOST_NAMED = 1_000


def _as_list(value: Any) -> Any:
    """A form, or a careless client, has one string and no list."""
    return [value] if isinstance(value, str) else value


def _check_number(value: Any) -> Any:
    """Refuse more weights than any server has memories: `fail_fast` is for lists only."""
    if isinstance(value, dict) and len(value) > _MOST_NAMED:
        raise ValueError(f"at most {_MOST_NAMED} memories")
    return value


Memories = Annotated[
    Items[str] | dict[str, float] | None,
    BeforeValidator(_as_list),
    BeforeValidator(_check_number),
    Field(
        description="Names of memories, each alone or as NAME:WEIGHT, or an object of weights by name; `none` or an "
        "empty list for the base model alone. All memories with their own weights where it is missing.",
    ),
]
ApiKey = Annotated[str | None, Field(description="API key, where the server asks for one")]


class TranslateRequest(BaseModel):
    """LibreTranslate's request, with `memories` and `explain` beside it."""

    q: str | Items[str] = Field(description="Text to translate, or a list of texts")
    source: str = Field(default="auto", description="Language of the text, or `auto`: this server knows one")
    target: str | None = Field(default=None, description="Language to translate to; this server knows one")
    format: Literal["text", "html"] = Field(default="text", description="`html` keeps tags as they are")
    alternatives: int = Field(default=0, ge=0, description="How many further translations to give")
    api_key: ApiKey = None
    memories: Memories = None
    explain: bool = Field(default=False, description="Say for every word who decided on it")


class DetectedLanguage(BaseModel):
    """A language and how sure that is, from 0 to 100."""

    confidence: float
    language: str


class CitedPair(BaseModel):
    """A sentence pair of a memory, and the file and place that it was learnt from."""

    memory: str
    id: int
    source: str
    target: str
    origin: str
    location: int


class CitedNeighbour(BaseModel):
    """An entry of a memory that voted: `pair` is its number in `pairs`, where it is target[start:end].

    vote: its weight in the mixture; agrees: whether it voted for the token that was chosen.
    """

    pair: int
    start: int
    end: int
    text: str
    distance: float
    vote: float
    agrees: bool


class CitedToken(BaseModel):
    """A token of the translation: probability = base_weight * base_probability + votes of those that agree."""

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
    """A word of the translation, translation[start:end], and how much of it the memory decided."""

    text: str
    start: int
    end: int
    memory_share: float
    agreeing: int
    consulted: int
    verdict: str
    tokens: list[CitedToken]


class Citations(BaseModel):
    """Who decided on every word of a translation; `pairs` are those that neighbours refer to."""

    translation: str
    words: list[CitedWord]
    pairs: list[CitedPair]


class TranslateAnswer(BaseModel):
    """LibreTranslate's answer; each field is a list where `q` was one."""

    translatedText: str | list[str]  # noqa: N815 - the name that LibreTranslate's clients read
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None  # noqa: N815
    explanation: Citations | list[Citations] | None = None


class PlainAnswer(BaseModel):
    """What plugins read that ask with `text` in the address; `translatedText` for those that ask with `q`."""

    translation: str
    translatedText: str  # noqa: N815


class DetectRequest(BaseModel):
    """A text whose language is asked for."""

    q: str
    api_key: ApiKey = None


class Language(BaseModel):
    """A language, and those it can be translated to."""

    code: str
    name: str
    targets: list[str]


class LanguageName(BaseModel):
    """A language's code and English name."""

    code: str
    name: str


class LanguagePair(BaseModel):
    """The languages that the page begins with."""

    source: LanguageName
    target: LanguageName


class FrontendSettings(BaseModel):
    """What LibreTranslate tells its page, and others read; learnsInto: the memory that takes suggestions."""

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
    """`ok`, or `stuck` while the decoder is at work and has taken no step for longer than it should."""

    status: Literal["ok", "stuck"]
    seconds_since_step: float | None = Field(
        default=None, description="Of `stuck`: how long ago the decoder took its last step"
    )


class Problem(BaseModel):
    """What was wrong."""

    error: str


class DeeplProblem(BaseModel):
    """What was wrong, as DeepL's clients read it."""

    message: str


class DeeplRequest(BaseModel):
    """DeepL's request for text; what this server has no use for is ignored, what it cannot do is refused."""

    text: Annotated[Items[str], BeforeValidator(_as_list)]
    target_lang: str
    source_lang: str | None = None
    tag_handling: Literal["html", "xml"] | None = None
    translation_memory_id: str | None = Field(default=None, description="Name of the memory to use; else all")
    translation_memory_threshold: float | None = Field(
        default=None,
        ge=0,
        le=100,
        description="Taken and of no effect: the memory is asked word by word, not by sentence",
    )
    glossary_id: str | None = Field(default=None, description="Refused: there are no glossaries here, only memories")
    formality: str | None = Field(default=None, description="Refused unless it is `default` or a preference")
    auth_key: ApiKey = None


class DeeplTranslation(BaseModel):
    """One translated text."""

    detected_source_language: str
    text: str
    billed_characters: int


class DeeplAnswer(BaseModel):
    """Translations in the order of the texts."""

    translations: list[DeeplTranslation]


class DeeplLanguage(BaseModel):
    """A language as DeepL names it."""

    language: str
    name: str
    supports_formality: bool = False


class DeeplUsage(BaseModel):
    """Characters since the server was started; there is no quota, so the limit is only a large number."""

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
    """A memory that is mounted: pairs, entries (tokens that can be found), its weight, whether it can learn."""

    name: str
    pairs: int
    entries: int
    weight: float
    learns: bool


class MemoryList(BaseModel):
    """All memories that are mounted."""

    memories: list[MemoryInfo]


class NewPair(BaseModel):
    """A sentence and its translation."""

    source: str
    target: str


class AddRequest(BaseModel):
    """Pairs to learn, and where they come from, to be cited."""

    pairs: Items[NewPair]
    origin: str = Field(default="by hand", max_length=200)
    replace: bool = Field(default=False, description="Remove all other pairs of the same source, letter for letter")
    api_key: ApiKey = None


class ReplacedPair(BaseModel):
    """A pair that was removed because another took its place."""

    id: int
    source: str
    target: str
    origin: str


class AddAnswer(BaseModel):
    """The ids of pairs that are new, and of those that the memory had already; how many were left out.

    A pair is left out that is empty on a side or longer than the model reads.
    """

    added: list[int]
    known: list[int]
    left_out: int
    replaced: list[ReplacedPair]


class RemoveRequest(BaseModel):
    """What to remove: ids, or one pair by both texts, or all pairs of an origin as citations name it."""

    ids: Items[int] | None = None
    source: str | None = None
    target: str | None = None
    origin: str | None = None
    api_key: ApiKey = None


class RemoveAnswer(BaseModel):
    """The ids of the pairs that were removed; they are never used again."""

    removed: list[int]


class SuggestRequest(BaseModel):
    """LibreTranslate's suggestion: `s` is a better translation of `q`."""

    q: str
    s: str
    source: str = "auto"
    target: str | None = None
    api_key: ApiKey = None


class SuggestAnswer(BaseModel):
    """Whether the suggestion was learnt."""

    success: bool


class JobInfo(BaseModel):
    """An import; share: how much of the file was learnt, where that can be known."""

    id: str
    memory: str
    file: str
    state: Literal["running", "done", "failed", "cancelled"]
    share: float | None = None
    read: int
    added: int
    message: str
