"""The server process: listens on a socket and runs the application with uvicorn."""

from __future__ import annotations

import contextlib
import ipaddress
import queue
import socket
import threading
from typing import TYPE_CHECKING

import uvicorn

from ibidem.errors import UsageError
from ibidem.serve.app import make_app
from ibidem.serve.auth import Authenticator, KeyStore, RateLimiter
from ibidem.serve.engine import Engine
from ibidem.serve.metrics import Metrics
from ibidem.serve.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ibidem.decode import Translator
    from ibidem.serve.limits import ServeSettings

_MAX_CONNECTIONS = 2_048
_MAX_HEADER_BYTES = 1 << 16
_KEEP_ALIVE_SECONDS = 5
_SHUTDOWN_SECONDS = 60
_START_SECONDS = 30


def make_service(translator: Translator, settings: ServeSettings, hashes: Sequence[str] = ()) -> Service:
    """Create a service over a translator.

    Args:
        translator: The base model and the memories.
        settings: Settings and limits.
        hashes: Hashes of the valid API keys, see `hash_key` and `read_keys`.

    Returns:
        The service, with its threads started; `Service.close` ends them.

    Raises:
        UsageError: A key is required and there is none, or the origins contain `*`.
    """
    if settings.keys_required and not hashes:
        raise UsageError("There is no API key: make one with `ibidem serve --new-key NOTE --keys FILE`.")
    if "*" in settings.origins:
        raise UsageError("Invalid origin *: name each origin, such as https://example.org.")
    limiter = RateLimiter(settings.limits.rate, settings.limits.burst)
    authenticator = Authenticator(KeyStore(hashes), limiter, required=settings.keys_required)
    return Service(Engine(translator), authenticator, settings, Metrics())


def is_loopback(host: str) -> bool:
    """Return whether only programs on this machine can reach an address.

    Args:
        host: An IP address or a host name; of names, only `localhost` is known.

    Examples:
        >>> is_loopback("localhost"), is_loopback("0.0.0.0")
        (True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(service: Service, host: str, port: int, started: Callable[[str], None] = print) -> None:
    """Serve until SIGINT or SIGTERM, then close the service.

    Args:
        service: The service.
        host: Address to listen on.
        port: Port to listen on, 0 for any free one.
        started: Called with the URL when the server is ready.

    Raises:
        UsageError: The port cannot be used.
    """
    with listen(host, port) as listener:
        try:
            # uvicorn shuts down at Ctrl+C and then raises the signal again.
            with contextlib.suppress(KeyboardInterrupt):
                _Server(_make_config(service), started).run([listener])
        finally:
            service.close()


@contextlib.contextmanager
def running(service: Service, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serve in a thread of this process while a `with` block runs, then close the service.

    Args:
        service: The service.
        host: Address to listen on.
        port: Port to listen on, 0 for any free one.

    Yields:
        The URL of the server.

    Raises:
        UsageError: The port cannot be used.

    Examples:
        >>> with running(make_service(translator, ServeSettings())) as url:  # doctest: +SKIP
        ...     print(url)
        http://127.0.0.1:41529
    """
    urls: queue.SimpleQueue[str] = queue.SimpleQueue()
    with listen(host, port) as listener:
        server = _Server(_make_config(service), urls.put)
        thread = threading.Thread(target=server.run, args=([listener],), name="ibidem-server")
        thread.start()
        try:
            yield urls.get(timeout=_START_SECONDS)
        finally:
            server.should_exit = True
            thread.join()
            service.close()


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket.

    Args:
        host: An IP address or a host name.
        port: Port to listen on, 0 for any free one.

    Returns:
        The socket, which the caller closes.

    Raises:
        UsageError: The address does not exist or the port is in use.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_MAX_CONNECTIONS)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"Port {port} of {host} cannot be listened on ({reason}): choose another.") from error
    # Connections inherit this option. Without it the second packet of a response waits for an acknowledgement of the
    # first, and asyncio sets it only for sockets that were made with the number of the protocol.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _make_config(service: Service) -> uvicorn.Config:
    return uvicorn.Config(
        make_app(service),
        http="h11",
        ws="none",
        lifespan="on",
        log_level="warning",
        # Query strings may contain texts and keys, which must not appear in logs.
        access_log=False,
        # Any client can send the headers of a proxy.
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_MAX_CONNECTIONS,
        h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )


class _Server(uvicorn.Server):
    """Reports the URL when uvicorn has started."""

    def __init__(self, config: uvicorn.Config, started: Callable[[str], None]) -> None:
        super().__init__(config)
        self._report_url = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            host, port = listener.getsockname()[:2]
            self._report_url(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
