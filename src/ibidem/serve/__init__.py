"""The HTTP server: LibreTranslate's API, DeepL's API for text, the API of the memories, and a web page.

The server needs the extra `serve`. The names that need it are imported at their first use, so that the settings and the
keys are available without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.serve.auth import SCOPES, Key, KeyStore, add_key, hash_key, read_keys
from ibidem.serve.limits import Limits, ServeSettings

if TYPE_CHECKING:
    from ibidem.serve.loading import answering
    from ibidem.serve.server import Certificate, is_loopback, listen, make_service, running, serve
    from ibidem.serve.service import Service

__all__ = [
    "SCOPES",
    "Certificate",
    "Key",
    "KeyStore",
    "Limits",
    "ServeSettings",
    "Service",
    "add_key",
    "answering",
    "hash_key",
    "is_loopback",
    "listen",
    "make_service",
    "read_keys",
    "running",
    "serve",
]


def __getattr__(name: str) -> object:
    if name == "Service":
        from ibidem.serve.service import Service

        return Service
    if name == "answering":
        from ibidem.serve.loading import answering

        return answering
    if name in ("Certificate", "is_loopback", "listen", "make_service", "running", "serve"):
        from ibidem.serve import server

        return getattr(server, name)
    raise AttributeError(f"module 'ibidem.serve' has no attribute '{name}'")
