"""API keys with their scopes, and rate limits.

A key has 256 random bits. An unsalted SHA-256 of it therefore cannot be inverted by trial, unlike that of a password.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import os
import re
import secrets
import time
from collections import OrderedDict
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import UsageError
from ibidem.serve.http_error import HttpError, InvalidKeyError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable
    from pathlib import Path

    from starlette.requests import Request

logger = logging.getLogger("ibidem.serve")

SCOPES = ("read", "write", "admin", "replicate")
REPLICATION_PATH = "/replication/"
_KEY_PREFIX = "ibidem-"
_KEY_LINE = re.compile(rf"sha256:([0-9a-f]{{64}})\s+({'|'.join(SCOPES)})(?:\s+(.*))?")
_FOLLOW_SECONDS = 1.0
_NAME_DIGITS = 12
_AUTHORIZATION_SCHEMES = ("deepl-auth-key", "bearer")
_MAX_CLIENTS = 10_000


class Key(NamedTuple):
    """A valid API key, without the key itself.

    Attributes:
        sha256: SHA-256 of the key in hexadecimal, as `hash_key` returns it.
        scope: `read`, `write` or `admin`, each of which includes the ones before it, or `replicate`, which `admin`
            includes too.
    """

    sha256: str
    scope: str = "admin"

    @property
    def name(self) -> str:
        """The first digits of the hash, by which logs name the key."""
        return self.sha256[:_NAME_DIGITS]

    def covers(self, scope: str) -> bool:
        """Return whether the key may be used for requests of a scope.

        Args:
            scope: One of `SCOPES`.

        Examples:
            >>> Key("0" * 64, "write").covers("read"), Key("0" * 64, "write").covers("admin")
            (True, False)
        """
        return _covers(self.scope, scope)


def _covers(held: str, needed: str) -> bool:
    """Return whether a scope includes another."""
    return held in ("admin", needed) or (held, needed) == ("write", "read")


class KeyStore:
    """Holds the hashes of all valid API keys, and follows changes of their file.

    The file is looked at again after a second, so that keys can be added and revoked while the server runs. If it
    cannot be read, the keys that were read last stay valid, and the log has a warning.

    Args:
        keys: Keys that are valid besides those of the file.
        file: File of keys, see `read_keys`; None for none.
        clock: Returns the time in seconds.

    Raises:
        UsageError: The file cannot be read at the start.
    """

    def __init__(
        self, keys: Iterable[Key] = (), file: Path | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._given = list(keys)
        self._file = file
        self._clock = clock
        self._stamp = _stamp_of(file)
        self._looked = clock()
        self._keys = [*self._given, *(read_keys(file) if file is not None else ())]

    def __bool__(self) -> bool:
        return bool(self._keys)

    def find(self, key: str) -> Key | None:
        """Find a key; the time taken does not depend on the key.

        Args:
            key: The key as the client sent it.

        Returns:
            The stored key, None for an invalid one.
        """
        self._follow()
        digest = hash_key(key)
        found = None
        for stored in self._keys:
            if hmac.compare_digest(digest, stored.sha256):
                found = stored
        return found

    def _follow(self) -> None:
        """Read the file again if it has changed."""
        now = self._clock()
        if self._file is None or now - self._looked < _FOLLOW_SECONDS:
            return
        self._looked = now
        stamp = _stamp_of(self._file)
        if stamp == self._stamp:
            return
        try:
            self._keys = [*self._given, *read_keys(self._file)]
        except UsageError as error:
            logger.warning("The API keys stay as they were: %s", error)
        self._stamp = stamp


def _stamp_of(file: Path | None) -> tuple[int, ...]:
    try:
        status = file.stat() if file is not None else None
    except OSError:
        return ()
    return () if status is None else (status.st_ino, status.st_mtime_ns, status.st_size)


def hash_key(key: str) -> str:
    """Return the SHA-256 of a key in hexadecimal.

    Args:
        key: The key, any text.

    Examples:
        >>> hash_key("ibidem-example")[:12]
        '10269d471fea'
    """
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def read_keys(path: Path) -> list[Key]:
    """Read a file of keys.

    Args:
        path: A text file with a line `sha256:HASH SCOPE NOTE` for each key. Blank lines and lines with `#` are ignored.

    Returns:
        The keys, for `KeyStore`.

    Raises:
        UsageError: The file cannot be read, or a line is not a key.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The keys in {path} cannot be read ({error}): check the path.") from error
    keys = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        found = _KEY_LINE.fullmatch(line.strip())
        if found is None:
            raise UsageError(
                f"{path}, line {number} is not a key: make one with `ibidem serve --new-key NOTE --keys {path}`."
            )
        keys.append(Key(found[1], found[2]))
    return keys


def add_key(path: Path, note: str, scope: str = "write") -> str:
    """Generate a key and append its hash to a file, which is created if it does not exist.

    Args:
        path: File of keys, see `read_keys`.
        note: Text that is stored with the hash.
        scope: `read`, `write` or `admin`.

    Returns:
        The key itself. It is not stored anywhere.

    Raises:
        UsageError: The file exists and is not a file of keys, or the scope is unknown.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     key = add_key(Path(folder, "keys"), "Anna", "read")
        ...     read_keys(Path(folder, "keys")) == [Key(hash_key(key), "read")]
        True
    """
    if scope not in SCOPES:
        raise UsageError(f"Unknown scope {scope!r}: use one of {', '.join(SCOPES)}.")
    begin = ""
    if path.exists():
        read_keys(path)  # never append to a file of another kind
        if path.read_bytes()[-1:] not in (b"", b"\n"):  # the new key would become a part of the last line
            begin = "\n"
    key = _KEY_PREFIX + secrets.token_urlsafe(32)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{begin}sha256:{hash_key(key)} {scope} {' '.join(note.split())}\n")
    return key


class RateLimiter:
    """Limits the request rate of each client with a token bucket.

    The clients seen last are kept, at most 10,000; a client that was dropped starts with a full bucket again.

    Args:
        rate: Tokens that each bucket gains a second.
        burst: Capacity of each bucket, and its tokens at first.
        clock: Returns the time in seconds.
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, client: Hashable) -> float:
        """Take a token for a request.

        Args:
            client: Identifies the client, see `Authenticator.identify`.

        Returns:
            0, or the seconds until the next token if there is none.

        Examples:
            >>> limiter = RateLimiter(rate=2, burst=1, clock=lambda: 0.0)
            >>> limiter.take("client"), limiter.take("client")
            (0.0, 0.5)
        """
        now = self._clock()
        tokens, since = self._buckets.pop(client, (float(self._burst), now))
        tokens = min(self._burst, tokens + (now - since) * self._rate)
        wait = 0.0 if tokens >= 1 else (1 - tokens) / self._rate
        self._buckets[client] = (tokens - 1 if tokens >= 1 else tokens, now)
        if len(self._buckets) > _MAX_CLIENTS:
            self._buckets.popitem(last=False)
        return wait

    def give_back(self, client: Hashable) -> None:
        """Return a token that was taken for a request of another client.

        Args:
            client: The client that the token was taken from; an unknown one is ignored.
        """
        if client in self._buckets:
            tokens, since = self._buckets[client]
            self._buckets[client] = (min(self._burst, tokens + 1), since)


class Authenticator:
    """Checks the API key and the rate limit of requests.

    Clients send a key in the header `Authorization` (as DeepL's clients do, or as a bearer token), in the query
    parameter `api_key`, or in the body's field `api_key`, as LibreTranslate's clients do.

    Args:
        keys: The valid keys.
        limiter: Limits the rate of each key, and of each address that sends no valid key.
        required: Whether requests need a key.
    """

    def __init__(self, keys: KeyStore, limiter: RateLimiter, *, required: bool) -> None:
        self._keys = keys
        self._limiter = limiter
        self.required = required

    def count(self, request: Request) -> None:
        """Count a request against the rate of its client, before anything of it is parsed.

        Requests with an invalid key or with a key in the body count against the address (see `check`), and so do
        requests that are refused later.

        Args:
            request: The request; its body is not read.

        Raises:
            HttpError: 429, the client sent too many requests.
        """
        if request.url.path.startswith(REPLICATION_PATH) and self._may_replicate(request):
            return  # a replica fetches thousands of files
        self._take(self.identify(request))

    def _may_replicate(self, request: Request) -> bool:
        key = self._find(_key_outside_body(request))
        return key is not None and key.covers("replicate")

    def identify(self, request: Request) -> tuple[str, object]:
        """Identify a client by a valid key in the header or the query, or else by its address.

        Args:
            request: The request; its body is not read.

        Returns:
            ("key", hash), or ("address", address); an IPv6 address is its /64 network.
        """
        key = self._find(_key_outside_body(request))
        return _key_client(key) if key is not None else _address_client(request)

    def check_before_body(self, request: Request, *, scope: str = "read") -> None:
        """Check the key in the header or the query, for requests that may have their key in the body.

        Args:
            request: The request; its body is not read. A request without a key passes.
            scope: The scope that the request needs.

        Raises:
            HttpError: 403, a key is required and the given one is invalid or of a lower scope.
        """
        given = _key_outside_body(request)
        if not self.required or not given:
            return
        key = self._find(given)
        if key is None:
            raise InvalidKeyError("Invalid API key")
        if not key.covers(scope):
            raise HttpError(403, f"This API key has the scope {key.scope}, and this request needs {scope}.")

    def check(self, request: Request, body_key: str | None = None, *, scope: str = "read") -> str:
        """Check the key of a request, and store its name, scope and owner in `request.state`.

        A request with a valid key in its body was counted by address when it arrived. It is now counted by its key.

        Args:
            request: The request.
            body_key: Key from the body, if there is one.
            scope: The scope that the request needs: `read`, `write` or `admin`.

        Returns:
            A name for the owner of the key, "" for a request without a valid one; see `owner_of`.

        Raises:
            HttpError: 403, a key is required and is missing, invalid or of a lower scope; 429, too many requests with
                this key.
        """
        outside = _key_outside_body(request)
        key = self._find(outside or body_key)
        request.state.key = key.name if key is not None else ""
        request.state.scope = key.scope if key is not None else ""
        request.state.owner = _owner(key)
        if key is not None and not outside:
            self._limiter.give_back(_address_client(request))
            self._take(_key_client(key))
        if self.required and key is not None and not key.covers(scope):
            raise HttpError(403, f"This API key has the scope {key.scope}, and this request needs {scope}.")
        if self.required and key is None:
            if outside or body_key:
                raise InvalidKeyError("Invalid API key")
            raise InvalidKeyError("An API key is required: get one from the operator of this server.")
        return _owner(key)

    def check_scope(self, request: Request, scope: str) -> None:
        """Check the scope of a request whose key was checked, where the body decides about the scope.

        Args:
            request: The request, after `check`.
            scope: The scope that the request needs.

        Raises:
            HttpError: 403, the key has a lower scope.
        """
        if self.required and not _covers(request.state.scope, scope):
            raise HttpError(403, f"This API key has the scope {request.state.scope}, and this request needs {scope}.")

    def owner_of(self, request: Request, body_key: str | None = None) -> str:
        """Return the owner of what a request creates: a name for its key; "" for a request without a valid key.

        Args:
            request: The request, which was checked.
            body_key: Key from the body, if there is one.
        """
        return _owner(self._find(_key_outside_body(request) or body_key))

    def _find(self, key: str | None) -> Key | None:
        return self._keys.find(key) if key else None

    def _take(self, client: tuple[str, object]) -> None:
        wait = self._limiter.take(client)
        if wait:
            raise HttpError(429, "Too many requests: slow down.", retry_after=wait)


def _key_outside_body(request: Request) -> str | None:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    in_header = key.strip() if scheme.lower() in _AUTHORIZATION_SCHEMES else ""
    return in_header or request.query_params.get("api_key") or None


def _owner(key: Key | None) -> str:
    """Return a name for the owner of a key, from which the key cannot be found."""
    return "" if key is None else key.sha256[:16]


def _key_client(key: Key) -> tuple[str, object]:
    return ("key", key.sha256)


def _address_client(request: Request) -> tuple[str, object]:
    return ("address", _network_of(request.client.host if request.client else ""))


@lru_cache(4_096)
def _network_of(host: str) -> str:
    """Return an IPv4 address as it is and an IPv6 address as its /64 network, which usually is one machine."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else host
