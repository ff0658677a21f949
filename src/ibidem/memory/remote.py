"""The server of a memory as the source of replicas: its view and files over HTTP, with an API key."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from ibidem.errors import MemoryFolderError, UsageError
from ibidem.memory.files import BLOCK_BYTES
from ibidem.memory.replica import ChangedSourceError
from ibidem.memory.view import decode_view

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.memory.view import RecordedFile, View

# Seconds without a byte after which a connection is closed.
_TIMEOUT = 30.0
_VIEW_BYTES = 1 << 28
_MESSAGE_BYTES = 1 << 12
# How often a request is repeated that the server refused with Retry-After, and the longest wait for it.
_REPEATS = 20
_LONGEST_WAIT = 30.0


class RefusedError(MemoryFolderError):
    """Raised when a server refuses a replica: its key is invalid, or it has no such memory."""


class ServerSource:
    """A memory of a running `ibidem serve`, as a source of replicas.

    Redirections are not followed, so that the key reaches no other server.

    Attributes:
        name: The address of the memory, for messages.

    Raises:
        UsageError: The URL is not one of a server.

    Examples:
        >>> ServerSource("http://writer:5000", "it").name
        'http://writer:5000 (memory it)'
    """

    def __init__(self, url: str, memory: str, key: str | None = None, timeout: float = _TIMEOUT) -> None:
        """Prepare the source; nothing is sent.

        Args:
            url: Scheme, host and port of the server, and the path below which a proxy has it.
            memory: The name of the memory on the server.
            key: An API key with the scope `replicate` or `admin`; None for a server without keys.
            timeout: Seconds without a byte after which a connection is closed.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise UsageError(f"Invalid URL {url!r} ({error}): give one like http://writer:5000.") from error
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise UsageError(f"Invalid URL {url!r}: give one like http://writer:5000, and the key apart from it.")
        self.name = f"{url.rstrip('/')} (memory {memory})"
        self._path = f"{parts.path.rstrip('/')}/replication/{quote(memory, safe='')}"
        self._address = (parts.hostname, port)
        self._context = ssl.create_default_context() if parts.scheme == "https" else None
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._timeout = timeout

    def read_view(self, known: str) -> tuple[str, View] | None:
        """Return the current view and its ETag; None if `known` is its ETag.

        Args:
            known: The ETag of the view that the caller has; empty for none.

        Raises:
            RefusedError: The key or the name of the memory is invalid.
            DamagedMemoryError: The view is damaged.
            MemoryFolderError: The server cannot be reached, or reports an error.
        """
        headers = {"If-None-Match": known} if known else {}
        with self._request(f"{self._path}/view", headers, (200, 304)) as response:
            if response.status == 304:
                return None
            content, tag = bytearray(), response.headers.get("ETag", "")
            for part in _parts(response, self.name):
                content += part
                if len(content) > _VIEW_BYTES:
                    raise MemoryFolderError(f"{self.name} sent a view of more than {_VIEW_BYTES:,} bytes")
        return tag, decode_view(bytes(content), Path("view of " + self.name.replace("/", "_")))

    @contextlib.contextmanager
    def open(self, file: RecordedFile, start: int, stop: int | None) -> Iterator[Iterator[bytes]]:
        """Open a file of the memory.

        Args:
            file: The file.
            start: The first byte.
            stop: The byte after the last; None for all.

        Yields:
            The bytes in parts.

        Raises:
            ChangedSourceError: The server has deleted the file, since it has a newer generation.
            MemoryFolderError: The server cannot be reached, or reports an error.
        """
        headers = {"Range": f"bytes={start}-{'' if stop is None else stop - 1}"} if start or stop else {}
        with self._request(f"{self._path}/files/{quote(file.path)}", headers, (200, 206)) as response:
            if start and response.status != 206:
                raise MemoryFolderError(
                    f"{self.name} does not send parts of files; is there a proxy that removes Range?"
                )
            yield _parts(response, self.name)

    @contextlib.contextmanager
    def _request(
        self, path: str, headers: dict[str, str], expected: tuple[int, ...]
    ) -> Iterator[http.client.HTTPResponse]:
        for left in reversed(range(_REPEATS)):
            connection = self._connect()
            try:
                try:
                    connection.request("GET", path, headers={**self._headers, **headers})
                    response = connection.getresponse()
                except (OSError, http.client.HTTPException, UnicodeError) as error:  # UnicodeError: an invalid host
                    raise MemoryFolderError(f"cannot reach {self.name}: {error or type(error).__name__}") from error
                if response.status in expected:
                    yield response
                    return
                wait = _retry_after(response)
                if wait is None or not left:
                    raise self._error(response)
            finally:
                connection.close()
            time.sleep(wait)

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._address
        if self._context is not None:
            return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=self._context)
        return http.client.HTTPConnection(host, port, timeout=self._timeout)

    def _error(self, response: http.client.HTTPResponse) -> MemoryFolderError:
        try:
            message = str(json.loads(response.read(_MESSAGE_BYTES))["error"])[:300]
        except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
            message = response.reason
        if response.status == 410:
            return ChangedSourceError(f"{self.name} has a newer generation")
        if response.status in (401, 403, 404, 421):
            return RefusedError(f"{self.name} refused the replica ({response.status}): {message}")
        return MemoryFolderError(f"{self.name} reported an error ({response.status}): {message}")


def _retry_after(response: http.client.HTTPResponse) -> float | None:
    """Return the seconds after which a refused request may be repeated; None if it may not."""
    if response.status not in (429, 503):
        return None
    try:
        return min(_LONGEST_WAIT, max(0.1, float(response.headers.get("Retry-After", ""))))
    except ValueError:
        return None


def _parts(response: http.client.HTTPResponse, name: str) -> Iterator[bytes]:
    while True:
        try:
            part = response.read1(BLOCK_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise MemoryFolderError(f"the connection to {name} was lost: {error or type(error).__name__}") from error
        if not part:
            return
        yield part
