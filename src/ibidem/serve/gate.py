"""Who may ask: keys, and how often."""

from __future__ import annotations

import ipaddress
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

    def admit(self, request: Request, given: str | None = None) -> None:
        """Raise Refusal 403 without a good key where one is needed, 429 to whom asks too often.

        The key is in the header Authorization, as DeepL's clients send it or as a bearer's, or in the field or
        parameter `api_key`, as LibreTranslate's do (`given`).
        """
        key = _key_in_header(request) or given or request.query_params.get("api_key")
        number = self._keys.find(key) if key else None
        # Whoever guesses keys is counted by address.
        client = ("address", _network(request)) if number is None else ("key", number)
        wait = self._rates.take(client)
        if wait:
            raise Refusal(429, "Too many requests: slow down.", retry_after=wait)
        if self.required and number is None:
            if key:
                raise Refusal(403, "Invalid API key")
            raise Refusal(403, "An API key is needed: ask whoever runs this server for one.")


def _key_in_header(request: Request) -> str | None:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() or None if scheme.lower() in _SCHEMES else None


def _network(request: Request) -> str:
    """The client's address; of IPv6 the network, since one machine has many addresses there."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else host
