"""The server as a process: from settings to a socket that listens."""

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
from ibidem.serve.desk import Desk
from ibidem.serve.gate import Gate
from ibidem.serve.keys import Keys
from ibidem.serve.metrics import Metrics
from ibidem.serve.protocol import PatientProtocol
from ibidem.serve.rates import Rates
from ibidem.serve.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ibidem.decode import Translator
    from ibidem.serve.settings import ServeSettings

_CONNECTIONS = 2_048
_LAST_SECONDS = 60
_STARTING_SECONDS = 30


def make_service(translator: Translator, settings: ServeSettings, hashes: Sequence[str] = ()) -> Service:
    """A service over a translator; `hashes` are those of the keys that open it."""
    if settings.keys_required and not hashes:
        raise UsageError("There is no key yet: make one with `ibidem serve --new-key NOTE --keys FILE`.")
    if "*" in settings.origins:
        raise UsageError("Pages of every origin cannot be let in: name the origins, such as https://example.org.")
    rates = Rates(settings.limits.rate, settings.limits.burst)
    gate = Gate(Keys(hashes), rates, required=settings.keys_required)
    return Service(Desk(translator), gate, settings, Metrics())


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach a server that listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(service: Service, host: str, port: int, started: Callable[[str], None] = print) -> None:
    """Serve until interrupted or told to end; `started` is told the address once requests are answered."""
    with listen(host, port) as listener:
        try:
            # uvicorn shuts down in order at Ctrl+C, and then lets Python know of it as well.
            with contextlib.suppress(KeyboardInterrupt):
                _Server(_config(service), started).run([listener])
        finally:
            service.close()


@contextlib.contextmanager
def running(service: Service, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """A server in a thread of this process, for as long as the block lasts; gives its address."""
    addresses: queue.SimpleQueue[str] = queue.SimpleQueue()
    with listen(host, port) as listener:
        server = _Server(_config(service), addresses.put)
        thread = threading.Thread(target=server.run, args=([listener],), name="ibidem-server")
        thread.start()
        try:
            yield addresses.get(timeout=_STARTING_SECONDS)
        finally:
            server.should_exit = True
            thread.join()
            service.close()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; raises UsageError where that cannot be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_CONNECTIONS)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"Port {port} of {host} cannot be listened on ({reason}): choose another.") from error


def _config(service: Service) -> uvicorn.Config:
    return uvicorn.Config(
        make_app(service),
        http=PatientProtocol,
        ws="none",
        lifespan="on",
        log_level="warning",
        # The addresses of requests may hold texts; who is asked what stays out of the logs.
        access_log=False,
        # Headers that say whom a request was forwarded for are written by anybody.
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=_LAST_SECONDS,
    )


class _Server(uvicorn.Server):
    """uvicorn, telling where it listens."""

    def __init__(self, config: uvicorn.Config, started: Callable[[str], None]) -> None:
        super().__init__(config)
        self._tell = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            host, port = listener.getsockname()[:2]
            self._tell(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
