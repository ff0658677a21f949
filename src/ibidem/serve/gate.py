"""Who may ask: keys, and how often."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING

from ibidem.serve.refusal import Refusal

if TYPE_CHECKING:
    from starlette.requests import Request

    from ibidem.serve.keys import Keys
    from ibidem.serve.rates import Rates

_SCHEMES = ("deepl-auth-key", "bearer")


class Gate:
    """Lets a request in that has a key, where one is needed, and comes not too often."""

    def __init__(self, keys: Keys, rates: Rates, *, required: bool) -> None:
        self._keys = keys
        self._rates = rates
        self.required = required

    def count(self, request: Request) -> None:
        """Count a request before anything of it is parsed; raises Refusal 429 when there were too many.

        It is counted by its key if that is in the header or the address and known, else by the client's address:
        guessed keys, keys in the body (see `admit`) and requests that are refused later are all counted.
        """
        self._take(self.identify(request))

    def identify(self, request: Request) -> tuple[str, object]:
        """Identify a client before the body is read: by a known key in the header or the address, else by address."""
        number = self._find(_key_outside_body(request))
        return _by_address(request) if number is None else _by_key(number)

    def check_key(self, request: Request) -> None:
        """Raise Refusal 403 where a key is needed and the header or the address has a wrong one.

        For requests whose body may have the key: this is called before the body is read, and `admit` afterwards.
        """
        key = _key_outside_body(request)
        if self.required and key and self._find(key) is None:
            raise Refusal(403, "Invalid API key")

    def admit(self, request: Request, in_body: str | None = None) -> None:
        """Raise Refusal 403 without a good key where one is needed.

        The key is in the header Authorization, as DeepL's clients send it or as a bearer's, or in the parameter or the
        body's field `api_key`, as LibreTranslate's do. A request with a good key in its body was counted by address
        when it came, and is now counted by its key instead, which may raise Refusal 429.
        """
        outside = _key_outside_body(request)
        number = self._find(outside or in_body)
        if number is not None and not outside:
            self._rates.give_back(_by_address(request))
            self._take(_by_key(number))
        if self.required and number is None:
            if outside or in_body:
                raise Refusal(403, "Invalid API key")
            raise Refusal(403, "An API key is needed: ask whoever runs this server for one.")

    def _find(self, key: str | None) -> int | None:
        return self._keys.find(key) if key else None

    def _take(self, client: tuple[str, object]) -> None:
        wait = self._rates.take(client)
        if wait:
            raise Refusal(429, "Too many requests: slow down.", retry_after=wait)


def _key_outside_body(request: Request) -> str | None:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    in_header = key.strip() if scheme.lower() in _SCHEMES else ""
    return in_header or request.query_params.get("api_key") or None


def _by_key(number: int) -> tuple[str, object]:
    return ("key", number)


def _by_address(request: Request) -> tuple[str, object]:
    return ("address", network_of(request.client.host if request.client else ""))


@lru_cache(4_096)
def network_of(host: str) -> str:
    """The address of a client; of IPv6 the network, since one machine has many addresses there."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else host
