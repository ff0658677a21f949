"""API keys and rate limits.

A key has 256 random bits. An unsalted SHA-256 of it therefore cannot be inverted by trial, unlike that of a password.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import secrets
import time
from collections import OrderedDict
from functools import lru_cache
from typing import TYPE_CHECKING

from ibidem.errors import UsageError
from ibidem.serve.http_error import HttpError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable
    from pathlib import Path

    from starlette.requests import Request

_KEY_PREFIX = "ibidem-"
_KEY_LINE = re.compile(r"sha256:([0-9a-f]{64})(?:\s+(.*))?")
_AUTHORIZATION_SCHEMES = ("deepl-auth-key", "bearer")
_MAX_CLIENTS = 10_000


class KeyStore:
    """Holds the SHA-256 hashes of all valid API keys.

    Args:
        hashes: Hashes in hexadecimal, as `hash_key` returns them.
    """

    def __init__(self, hashes: Iterable[str] = ()) -> None:
        self._hashes = [bytes.fromhex(found) for found in hashes]

    def find(self, key: str) -> int | None:
        """Find a key; the time taken does not depend on the key.

        Args:
            key: The key as the client sent it.

        Returns:
            The number of the key among the hashes, None for an invalid key.
        """
        digest = bytes.fromhex(hash_key(key))
        found = None
        for number, stored in enumerate(self._hashes):
            if hmac.compare_digest(digest, stored):
                found = number
        return found


def hash_key(key: str) -> str:
    """Return the SHA-256 of a key in hexadecimal.

    Args:
        key: The key, any text.

    Examples:
        >>> hash_key("ibidem-example")[:12]
        '10269d471fea'
    """
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def read_keys(path: Path) -> list[str]:
    """Read the hashes from a file of keys.

    Args:
        path: A text file with a line `sha256:HASH NOTE` for each key. Blank lines and lines with `#` are ignored.

    Returns:
        Hashes in hexadecimal, for `make_service`.

    Raises:
        UsageError: The file cannot be read, or a line is not a key.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The keys in {path} cannot be read ({error}): check the path.") from error
    hashes = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        found = _KEY_LINE.fullmatch(line.strip())
        if found is None:
            raise UsageError(
                f"{path}, line {number} is not a key: make one with `ibidem serve --new-key NOTE --keys {path}`."
            )
        hashes.append(found[1])
    return hashes


def add_key(path: Path, note: str) -> str:
    """Generate a key and append its hash to a file, which is created if it does not exist.

    Args:
        path: File of keys, see `read_keys`.
        note: Text that is stored with the hash.

    Returns:
        The key itself. It is not stored anywhere.

    Raises:
        UsageError: The file exists and is not a file of keys.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     key = add_key(Path(folder, "keys"), "Anna")
        ...     read_keys(Path(folder, "keys")) == [hash_key(key)]
        True
    """
    if path.exists():
        read_keys(path)  # never append to a file of another kind
    key = _KEY_PREFIX + secrets.token_urlsafe(32)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"sha256:{hash_key(key)} {' '.join(note.split())}\n")
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
        self._take(self.identify(request))

    def identify(self, request: Request) -> tuple[str, object]:
        """Identify a client by a valid key in the header or the query, or else by its address.

        Args:
            request: The request; its body is not read.

        Returns:
            ("key", number), or ("address", address); an IPv6 address is its /64 network.
        """
        number = self._find(_key_outside_body(request))
        return _key_client(number) if number is not None else _address_client(request)

    def check_before_body(self, request: Request) -> None:
        """Check the key in the header or the query, for requests that may have their key in the body.

        Args:
            request: The request; its body is not read. A request without a key passes.

        Raises:
            HttpError: 403, a key is required and the given one is invalid.
        """
        key = _key_outside_body(request)
        if self.required and key and self._find(key) is None:
            raise HttpError(403, "Invalid API key")

    def check(self, request: Request, body_key: str | None = None) -> int | None:
        """Check the key of a request.

        A request with a valid key in its body was counted by address when it arrived. It is now counted by its key.

        Args:
            request: The request.
            body_key: Key from the body, if there is one.

        Returns:
            The number of the key, None for a request without a valid one.

        Raises:
            HttpError: 403, a key is required and is missing or invalid; 429, too many requests with this key.
        """
        outside = _key_outside_body(request)
        number = self._find(outside or body_key)
        if number is not None and not outside:
            self._limiter.give_back(_address_client(request))
            self._take(_key_client(number))
        if self.required and number is None:
            if outside or body_key:
                raise HttpError(403, "Invalid API key")
            raise HttpError(403, "An API key is required: get one from the operator of this server.")
        return number

    def owner(self, request: Request, body_key: str | None = None) -> int | None:
        """Return the number of the key of a request, None without a valid one; the request is not counted again.

        Args:
            request: The request, which `check` has accepted.
            body_key: Key from the body, if there is one.
        """
        return self._find(_key_outside_body(request) or body_key)

    def _find(self, key: str | None) -> int | None:
        return self._keys.find(key) if key else None

    def _take(self, client: tuple[str, object]) -> None:
        wait = self._limiter.take(client)
        if wait:
            raise HttpError(429, "Too many requests: slow down.", retry_after=wait)


def _key_outside_body(request: Request) -> str | None:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    in_header = key.strip() if scheme.lower() in _AUTHORIZATION_SCHEMES else ""
    return in_header or request.query_params.get("api_key") or None


def _key_client(number: int) -> tuple[str, object]:
    return ("key", number)


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
