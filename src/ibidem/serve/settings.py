"""What a server allows, and where it listens."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from ibidem.errors import UsageError


@dataclass(frozen=True)
class Limits:
    """How much one client may ask for, and all of them together.

    Of one request: characters and lines of all its texts, texts, alternatives to a translation, memories, bytes of the
    body, seconds to send the body. Of an imported file: bytes, bytes that it unpacks to, units (pairs, and what gives
    none), seconds spent on reading it, without learning. Of a key, or of an address where there are no keys: requests
    a second, and how many at once may run ahead of that. Of the server: requests in flight, characters that wait for
    the decoder (a short line counts as `least`), seconds after which a waiting request is given up, seconds after which
    one is given up that is being translated, seconds without a decoding step after which the decoder counts as stuck.
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
    body_seconds: float = 30.0
    rate: float = 20.0
    burst: int = 200
    concurrency: int = 256
    waiting: int = 200_000
    least: int = 40
    wait_seconds: float = 60.0
    request_seconds: float = 120.0
    stuck_seconds: float = 30.0

    def __post_init__(self) -> None:
        for setting in fields(self):
            if not getattr(self, setting.name) > 0:
                raise UsageError(f"The limit {setting.name} must be above 0.")


@dataclass(frozen=True)
class ServeSettings:
    """The rules of a server.

    keys_required: whether a request needs a key; hosts: the names by which it may be called, none for any;
    origins: web pages of other origins that may call it from a browser; read_only: whether memories are not written
    to; learn_into: the memory that takes suggestions, the first where none is named.
    """

    limits: Limits = field(default_factory=Limits)
    keys_required: bool = False
    hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "::1")
    origins: tuple[str, ...] = ()
    read_only: bool = False
    learn_into: str | None = None
