"""Limits and settings of a server."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Limits:
    """Limits of one request, of one imported file, of one client and of the whole server.

    Attributes:
        characters: Characters of all texts of a request.
        lines: Lines of all texts of a request.
        texts: Texts of a request.
        alternatives: Further translations that a request may have.
        memories: Memories that a request may name.
        body_bytes: Bytes of a body.
        import_bytes: Bytes of an imported file as it is sent.
        import_unpacked_bytes: Bytes of an imported file after decompression.
        import_pairs: Sentence pairs of an imported file, including pairs that are skipped.
        import_seconds: Seconds spent on reading an imported file, without the time for learning.
        stored_memories: Memories that clients may store, with those in the trash.
        trash_seconds: Seconds after which a deleted memory or glossary is removed for good.
        glossaries: Glossaries that clients may store.
        glossary_terms: Terms of a glossary that a client sends.
        document_bytes: Bytes of an uploaded document.
        document_characters: Characters of all texts of a document.
        document_keep_seconds: Seconds after which a translated document is removed.
        documents: Documents that the server stores, translated or not.
        client_documents: Documents of one API key that are being translated.
        body_seconds: Seconds in which a body must arrive.
        rate: Requests a second of one key, or of one address if there is no key.
        burst: Requests that a client may send at once before `rate` applies.
        concurrency: Requests in progress.
        queue_characters: Characters of all lines that may wait for the decoder.
        min_line_characters: Characters that a shorter line counts for in `queue_characters`.
        wait_seconds: Seconds after which a request fails that still waits for the decoder.
        request_seconds: Seconds after which a request fails that is still being translated.
        stuck_seconds: Seconds without a decoding step after which `/health` reports the decoder as stuck.
        follow_seconds: Seconds between two checks of the source of its memories by a read-only server.
        stale_seconds: Seconds without a successful check after which `/ready` reports `stale`.
        max_stale_seconds: Seconds without a successful check after which `/ready` returns 503.

    Raises:
        UsageError: A limit is not positive.

    Examples:
        >>> Limits(characters=5_000).characters
        5000
    """

    characters: int = 20_000
    lines: int = 1_000
    texts: int = 256
    alternatives: int = 8
    memories: int = 16
    body_bytes: int = 1 << 20
    import_bytes: int = 1 << 28
    import_unpacked_bytes: int = 1 << 30
    import_pairs: int = 2_000_000
    import_seconds: float = 300.0
    stored_memories: int = 200
    trash_seconds: float = 2_592_000.0
    glossaries: int = 200
    glossary_terms: int = 10_000
    document_bytes: int = 1 << 24
    document_characters: int = 1_000_000
    document_keep_seconds: float = 3_600.0
    documents: int = 64
    client_documents: int = 4
    body_seconds: float = 30.0
    rate: float = 20.0
    burst: int = 200
    concurrency: int = 256
    queue_characters: int = 200_000
    min_line_characters: int = 40
    wait_seconds: float = 60.0
    request_seconds: float = 120.0
    stuck_seconds: float = 30.0
    follow_seconds: float = 1.0
    stale_seconds: float = 60.0
    max_stale_seconds: float = math.inf

    def __post_init__(self) -> None:
        for setting in fields(self):
            if not getattr(self, setting.name) > 0:
                raise UsageError(f"Invalid limit {setting.name}={getattr(self, setting.name)}: it must be above 0.")


@dataclass(frozen=True)
class ServeSettings:
    """Settings of a server.

    Attributes:
        limits: Limits of requests.
        keys_required: Whether a request needs an API key.
        hosts: Host names that requests may address; all names if empty.
        origins: Origins of web pages, other than the server's own, that may use the server.
        read_only: Whether requests that change a memory are refused.
        writer: Address of the server that accepts changes, for the message of a read-only one; None if it is unknown.
        replication: Whether replicas may fetch the memories.
        suggestion_memory: Name of the memory that receives suggestions; the first memory if None.
        memories: Folder of the memories that clients create; they cannot create any if None.
        glossaries: Folder of the glossaries that clients create; they cannot create any if None.
        audit: File that receives a line for each change of a memory; None for no audit log.

    Examples:
        >>> ServeSettings(Limits(rate=2), read_only=True).hosts
        ('127.0.0.1', 'localhost', '::1')
    """

    limits: Limits = field(default_factory=Limits)
    keys_required: bool = False
    hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "::1")
    origins: tuple[str, ...] = ()
    read_only: bool = False
    writer: str | None = None
    replication: bool = True
    suggestion_memory: str | None = None
    memories: Path | None = None
    glossaries: Path | None = None
    audit: Path | None = None
