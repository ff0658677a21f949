"""The client of the shards of an index: sends each step to all parts at once, and joins what arrives in time.

A request has a number, by which an answer that arrives after its step is recognised and dropped. A connection with an
outstanding request gets no other one, so that a shard that hangs costs one deadline, and not one in every step.
Connections that are lost are opened again by a thread in the background.
"""

from __future__ import annotations

import logging
import select
import threading
import time
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ibidem.errors import ShardError, UsageError
from ibidem.retrieve.parts import NOTHING_HIDDEN, read_plan
from ibidem.retrieve.sharded.address import Address, parse_addresses
from ibidem.retrieve.sharded.connection import open_connection
from ibidem.retrieve.sharded.handshake import Description, RefusedShardError, describe_part
from ibidem.retrieve.sharded.protocol import (
    FAILED,
    FOUND,
    MOST_K,
    MOST_ROWS,
    SEARCH,
    WireError,
    decode_found,
    encode_search,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.memory import Memory
    from ibidem.retrieve.parts import Found, Hidden, IndexPlan, Rows
    from ibidem.retrieve.sharded.connection import Connection

logger = logging.getLogger(__name__)

MISSING = ("flag", "refuse")
DEADLINE_MS = 1000.0
_STALLED_SECONDS = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_CONNECT_SECONDS = 5.0


@dataclass(frozen=True)
class ShardSettings:
    """Where the shards of a memory are, and what is done when one does not answer.

    Attributes:
        addresses: Their addresses; several of one part are replicas, which are used in turn.
        secret: The secret that shards and clients share; None for none.
        deadline_ms: The most milliseconds that a step waits for answers.
        missing: "flag": leave out the part of a shard that does not answer, and flag the translation; "refuse": raise
            ShardError.
        start_seconds: How long to wait at the start for shards that are still loading.

    Raises:
        UsageError: A setting is invalid.
    """

    addresses: tuple[Address, ...]
    secret: bytes | None = field(default=None, repr=False)
    deadline_ms: float = DEADLINE_MS
    missing: str = "flag"
    start_seconds: float = 10.0

    def __post_init__(self) -> None:
        if not self.addresses:
            raise UsageError("No address of a shard was given: give HOST:PORT or unix:PATH of every shard.")
        if not 0 < self.deadline_ms <= 3.6e6:
            raise UsageError(f"Invalid deadline of {self.deadline_ms:g} ms: give more than 0, at most an hour.")
        if self.missing not in MISSING:
            raise UsageError(f"Unknown value {self.missing!r} for missing shards: use one of {', '.join(MISSING)}.")


def shard_settings(given: ShardSettings | str | Sequence[str]) -> ShardSettings:
    """Return settings for addresses; settings are returned as they are.

    Args:
        given: Settings, addresses, or one text with commas between addresses.

    Raises:
        UsageError: An address is invalid.
    """
    if isinstance(given, ShardSettings):
        return given
    return ShardSettings(parse_addresses(given if isinstance(given, str) else list(given)))


@dataclass
class PartState:
    """What became of the requests to one part.

    Attributes:
        part: The number of the part, from 1.
        connected: How many addresses of it are connected now.
        missed: How many steps had no answer of it in time.
        late: How many answers arrived after their step.
        lost: How many connections were lost.
        reason: Why the last step had no answer of it; empty where it has answered since.
    """

    part: int
    connected: int = 0
    missed: int = 0
    late: int = 0
    lost: int = 0
    reason: str = ""


class RemoteParts:
    """Searches the parts of a plan in other processes.

    Args:
        memory: The memory; shards of another one are refused.
        plan: Its plan.
        settings: Where the shards are.

    Attributes:
        steps: How many searches were made.
        missed_steps: How many of them lacked a part.

    Raises:
        ShardError: A shard refuses the client or serves something else, or a part has no shard.
    """

    def __init__(self, memory: Memory, plan: IndexPlan, settings: ShardSettings) -> None:
        self._expected = [describe_part(memory, plan, number + 1) for number in range(len(plan.parts))]
        self._path = str(memory.path)
        self._settings = settings
        self._replicas: list[list[Connection]] = [[] for _ in plan.parts]
        self._turns = [0] * len(plan.parts)
        self._states = [PartState(number + 1) for number in range(len(plan.parts))]
        self._hidden: Sequence[Hidden] = [NOTHING_HIDDEN] * len(plan.parts)
        self._down: dict[Address, str] = dict.fromkeys(settings.addresses, "it was not reached yet")
        self._number = 0
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self.steps = 0
        self.missed_steps = 0
        self._connect_all()
        # The thread must not keep the object alive.
        threading.Thread(
            target=_keep_connected,
            args=(weakref.ref(self), self._wake, self._closed),
            name="ibidem-shards",
            daemon=True,
        ).start()
        weakref.finalize(self, _end, self._wake, self._closed, self._replicas)

    @property
    def description(self) -> str:
        """Where the shards are."""
        return f"served at {', '.join(map(str, self._settings.addresses))}"

    def states(self) -> list[PartState]:
        """Return the state of each part."""
        for state, replicas in zip(self._states, self._replicas, strict=True):
            state.connected = len(replicas)
        return self._states

    def close(self) -> None:
        """Close all connections and end the thread."""
        with self._lock:
            _end(self._wake, self._closed, self._replicas)

    def search(self, rows: Rows, hidden: Sequence[Hidden]) -> Sequence[Found | None]:
        """Find the nearest keys of each part that answers in time.

        Args:
            rows: The queries.
            hidden: For each part, the entries that must not be found.

        Returns:
            What each part found; None for a part that did not answer.

        Raises:
            ShardError: A part did not answer, and the setting is "refuse".
            UsageError: There are more neighbours or queries than the protocol allows.
        """
        if rows.k > MOST_K or len(rows.queries) > MOST_ROWS:
            raise UsageError(
                f"Shards find at most {MOST_K:,} neighbours of {MOST_ROWS:,} hypotheses at a time: use a smaller k, "
                "batch or beam."
            )
        if not len(rows.queries):
            return [None] * len(self._states)
        with self._lock:
            self._hidden = hidden
            self._number += 1
            self.steps += 1
            step = _Step(self, self._number, rows, hidden, time.monotonic() + self._settings.deadline_ms / 1e3)
            found = step.run()
            self._note(found)
        return found

    def _note(self, found: Sequence[Found | None]) -> None:
        """Count the parts that did not answer; raise ShardError where the setting is "refuse"."""
        missing = [state for state, one in zip(self._states, found, strict=True) if one is None]
        for state, one in zip(self._states, found, strict=True):
            if one is not None and state.reason:
                state.reason = ""
                logger.info("Shard %d of %s answers again", state.part, self._path)
        if not missing:
            return
        self.missed_steps += 1
        for state in missing:
            state.missed += 1
            if not state.reason:
                state.reason = self._reason(state.part)
                if self._settings.missing == "flag":
                    warnings.warn(
                        f"Shard {state.part} of {self._path} is left out until it answers again ({state.reason}): "
                        "translations are made without its entries, and are flagged.",
                        stacklevel=2,
                    )
        if self._settings.missing == "refuse":
            raise ShardError(
                f"Shard {missing[0].part} of {self._path} does not answer ({missing[0].reason}): start it with "
                f"`ibidem shard -m … --part {missing[0].part}`, or allow answers without it with --missing flag."
            )

    def _reason(self, part: int) -> str:
        if self._replicas[part - 1]:
            return f"no answer within {self._settings.deadline_ms:g} ms"
        lost = [f"{address}: {why}" for address, why in list(self._down.items())]
        return "; ".join(lost) or "no connection"

    # connections

    def _connect_all(self) -> None:
        """Connect to all shards; wait for those that are still loading where a part would be missing."""
        end = time.monotonic() + self._settings.start_seconds
        pause = _FIRST_PAUSE
        while True:
            self._try_all(self._settings.addresses)
            if all(self._replicas) or time.monotonic() > end:
                break
            time.sleep(min(pause, max(0.0, end - time.monotonic()) + 0.01))
            pause = min(_LONGEST_PAUSE, 2 * pause)
        absent = [str(number) for number, replicas in enumerate(self._replicas, start=1) if not replicas]
        if absent:
            self.close()
            unreached = "".join(f" {address} cannot be used: {why}." for address, why in list(self._down.items()))
            raise ShardError(
                f"No shard serves part {', '.join(absent)} of {len(self._replicas)} of {self._path}.{unreached} Start "
                f"`ibidem shard -m … --part {absent[0]}` and give its address too."
            )
        for address, why in list(self._down.items()):
            warnings.warn(f"The shard {address} cannot be used now: {why}. It is tried again.", stacklevel=5)

    def _try_all(self, addresses: Sequence[Address]) -> None:
        """Try to connect to the addresses that are down; raises RefusedShardError for one that does not fit."""
        down = [address for address in addresses if address in self._down]
        with ThreadPoolExecutor(max_workers=min(16, len(down) or 1), thread_name_prefix="ibidem-shard") as pool:
            futures = [pool.submit(self._try, address) for address in down]
        for future in futures:
            try:
                future.result()
            except RefusedShardError:
                self.close()
                raise

    def _try(self, address: Address) -> bool:
        """Connect to one shard; return whether it worked, and raise RefusedShardError where it never will."""
        try:
            opened = open_connection(address, self._settings.secret, _CONNECT_SECONDS)
        except RefusedShardError as error:
            self._down[address] = str(error).rstrip(".")
            raise
        except (OSError, WireError) as error:
            self._down[address] = _describe(error)
            return False
        try:
            self._check(opened.description, address)
            opened.hide(self._hidden[opened.description.part - 1], time.monotonic() + _CONNECT_SECONDS)
        except RefusedShardError as error:
            opened.close()
            self._down[address] = str(error).rstrip(".")
            raise
        except OSError as error:
            opened.close()
            self._down[address] = _describe(error)
            return False
        with self._lock:
            if self._closed.is_set():
                opened.close()
                return False
            self._replicas[opened.description.part - 1].append(opened)
            self._down.pop(address, None)
        return True

    def _check(self, found: Description, address: Address) -> None:
        """Raise RefusedShardError for a shard that does not belong to the plan of this memory."""
        mine = self._expected[0]
        if found.memory != mine.memory:
            raise RefusedShardError(
                f"The shard {address} serves another memory ({found.name}) than {self._path}: give the addresses of "
                "the shards of this memory."
            )
        if found.plan != mine.plan:
            raise RefusedShardError(
                f"The shard {address} serves other shards of {self._path} (plan {found.plan[:12]} of generation "
                f"{found.generation}) than the memory has now (plan {mine.plan[:12]} of generation "
                f"{mine.generation}): copy the memory where copies are used, then restart `ibidem shard` and this "
                "program."
            )
        expected = self._expected[found.part - 1] if found.part <= len(self._expected) else None
        own = (found.parts, found.first, found.last, found.dimension, found.precise)
        if expected is None or own != (
            expected.parts,
            expected.first,
            expected.last,
            expected.dimension,
            expected.precise,
        ):
            raise RefusedShardError(f"The shard {address} describes its part in another way than the plan: restart it.")

    def _reconnect(self) -> bool:
        """Try the addresses that are down once; return whether one still is."""
        for address in list(self._down):
            if self._closed.is_set():
                return False
            try:
                self._try(address)
            except RefusedShardError as error:
                logger.debug("%s", error)
        return bool(self._down)

    def drop(self, connection: Connection, error: Exception) -> None:
        """Close a connection that cannot be used any more; the thread opens it again.

        Args:
            connection: The connection.
            error: What was wrong.
        """
        connection.close()
        index = connection.description.part - 1
        if connection in self._replicas[index]:
            self._replicas[index].remove(connection)
        self._states[index].lost += 1
        self._down[connection.address] = _describe(error)
        if isinstance(error, WireError):
            logger.warning("The shard %s breaks the protocol: %s", connection.address, error)
        self._wake.set()

    def available(self, index: int, tried: set[Connection]) -> Connection | None:
        """Return a connection to a part without an outstanding request, in turn; None where there is none.

        Args:
            index: The number of the part, from 0.
            tried: Connections that were used in this step.
        """
        replicas = self._replicas[index]
        for connection in list(replicas):
            if connection.outstanding and connection not in tried:
                self._settle(connection)
        free = [connection for connection in replicas if not connection.outstanding and connection not in tried]
        if not free:
            return None
        self._turns[index] += 1
        return free[self._turns[index] % len(free)]

    def _settle(self, connection: Connection) -> None:
        """Read a late answer of an earlier step, if it has arrived; drop a connection without one for too long."""
        try:
            while connection.outstanding and (frame := connection.receive()) is not None:
                self.take_late(connection, frame.request)
            if connection.outstanding and time.monotonic() - connection.since > _STALLED_SECONDS:
                raise TimeoutError(f"no answer for {_STALLED_SECONDS:g} seconds")
        except (OSError, WireError) as error:
            self.drop(connection, error)

    def take_late(self, connection: Connection, request: int) -> None:
        """Drop an answer to an earlier step.

        Args:
            connection: Where it came from.
            request: The number of its request.

        Raises:
            WireError: It answers no request.
        """
        if request != connection.outstanding:
            raise WireError("it answered a request that it was not sent")
        connection.outstanding = 0
        self._states[connection.description.part - 1].late += 1


class _Step:
    """One search: the connections that the queries were sent to, and what the shards found."""

    def __init__(self, parts: RemoteParts, number: int, rows: Rows, hidden: Sequence[Hidden], deadline: float) -> None:
        self._parts = parts
        self._number = number
        self._rows = rows
        self._hidden = hidden
        self._deadline = deadline
        self._pieces = encode_search(rows)
        self._found: list[Found | None] = [None] * len(hidden)
        self._tried: list[set[Connection]] = [set() for _ in hidden]
        self._requested: dict[int, Connection] = {}
        self._poll = select.poll()

    def run(self) -> list[Found | None]:
        """Send the queries to all parts, and wait for the answers until the deadline."""
        begun = time.monotonic()
        for index in range(len(self._found)):
            self._request(index)
        until = begun + (self._deadline - begun) / 2
        while self._requested and not all(one is not None for one in self._found):
            now = time.monotonic()
            if now >= self._deadline:
                break
            if now >= until:  # another replica may be faster
                until = self._deadline
                for index, one in enumerate(self._found):
                    if one is None:
                        self._request(index)
            for number, _ in self._poll.poll(max(0.0, 1e3 * (until - now))):
                if number in self._requested:
                    self._take(number)
        return self._found

    def _request(self, index: int) -> None:
        """Send the queries to a replica of a part that did not get them yet."""
        while (connection := self._parts.available(index, self._tried[index])) is not None:
            self._tried[index].add(connection)
            try:
                connection.send(SEARCH, self._pieces, self._number, self._hidden[index], self._deadline)
            except OSError as error:
                self._parts.drop(connection, error)
                continue
            for number in connection.descriptors():
                self._requested[number] = connection
                self._poll.register(number, select.POLLIN)
            return

    def _take(self, number: int) -> None:
        """Read what a shard sent; send the queries to another replica where it is gone."""
        connection = self._requested[number]
        numbers = connection.descriptors()
        index = connection.description.part - 1
        try:
            while (frame := connection.receive()) is not None:
                if frame.request != self._number:
                    self._parts.take_late(connection, frame.request)
                    continue
                if frame.kind not in (FOUND, FAILED) or not connection.outstanding:
                    raise WireError(f"it sent a message of kind {frame.kind}")
                if frame.kind == FAILED:
                    raise WireError("its search failed: see its log")
                count, k = len(self._rows.queries), self._rows.k
                size, precise = connection.description.size, connection.description.precise
                found = decode_found(frame.payload, count, k, size, precise=precise)
                connection.outstanding = 0
                self._forget(numbers)
                if self._found[index] is None:
                    self._found[index] = found
                return
        except (OSError, WireError) as error:
            self._forget(numbers)
            self._parts.drop(connection, error)
            if self._found[index] is None:
                self._request(index)

    def _forget(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._poll.unregister(number)
            del self._requested[number]


def connect_parts(memory: Memory, settings: ShardSettings) -> tuple[IndexPlan, RemoteParts]:
    """Connect to the shards of a memory.

    Args:
        memory: The memory.
        settings: Where the shards are.

    Returns:
        The plan of the memory, and the connected parts.

    Raises:
        UsageError: The index of the memory is not divided.
        ShardError: A shard refuses the client, or is missing.
    """
    plan = read_plan(memory)
    if plan is None:
        raise UsageError(
            f"{memory.path} has no shards: build them with `ibidem index -m {memory.path} --shards N`, or leave "
            "--shards out."
        )
    return plan, RemoteParts(memory, plan, settings)


def _keep_connected(parts: weakref.ref[RemoteParts], wake: threading.Event, closed: threading.Event) -> None:
    """Open lost connections again, with longer and longer pauses, until the client is closed or forgotten."""
    pause = _FIRST_PAUSE
    while True:
        wake.wait(None if pause == 0 else pause)
        if closed.is_set():
            return
        if wake.is_set():
            wake.clear()
            pause = _FIRST_PAUSE
        client = parts()
        if client is None:
            return
        is_down = client._reconnect()
        del client
        pause = min(_LONGEST_PAUSE, 2 * max(pause, _FIRST_PAUSE)) if is_down else 0


def _end(wake: threading.Event, closed: threading.Event, replicas: list[list[Connection]]) -> None:
    closed.set()
    wake.set()
    for connections in replicas:
        while connections:
            connections.pop().close()


def _describe(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "no program listens there"
    if isinstance(error, FileNotFoundError):
        return "there is no such socket"
    if isinstance(error, TimeoutError):
        return str(error) if "answer" in str(error) or "takes" in str(error) else "it does not answer"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
