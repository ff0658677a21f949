"""Replication of memories: what a writer sends to its replicas, and how a read-only server follows its memories."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import IbidemError, MismatchError
from ibidem.memory import (
    ARTEFACT_FILE,
    ENDS,
    INDEX_ARTEFACT,
    INDEX_PLAN_ARTEFACT,
    JOURNAL_NAME,
    MANIFEST,
    SEGMENT_NAME,
    ChangedSourceError,
    Replica,
    encode_view,
    read_view,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ibidem.decode import LoadedMemory
    from ibidem.memory import Memory, View
    from ibidem.serve.limits import Limits

logger = logging.getLogger("ibidem.serve")

_FILE = (
    rf"segments/{SEGMENT_NAME}/(segment\.json|[a-z_]{{1,32}}\.bin)|artefacts/{ARTEFACT_FILE}|journals/{JOURNAL_NAME}"
)
_LONGEST_PAUSE = 30.0
_CLOSE_SECONDS = 5.0


class EncodedView(NamedTuple):
    """The current view of a memory as replicas receive it.

    Attributes:
        tag: Its ETag.
        content: The document of `encode_view`.
    """

    tag: str
    content: bytes


class ViewCache:
    """Encodes the view of a memory, and encodes it again only after a change; any thread may call `read`.

    Args:
        folder: The folder of the memory.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._stamp: tuple[object, ...] = ()
        self._encoded: EncodedView | None = None

    def read(self) -> EncodedView:
        """Return the current view.

        Raises:
            MemoryFolderError: The memory is damaged, or changes faster than it can be read.
        """
        with self._lock:
            # Taken before the view is read: a change in between is then seen by the next call.
            stamp = tuple(_stamp_of(self._folder / name) for name in (MANIFEST, ENDS))
            if self._encoded is None or stamp != self._stamp:
                content = encode_view(read_view(self._folder))
                self._encoded = EncodedView(f'"{hashlib.sha256(content).hexdigest()[:32]}"', content)
                self._stamp = stamp
            return self._encoded


def _stamp_of(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:
        return ()
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def find_file(folder: Path, name: str) -> Path | None:
    """Return a file of a memory that replicas may fetch.

    Args:
        folder: The folder of the memory.
        name: The path that the client sent, relative to the folder.

    Returns:
        The file; None if it does not exist or is none of a segment, an artefact or a journal.
    """
    if not re.fullmatch(_FILE, name):
        return None
    path = folder / name
    return path if path.is_file() else None


class FollowState(NamedTuple):
    """How far a read-only server follows a memory.

    Attributes:
        memory: The name of the memory.
        generation: The generation that the folder has.
        seconds: Seconds since the folder was found up to date.
        failures: Failed attempts since the start.
        refused: Files that were refused because of their checksum.
        received: Bytes that were received.
        missing: Bytes that the update in progress still needs.
        error: The last error; empty after a success.
    """

    memory: str
    generation: int
    seconds: float
    failures: int
    refused: int
    received: int
    missing: int
    error: str


@dataclass
class _Followed:
    """A memory that is followed by a thread."""

    name: str
    loaded: LoadedMemory
    replica: Replica | None
    contact: float = field(default_factory=time.monotonic)
    failures: int = 0
    error: str = ""
    generation: int = 0


class _ClosedError(Exception):
    """Ends an update when the server ends."""


class Followers:
    """Follows the memories of a read-only server in background threads.

    A replica is updated from its source. A merged index that the writer has stored is opened in the background, and
    used from the next batch on. A failed update is repeated, with growing pauses, and the server goes on with what it
    has.

    Args:
        memories: The loaded memories by name.
        replicas: The replicas by name; other memories are on a shared file system.
        limits: The times.
    """

    def __init__(self, memories: Mapping[str, LoadedMemory], replicas: Mapping[str, Replica], limits: Limits) -> None:
        self._limits = limits
        self._closed = threading.Event()
        self._followed = [_Followed(name, loaded, replicas.get(name)) for name, loaded in memories.items()]
        self._threads = []
        for followed in self._followed:
            if followed.replica is not None:
                followed.replica.check = _checker(followed)
                followed.replica.interrupt = self._check_open
            followed.generation = followed.loaded.memory.generation
            thread = threading.Thread(
                target=self._follow, args=(followed,), name=f"ibidem-follow-{followed.name}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def states(self) -> list[FollowState]:
        """Return the state of each memory."""
        now = time.monotonic()
        states = []
        for one in self._followed:
            transfer = one.replica.transfer if one.replica is not None else None
            states.append(
                FollowState(
                    one.name,
                    one.generation,
                    now - one.contact,
                    one.failures,
                    transfer.refused if transfer else 0,
                    transfer.bytes if transfer else 0,
                    max(0, transfer.total - transfer.done) if transfer else 0,
                    one.error,
                )
            )
        return states

    @property
    def seconds_behind(self) -> float:
        """Seconds since the memory that is farthest behind was up to date; 0 without memories."""
        return max((state.seconds for state in self.states()), default=0.0)

    def close(self) -> None:
        """End the threads; an update that is running stops, and is continued by the next server."""
        self._closed.set()
        for thread in self._threads:
            thread.join(_CLOSE_SECONDS)
        for followed in self._followed:
            if followed.replica is not None:
                followed.replica.close()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise _ClosedError

    def _follow(self, followed: _Followed) -> None:
        index = _stored_index(followed.loaded.memory)
        pause = 0.0
        while not self._closed.wait(pause):
            try:
                if followed.replica is not None:
                    followed.replica.update()
                newest = followed.loaded.memory.refresh()
                found = _stored_index(newest)
                if found != index:
                    followed.loaded.reload()
                    index = found
            except _ClosedError:
                return
            except ChangedSourceError:
                pause = 0.1
                continue
            except Exception as error:  # whatever a source sends, the thread must go on
                known = isinstance(error, IbidemError | OSError)
                reason = str(error) if known else f"{type(error).__name__}: {error}"
                followed.failures += 1
                if reason != followed.error:
                    logger.warning("The memory %s is not up to date: %s", followed.name, reason, exc_info=not known)
                followed.error = reason
                pause = min(_LONGEST_PAUSE, max(self._limits.follow_seconds, 2 * pause))
                continue
            if followed.error:
                logger.warning("The memory %s is up to date again.", followed.name)
            followed.contact, followed.error, followed.generation = time.monotonic(), "", newest.generation
            pause = self._limits.follow_seconds


def _stored_index(memory: Memory) -> tuple[object, ...]:
    """Return what changes when another index is stored, whole or divided."""
    artefacts = memory.manifest.artefacts
    return artefacts.get(INDEX_ARTEFACT), artefacts.get(INDEX_PLAN_ARTEFACT)


def _checker(followed: _Followed) -> Callable[[View], None]:
    identity = followed.loaded.memory.identity

    def check(view: View) -> None:
        if view.manifest.identity != identity:
            raise MismatchError(
                f"the memory is now of the model {view.manifest.identity.name} "
                f"({view.manifest.identity.model_fingerprint[:12]}), and this server has {identity.name} "
                f"({identity.model_fingerprint[:12]}): restart the server"
            )

    return check
