"""What every request passes before anything reads it, and every answer on its way out.

A browser sends what any web page tells it to, also to a server on the same machine. Three rules keep other
people's pages out of a server that has no keys:

- it answers only to its own names, so that a page whose name was made to point here (DNS rebinding) reads nothing;
- a request of any method must not come from a page of another origin, except for the page, which may be linked to,
  and for public data that costs no work. GET is no exception: GET /translate costs as much as POST. Browsers say where
  a request comes from (`Origin`, `Sec-Fetch-Site`), programs send neither. A content type would be no such sign:
  LibreTranslate's clients send forms, which any page can send as well;
- answers carry no permission for other origins (CORS), unless the server was started with their names.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request

from ibidem.serve import page
from ibidem.serve.answers import refuse
from ibidem.serve.arrivals import Arrivals
from ibidem.serve.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ibidem.serve.gate import Gate
    from ibidem.serve.metrics import Metrics
    from ibidem.serve.settings import ServeSettings

logger = logging.getLogger("ibidem.serve")

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_HEALTH = "/health"
# Public data, which pages of other origins may read as well: it needs no key and costs no work.
_PUBLIC = {_HEALTH, "/languages", "/frontend/settings", "/openapi.json", *page.PATHS}
# The page is many small files that are sent from memory; a supervisor must reach /health also on a busy server.
_UNCOUNTED = {_HEALTH, *page.PATHS}
# The part of `concurrency` that requests of one client may take whose body is still arriving.
_ARRIVING_SHARE = 8


class Door:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, gate: Gate, metrics: Metrics) -> None:
        self._app = app
        self._settings = settings
        self._gate = gate
        self._metrics = metrics
        self._arrivals = Arrivals(max(1, settings.limits.concurrency // _ARRIVING_SHARE))
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        status = 0

        async def send_out(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            self._check(scope)
            await self._answer(scope, receive, send_out)
        except Refusal as refusal:
            answer = refuse(refusal, scope["path"])
            origin = Headers(scope=scope).get("origin")
            if origin in self._settings.origins:
                # A page that may use the server must be able to read why it was refused.
                answer.headers.update({"Access-Control-Allow-Origin": origin, "Vary": "Origin"})
            await answer(scope, receive, send_out)
        except Exception:
            # The application has answered already, with no more than that something went wrong.
            logger.exception("A request to %s failed.", _route(scope))
        finally:
            self._metrics.count_request(_route(scope), status or 499, time.monotonic() - began)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        settings = self._settings
        host = headers.get("host", "")
        if settings.hosts and _host_name(host) not in settings.hosts:
            raise Refusal(421, "This server is not called by that name.")
        if not _is_public(scope) and not self._is_welcome(headers, host):
            raise Refusal(403, "Pages of other origins may not use this server.")
        # Refused pages of other origins are not counted, or they could use up the rate of this machine's user.
        if scope["path"] not in _UNCOUNTED:
            self._gate.count(Request(scope))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application within the limits on requests in flight and on bodies that are arriving.

        A request that waits for the client's other bodies is not in flight yet, so that it keeps no other client out.
        """
        if not _has_body(scope):
            with self._in_flight(scope):
                await self._app(scope, receive, send)
            return
        arrival = await self._arrivals.begin(self._gate.identify(Request(scope)))
        try:
            with self._in_flight(scope):
                await self._app(scope, arrival.watch(receive), send)
        finally:
            arrival.end()

    @contextmanager
    def _in_flight(self, scope: Scope) -> Iterator[None]:
        """Count a request while it is answered; raises Refusal 503 when there are too many."""
        if self._inside >= self._settings.limits.concurrency and scope["path"] != _HEALTH:
            raise Refusal(503, "Too many requests at once: try again.", retry_after=1)
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    def _is_welcome(self, headers: Headers, host: str) -> bool:
        origin = headers.get("origin")
        if origin is None:
            return headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        return origin in self._settings.origins or _is_of_host(origin, host)


def _is_public(scope: Scope) -> bool:
    """Whether pages of all origins may send this request; preflights (OPTIONS) are answered by CORS."""
    return scope["method"] == "OPTIONS" or (scope["method"] in ("GET", "HEAD") and scope["path"] in _PUBLIC)


def _has_body(scope: Scope) -> bool:
    """Whether a body follows the header of a request."""
    headers = Headers(scope=scope)
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _is_of_host(origin: str, host: str) -> bool:
    """Whether an origin is a page of this server; no origin that is malformed or opaque (`null`) is."""
    try:
        named = urlsplit(origin).netloc
    except ValueError:
        return False
    return bool(named) and named.lower() == host.lower()


def _host_name(host: str) -> str:
    """The host without its port, in lower case."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _route(scope: Scope) -> str:
    """The path as the application declares it; clients must not make up labels."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else "other"
