"""The JSON of DeepL's API: requests and responses for text, memories, glossaries and documents."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field

from ibidem.serve.schemas import ApiKey, Items, SplitSentences, as_list


def _as_flag(value: Any) -> Any:
    """Convert `1` and `0`, as forms and older clients send them, to a truth value."""
    return {"1": True, "0": False, "true": True, "false": False}.get(str(value).lower(), value)


def _split_tags(value: Any) -> Any:
    """Convert names with commas between them to a list."""
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


Flag = Annotated[bool | None, BeforeValidator(_as_flag)]
Tags = Annotated[Items[str] | None, BeforeValidator(_split_tags)]


class DeeplRequest(BaseModel):
    """DeepL's request for text; options that change a translation are honoured or refused, never ignored."""

    text: Annotated[Items[str], BeforeValidator(as_list)] = Field(description="Texts to translate, or one text")
    target_lang: str = Field(description="Target language, such as `EN` or `EN-GB`")
    source_lang: str | None = Field(
        default=None, description="Source language. Default: the only one with this target, else the detected one"
    )
    tag_handling: Literal["html", "xml"] | None = Field(
        default=None, description="Keep the tags of HTML or XML as they are"
    )
    split_sentences: SplitSentences = None
    translation_memory_id: str | None = Field(default=None, description="Name of the memory to use. Default: all")
    translation_memory_threshold: float | None = Field(
        default=None,
        ge=0,
        le=100,
        description="Ignored: the memory is searched for every token, not by sentence",
    )
    glossary_id: str | None = Field(
        default=None, description="Id or name of the glossary to use, or `none`. Default: that of the server, if any"
    )
    glossary_ids: Annotated[Items[str] | None, BeforeValidator(as_list)] = Field(
        default=None, description="A list of one id, instead of `glossary_id`"
    )
    formality: str | None = Field(default=None, description="Refused if it is `more` or `less`")
    context: str | None = Field(default=None, description="Refused unless it is empty")
    custom_instructions: Annotated[Items[str] | None, BeforeValidator(as_list)] = Field(
        default=None, description="Refused unless it is empty"
    )
    style_id: str | None = Field(default=None, description="Refused unless it is empty")
    show_billed_characters: Flag = Field(default=None, description="Return `billed_characters`")
    preserve_formatting: Flag = Field(
        default=None, description="Without effect: punctuation and upper case are never corrected"
    )
    model_type: str | None = Field(default=None, description="Without effect: there is one model for each pair")
    tag_handling_version: str | None = Field(default=None, description="Without effect: there is one way")
    ignore_tags: Tags = Field(default=None, description="Elements whose content is kept as it is")
    splitting_tags: Tags = Field(default=None, description="Refused unless it is empty: only inline tags do not split")
    non_splitting_tags: Tags = Field(default=None, description="Refused unless it is empty")
    outline_detection: Flag = Field(default=None, description="Refused if it is false")
    enable_beta_languages: Flag = Field(default=None, description="Without effect")
    show_confidence: bool = Field(default=False, description="Return the confidence of each translation")
    auth_key: ApiKey = None


class DeeplTranslation(BaseModel):
    """One translated text."""

    detected_source_language: str = Field(description="Source language of the translation in upper case")
    text: str = Field(description="The translation")
    billed_characters: int | None = Field(
        default=None, description="Characters of the source, if `show_billed_characters` is set"
    )
    warning: str | None = Field(default=None, description="Only if the text was not translated: why")
    confidence: float | None = Field(
        default=None, description="Probability that the translation needs no edit, if requested; missing if unknown"
    )
    missing_shards: list[int] | None = Field(
        default=None, description="Shards of a memory that did not answer in time; missing if all answered"
    )


class DeeplResponse(BaseModel):
    """Translations in the order of the texts."""

    translations: list[DeeplTranslation] = Field(description="One for each text")


class DeeplLanguage(BaseModel):
    """A language as DeepL names it."""

    language: str = Field(description="Code in upper case")
    name: str = Field(description="English name")
    supports_formality: bool = Field(default=False, description="Always false")


class DeeplUsage(BaseModel):
    """Characters since the start of the server; there is no quota, so the limit is a large number."""

    character_count: int = Field(description="Translated characters")
    character_limit: int = Field(description="A large number")


class DeeplMemory(BaseModel):
    """A memory as DeepL lists it; its id is its name."""

    translation_memory_id: str = Field(description="Name of the memory")
    name: str = Field(description="Name of the memory")
    source_language: str = Field(description="Code of the source language")
    target_languages: list[str] = Field(description="Codes of the target languages")
    segment_count: int = Field(description="Number of pairs")


class DeeplMemories(BaseModel):
    """All memories."""

    translation_memories: list[DeeplMemory] = Field(description="The memories in the order of the server")


class GlossaryPair(BaseModel):
    """Languages of a glossary."""

    source_lang: str = Field(description="Language of the terms")
    target_lang: str = Field(description="Language of the translations")


class GlossaryPairs(BaseModel):
    """All pairs of languages that a glossary may have."""

    supported_languages: list[GlossaryPair] = Field(description="The languages of the server")


class GlossaryDictionary(GlossaryPair):
    """The terms of one pair of languages."""

    entries: str = Field(description="The terms, one a line: term, separator, translation")
    entries_format: Literal["tsv", "csv"] = Field(default="tsv", description="Separator: tab or comma")
    auth_key: ApiKey = None


class GlossaryRequest(GlossaryDictionary):
    """DeepL's request for a new glossary."""

    name: str = Field(description="Name of the glossary")


class GlossaryDictionaryInfo(GlossaryPair):
    """One pair of languages of a glossary, without its terms."""

    entry_count: int = Field(description="Number of terms")


class GlossaryInfo(GlossaryDictionaryInfo):
    """A glossary without its terms."""

    glossary_id: str = Field(description="Id of the glossary")
    name: str = Field(description="Name of the glossary")
    ready: bool = Field(default=True, description="Always true")
    creation_time: str = Field(description="When it was created, in UTC")


class GlossaryInfos(BaseModel):
    """All glossaries."""

    glossaries: list[GlossaryInfo] = Field(description="The glossaries, oldest first")


class GlossaryDictionaries(BaseModel):
    """The terms of a glossary by pairs of languages."""

    dictionaries: list[GlossaryDictionary] = Field(description="One for each pair of languages")


class MultilingualGlossaryRequest(BaseModel):
    """DeepL's request for a new glossary of several pairs of languages."""

    name: str = Field(description="Name of the glossary")
    dictionaries: Items[GlossaryDictionary] = Field(description="One for each pair of languages")
    auth_key: ApiKey = None


class MultilingualGlossaryChange(BaseModel):
    """DeepL's request to rename a glossary or to add terms to it."""

    name: str | None = Field(default=None, description="New name")
    dictionaries: Items[GlossaryDictionary] | None = Field(
        default=None, description="Terms to add; they replace entries of the same terms"
    )
    auth_key: ApiKey = None


class MultilingualGlossaryInfo(BaseModel):
    """A glossary of one or several pairs of languages, without its terms."""

    glossary_id: str = Field(description="Id of the glossary")
    name: str = Field(description="Name of the glossary")
    creation_time: str = Field(description="When it was created, in UTC")
    dictionaries: list[GlossaryDictionaryInfo] = Field(description="One for each pair of languages")


class MultilingualGlossaryInfos(BaseModel):
    """All glossaries."""

    glossaries: list[MultilingualGlossaryInfo] = Field(description="The glossaries, oldest first")


class DeeplDocumentRequest(BaseModel):
    """DeepL's form with a document."""

    target_lang: str = Field(description="Target language, such as `EN` or `EN-GB`")
    source_lang: str | None = Field(
        default=None, description="Source language. Default: the only one with this target, else the detected one"
    )
    filename: str | None = Field(default=None, description="Name of the file, if the file has none in the form")
    output_format: str | None = Field(default=None, description="Refused unless it is the format of the document")
    translation_memory_id: str | None = Field(default=None, description="Name of the memory to use. Default: all")
    glossary_id: str | None = Field(default=None, description="Id or name of the glossary to use, or `none`")
    formality: str | None = Field(default=None, description="Refused if it is `more` or `less`")
    show_confidence: bool = Field(default=False, description="Return the confidence of each translation")
    auth_key: ApiKey = None


class DeeplDocument(BaseModel):
    """The id and the key of a document that was sent."""

    document_id: str = Field(description="Id of the document, for its path")
    document_key: str = Field(description="Key of the document, which further requests must send")


class DeeplDocumentKey(BaseModel):
    """The key of a document."""

    document_key: str = Field(description="Key of the document, as the server returned it")
    auth_key: ApiKey = None


class DeeplDocumentStatus(BaseModel):
    """The state of a document."""

    document_id: str = Field(description="Id of the document")
    status: Literal["queued", "translating", "done", "error"] = Field(description="State of the translation")
    seconds_remaining: int | None = Field(default=None, description="Estimate, while the document is translated")
    billed_characters: int | None = Field(default=None, description="Characters of the source, if it is done")
    error_message: str | None = Field(default=None, description="What happened and what to do, if it failed")
