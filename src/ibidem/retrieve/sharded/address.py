"""Addresses of shards, and the secret that shards and their clients share."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "IBIDEM_SHARD_SECRET"
_UNIX = "unix:"
_LEAST_SECRET = 16
_MOST_SECRET = 4096
_BACKLOG = 64
_BUFFER = 1 << 20


@dataclass(frozen=True)
class Address:
    """Where a shard listens: a host and a port, or the path of a Unix socket.

    Attributes:
        host: Name or number of the host; empty for a Unix socket.
        port: The port; 0 lets the system choose one.
        path: The path of a Unix socket; empty for a host.
    """

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"{_UNIX}{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_private(self) -> bool:
        """Whether only programs on this machine can reach it."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str) -> Address:
    """Read an address.

    Args:
        text: HOST:PORT, [IPV6]:PORT or unix:PATH.

    Raises:
        UsageError: It is none of these.

    Examples:
        >>> parse_address("127.0.0.1:7001")
        Address(host='127.0.0.1', port=7001, path='')
        >>> str(parse_address("[::1]:7001")), str(parse_address("unix:/run/shard-1"))
        ('[::1]:7001', 'unix:/run/shard-1')
    """
    given = text.strip()
    if given.startswith(_UNIX) and len(given) > len(_UNIX):
        return Address(path=given.removeprefix(_UNIX))
    host, _, port = given.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    plain = host[1:-1] if bracketed else host
    if (
        not plain
        or set("[]/ ") & set(plain)
        or (":" in plain) != bracketed
        or not (port.isascii() and port.isdigit())
        or int(port) > 65535
        or not _is_name(plain)
    ):
        raise UsageError(f"{text!r} is no address of a shard: give HOST:PORT, [IPV6]:PORT or unix:PATH.")
    return Address(plain, int(port))


def _is_name(host: str) -> bool:
    """Return whether a host can be looked up; a name with an empty or long label raises UnicodeError there."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def parse_addresses(given: str | list[str] | tuple[str, ...]) -> tuple[Address, ...]:
    """Read the addresses of shards.

    Args:
        given: Addresses, or one text with commas between them.

    Raises:
        UsageError: An address is invalid or given twice, or there is none.
    """
    texts = given.split(",") if isinstance(given, str) else list(given)
    addresses = tuple(parse_address(text) for text in texts if text.strip())
    if not addresses:
        raise UsageError("No address of a shard was given: give HOST:PORT or unix:PATH of every shard.")
    for address in addresses:
        if addresses.count(address) > 1:
            raise UsageError(f"The shard {address} was given twice: give every address once.")
    return addresses


def read_secret(file: Path | None) -> bytes | None:
    """Read the secret from a file, or from the environment variable IBIDEM_SHARD_SECRET.

    Args:
        file: The file; None for the variable.

    Returns:
        The secret; None where there is neither.

    Raises:
        UsageError: The file cannot be read, others can read it, or the secret is too short.
    """
    if file is None:
        found, origin = os.environ.get(SECRET, "").encode(), f"The variable {SECRET}"
        if not found:
            return None
    else:
        origin = f"The file {file}"
        try:
            mode = file.stat().st_mode
            with file.open("rb") as opened:
                found = opened.read(_MOST_SECRET + 1)
        except OSError as error:
            raise UsageError(f"{origin} with the secret of the shards cannot be read: {error.strerror}.") from error
        if os.name == "posix" and stat.S_IMODE(mode) & stat.S_IROTH:
            raise UsageError(f"{origin} with the secret of the shards can be read by all users: `chmod o-r {file}`.")
    secret = found.strip()
    if not _LEAST_SECRET <= len(secret) <= _MOST_SECRET:
        raise UsageError(
            f"{origin} holds a secret of {len(secret)} characters: use at least {_LEAST_SECRET}, for example of "
            "`openssl rand -hex 32`."
        )
    return secret


def bind(address: Address) -> socket.socket:
    """Open a socket that listens on an address.

    Args:
        address: The address.

    Raises:
        UsageError: The address is in use, or not one of this machine.
    """
    try:
        return _bind_path(address.path) if address.path else _bind_host(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"Another program listens on {address}: give another address with --listen.") from error
        raise UsageError(f"The shard cannot listen on {address}: {error.strerror or error}.") from error


def address_of(listener: socket.socket, given: Address) -> Address:
    """Return the address of a listening socket, with the port that the system chose.

    Args:
        listener: The socket.
        given: The address that it was opened with.
    """
    return given if given.path else Address(given.host, int(listener.getsockname()[1]))


def connect(address: Address, seconds: float) -> socket.socket:
    """Connect to a shard.

    Args:
        address: Its address.
        seconds: The most time to wait.

    Returns:
        The socket, with the same time limit.

    Raises:
        OSError: The shard cannot be reached.
    """
    if address.path:
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connected.settimeout(seconds)
            connected.connect(address.path)
        except BaseException:
            connected.close()
            raise
    else:
        connected = socket.create_connection((address.host, address.port), timeout=seconds)
    tune(connected)
    return connected


def tune(connected: socket.socket) -> None:
    """Set the options of a connection: no delay, and buffers for a whole step.

    Args:
        connected: The socket.
    """
    with contextlib.suppress(OSError):
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if connected.family != socket.AF_UNIX:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _bind_host(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    places = socket.getaddrinfo(address.host, address.port, family, socket.SOCK_STREAM)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(places[0][4])
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _bind_path(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_left_socket(path)
        with _own_files_only():
            listener.bind(path)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _remove_left_socket(path: str) -> None:
    """Delete the socket of a shard that was killed; leave one on which a program listens."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(Path(path).stat().st_mode):
            raise FileExistsError(errno.EEXIST, "there is another file of this name")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                Path(path).unlink()
                return
        raise OSError(errno.EADDRINUSE, "it is in use")


@contextlib.contextmanager
def _own_files_only() -> Iterator[None]:
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)
