"""ASGI middleware that every request and every response passes.

A browser sends requests on behalf of any web page, also to a server on the same machine. Three rules prevent foreign
pages from using a server that has no keys:

- The server accepts only its own host names. A page whose host name resolves to this machine (DNS rebinding) is
  refused.
- A request of any method from a page of another origin is refused, except for the page itself, which may be linked to,
  and public data that costs no work. GET is not exempt: GET /translate costs as much as POST. Browsers declare where a
  request comes from (`Origin`, `Sec-Fetch-Site`), programs send neither header. The content type cannot serve as a
  sign: LibreTranslate's clients send forms, which any page can send too.
- Responses permit no other origin (CORS), unless the server was started with its name.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request

from ibidem.serve.client_places import ClientPlaces
from ibidem.serve.http_error import HttpError, error_response
from ibidem.serve.routes import page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ibidem.serve.auth import Authenticator
    from ibidem.serve.client_places import ClientPlace
    from ibidem.serve.limits import ServeSettings
    from ibidem.serve.metrics import Metrics

logger = logging.getLogger("ibidem.serve")

_SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_HEALTH = "/health"
_READY = "/ready"
# Pages of other origins may read these paths: they need no key and cost no work.
_PUBLIC_PATHS = {_HEALTH, _READY, "/languages", "/frontend/settings", "/openapi.json", *page.PATHS}
# The page has many small files, and a supervisor must reach /health on a busy server too.
_UNLIMITED_PATHS = {_HEALTH, _READY, *page.PATHS}
# Fractions of the limit `concurrency` that requests of one client may take: 1 / 2 for all of them, 1 / 8 for those
# whose body is still arriving.
_CLIENT_DIVISOR = 2
_INCOMING_DIVISOR = 8


class Middleware:
    """Wraps an ASGI application with host, origin, rate and concurrency checks, security headers and metrics.

    Args:
        app: The application.
        settings: Host names, origins and limits.
        authenticator: Counts requests against the rate limit.
        metrics: Receives path, status and duration of each request.
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings, authenticator: Authenticator, metrics: Metrics) -> None:
        self._app = app
        self._settings = settings
        self._authenticator = authenticator
        self._metrics = metrics
        self._shares = ClientPlaces(max(1, settings.limits.concurrency // _CLIENT_DIVISOR))
        self._incoming = ClientPlaces(max(1, settings.limits.concurrency // _INCOMING_DIVISOR))
        self._active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            self._check(scope)
            await self._call_app(scope, receive, send_with_headers)
        except HttpError as error:
            response = error_response(error, scope["path"])
            origin = Headers(scope=scope).get("origin")
            if origin in self._settings.origins:
                # A page that may use the server must be able to read the reason.
                response.headers.update({"Access-Control-Allow-Origin": origin, "Vary": "Origin"})
            await response(scope, receive, send_with_headers)
        except Exception:
            # The application has already sent a response, without the details.
            logger.exception("A request to %s failed.", _route_path(scope))
        finally:
            self._metrics.count_request(_route_path(scope), status or 499, time.monotonic() - began)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._settings.hosts and _host_name(host) not in self._settings.hosts:
            raise HttpError(421, "Unknown host name: start the server with --allow-host to use this name.")
        if not _is_public(scope) and not self._is_allowed_origin(headers, host):
            raise HttpError(403, "Pages of other origins may not use this server.")
        # Refused pages of other origins are not counted: they could use up the rate of this machine's user.
        if scope["path"] not in _UNLIMITED_PATHS:
            self._authenticator.count(Request(scope))

    async def _call_app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application within the limits on active requests and on incoming bodies.

        A request that waits for others of its client is not active yet, so that it does not block other clients.
        """
        if scope["path"] in (_HEALTH, _READY):
            await self._app(scope, receive, send)
            return
        client = self._authenticator.identify(Request(scope))
        share = await self._shares.acquire(client)
        try:
            if not _has_body(scope):
                with self._count_active():
                    await self._app(scope, receive, send)
                return
            incoming = await self._incoming.acquire(client)
            try:
                with self._count_active():
                    await self._app(scope, _release_after_body(receive, incoming), send)
            finally:
                incoming.release()
        finally:
            share.release()

    @contextmanager
    def _count_active(self) -> Iterator[None]:
        if self._active >= self._settings.limits.concurrency:
            raise HttpError(503, "Too many requests at once: try again.", retry_after=1)
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1

    def _is_allowed_origin(self, headers: Headers, host: str) -> bool:
        origin = headers.get("origin")
        if origin is None:
            return headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        return origin in self._settings.origins or _is_own_origin(origin, host)


def _release_after_body(receive: Receive, incoming: ClientPlace) -> Receive:
    """Wrap the ASGI `receive` of a request, so that its place is freed when the body is complete."""

    async def receive_part() -> Message:
        message = await receive()
        if not message.get("more_body", False):
            incoming.release()
        return message

    return receive_part


def _is_public(scope: Scope) -> bool:
    """Return whether pages of all origins may send this request; CORS handles preflights (OPTIONS)."""
    return scope["method"] == "OPTIONS" or (scope["method"] in ("GET", "HEAD") and scope["path"] in _PUBLIC_PATHS)


def _has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _is_own_origin(origin: str, host: str) -> bool:
    """Return whether an origin is this server; a malformed or opaque (`null`) origin is not."""
    try:
        named = urlsplit(origin).netloc
    except ValueError:
        return False
    return bool(named) and named.lower() == host.lower()


def _host_name(host: str) -> str:
    """Return a host without its port, in lower case."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _route_path(scope: Scope) -> str:
    """Return the path as the route declares it, so that clients cannot create labels."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else "other"
