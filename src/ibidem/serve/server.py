"""The server process: listens on a socket and runs the application with uvicorn."""

from __future__ import annotations

import contextlib
import ipaddress
import queue
import socket
import ssl
import threading
from typing import TYPE_CHECKING, NamedTuple

import uvicorn

from ibidem.decode import Translator
from ibidem.errors import UsageError
from ibidem.serve.app import make_app
from ibidem.serve.auth import Authenticator, KeyStore, RateLimiter
from ibidem.serve.engine import Engine
from ibidem.serve.language_detection import load_detector
from ibidem.serve.metrics import Metrics
from ibidem.serve.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ibidem.memory import Replica
    from ibidem.serve.limits import ServeSettings

_MAX_CONNECTIONS = 2_048
_MAX_HEADER_BYTES = 1 << 16
# Longer than the pauses of clients: DeepL's client asks for the state of a document every 5 seconds, and a connection
# that is closed in the same moment is an error for it.
_KEEP_ALIVE_SECONDS = 30
_SHUTDOWN_SECONDS = 60
_START_SECONDS = 30


def make_service(
    translator: Translator | Sequence[Translator],
    settings: ServeSettings,
    keys: KeyStore | None = None,
    replicas: Mapping[str, Replica] | None = None,
) -> Service:
    """Create a service over a translator, or over translators of different languages.

    Args:
        translator: The base model and the memories; or several of them, that of the default languages first.
        settings: Settings and limits.
        keys: The valid API keys; None for none.
        replicas: The replicas among the memories, by name; the service updates and closes them.

    Returns:
        The service, with its threads started; `Service.close` ends them.

    Raises:
        UsageError: A key is required and there is none, or the origins contain `*`.
    """
    keys = keys or KeyStore()
    if settings.keys_required and not keys:
        raise UsageError("There is no API key: make one with `ibidem serve --new-key NOTE --keys FILE`.")
    if "*" in settings.origins:
        raise UsageError("Invalid origin *: name each origin, such as https://example.org.")
    limiter = RateLimiter(settings.limits.rate, settings.limits.burst)
    authenticator = Authenticator(keys, limiter, required=settings.keys_required)
    translators = [translator] if isinstance(translator, Translator) else translator
    return Service(Engine(*translators), authenticator, settings, Metrics(), replicas)


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


class Certificate(NamedTuple):
    """The files for TLS.

    Attributes:
        chain: The certificate of the server and those of its issuers, PEM.
        key: The private key without a passphrase, PEM; None if it is in `chain`.
    """

    chain: Path
    key: Path | None = None


def serve(
    service: Service,
    host: str,
    port: int,
    started: Callable[[str], None] = print,
    *,
    certificate: Certificate | None = None,
    listener: socket.socket | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, then close the service.

    Args:
        service: The service.
        host: Address to listen on.
        port: Port to listen on, 0 for any free one.
        started: Called with the URL when the server is ready.
        certificate: The files for TLS; None serves without TLS.
        listener: A socket that listens already; None opens one. It is closed.

    Raises:
        UsageError: The port or the certificate cannot be used.
    """
    config = _make_config(service, certificate)
    with listener or listen(host, port) as opened:
        # The first detection of a language would otherwise wait for its model.
        threading.Thread(target=load_detector, name="ibidem-detector", daemon=True).start()
        try:
            # uvicorn shuts down at Ctrl+C and then raises the signal again.
            with contextlib.suppress(KeyboardInterrupt):
                _Server(config, started).run([opened])
        finally:
            service.close()


@contextlib.contextmanager
def running(
    service: Service, host: str = "127.0.0.1", port: int = 0, *, certificate: Certificate | None = None
) -> Iterator[str]:
    """Serve in a thread of this process while a `with` block runs, then close the service.

    Args:
        service: The service.
        host: Address to listen on.
        port: Port to listen on, 0 for any free one.
        certificate: The files for TLS; None serves without TLS.

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
    config = _make_config(service, certificate)
    with listen(host, port) as listener:
        server = _Server(config, urls.put)
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


def _make_config(service: Service, certificate: Certificate | None = None) -> uvicorn.Config:
    config = uvicorn.Config(
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
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            # An empty password: a key with a passphrase is an error, and not a question on the terminal.
            context.load_cert_chain(certificate.chain, certificate.key, password="")
        except (OSError, ValueError) as error:
            raise UsageError(
                f"The certificate {certificate.chain} cannot be used ({error}): give a PEM file with the certificate, "
                "and its private key without a passphrase."
            ) from error
        config.load()
        config.ssl = context
    return config


class _Server(uvicorn.Server):
    """Reports the URL when uvicorn has started."""

    def __init__(self, config: uvicorn.Config, started: Callable[[str], None]) -> None:
        super().__init__(config)
        self._report_url = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            host, port = listener.getsockname()[:2]
            scheme = "https" if self.config.ssl is not None else "http"
            self._report_url(f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}")
