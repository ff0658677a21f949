"""The JSON of the management of memories and glossaries: creation, names, rights, trash; and sentences of a text."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - pydantic reads the annotations
from typing import Literal

from pydantic import BaseModel, Field

from ibidem.serve.schemas import ApiKey, Memories, SplitSentences  # noqa: TC001

_OTHERS = "What keys other than that of the creator may do, within their scopes"


class CreateMemoryRequest(BaseModel):
    """A new, empty memory."""

    name: str = Field(max_length=200, description="Name of the memory")
    others: Literal["none", "read", "write"] = Field(default="write", description=_OTHERS)
    source: str | None = Field(default=None, description="Source language. Default: that of the server")
    target: str | None = Field(default=None, description="Target language. Default: that of the server")
    api_key: ApiKey = None


class ChangeMemoryRequest(BaseModel):
    """A new name or other rights of a memory."""

    name: str | None = Field(default=None, max_length=200, description="New name")
    others: Literal["none", "read", "write"] | None = Field(default=None, description=_OTHERS)
    api_key: ApiKey = None


class RestoreRequest(BaseModel):
    """The restoration of a deleted memory or glossary."""

    name: str | None = Field(default=None, max_length=200, description="New name, for a memory whose name is taken")
    api_key: ApiKey = None


class TrashItem(BaseModel):
    """A deleted memory or glossary."""

    id: str = Field(description="Id, for its path")
    kind: Literal["memory", "glossary"] = Field(description="What it is")
    name: str = Field(description="Name")
    deleted: datetime = Field(description="When it was deleted")
    expires: datetime = Field(description="When it is removed for good")


class TrashList(BaseModel):
    """All deleted memories and glossaries that the key may restore, newest first."""

    items: list[TrashItem] = Field(description="The memories and glossaries")


class Named(BaseModel):
    """The name that a memory has now."""

    name: str = Field(description="Name")


class StoredGlossaryInfo(BaseModel):
    """A glossary of the server for one pair of languages."""

    id: str = Field(description="Id of the glossary, for its path")
    name: str = Field(description="Name")
    source: str = Field(description="Language of the terms")
    target: str = Field(description="Language of the translations")
    terms: int = Field(description="Number of terms")
    rights: Literal["read", "manage"] = Field(description="What the key of the request may do")


class GlossaryList(BaseModel):
    """The glossaries of the server."""

    glossaries: list[StoredGlossaryInfo] = Field(description="One object for each pair of languages of a glossary")
    creates: bool = Field(description="Whether the key of the request can create glossaries")


class SegmentsRequest(BaseModel):
    """A text whose sentences are to be found."""

    q: str = Field(description="The text")
    source: str = Field(default="auto", description="Source language, or `auto`")
    target: str | None = Field(default=None, description="Target language")
    memories: Memories = None
    split_sentences: SplitSentences = None
    api_key: ApiKey = None


class Segment(BaseModel):
    """A sentence, q[start:end]; positions count code points."""

    start: int = Field(description="First character")
    end: int = Field(description="End")


class SegmentsResponse(BaseModel):
    """The sentences of a text in order, as `/translate` translates them one by one."""

    segments: list[Segment] = Field(description="The sentences")
