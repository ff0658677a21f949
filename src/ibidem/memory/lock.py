"""The writer's lock of a memory: one process at a time may change the folder."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from ibidem.errors import LockedMemoryError, MemoryFolderError
from ibidem.memory.manifest import utc_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK = "lock"
# A separate file, since other processes cannot read a locked file on Windows.
HOLDER = "lock.holder"
# In the folder of a replica: the name of its source.
FOLLOWED = "follows"
_POLL_SECONDS = 0.002


@contextlib.contextmanager
def writer_lock(folder: Path, lock_timeout: float = 0.0) -> Iterator[None]:
    """Hold the writer's lock of a memory inside a `with` block.

    The operating system holds the lock, so a killed process leaves none behind.

    Args:
        folder: The folder of the memory.
        lock_timeout: Seconds to wait while another writer holds the lock.

    Raises:
        LockedMemoryError: Another writer still holds the lock; the message names its process.
        MemoryFolderError: The folder is missing, not writable, on a file system without locks, or a replica.
    """
    if not folder.is_dir():
        raise MemoryFolderError(f"there is no memory at {folder}: check the path")
    if (folder / FOLLOWED).exists():
        raise MemoryFolderError(
            f"{folder} is a replica of {_read_source(folder)}: change the memory there, or make one of its own with "
            f"`ibidem backup -m {folder} NEW`"
        )
    # No fallback: a lock that is only a file would remain after its process was killed.
    lock = FileLock(folder / LOCK, fallback_to_soft=False)
    holder = folder / HOLDER
    try:
        lock.acquire(timeout=lock_timeout, poll_interval=_POLL_SECONDS)
    except Timeout as error:
        raise LockedMemoryError(
            f"{folder} is being written by {_read_holder(holder)}; wait for it or stop it"
        ) from error
    except PermissionError as error:
        raise MemoryFolderError(f"cannot write to {folder}: {error.strerror}; get write permission first") from error
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise MemoryFolderError(
            f"cannot lock {folder / LOCK}: {reason}; keep the memory on a file system with locks and free space"
        ) from error
    try:
        _write_holder(holder)
        yield
    finally:
        with contextlib.suppress(OSError):
            holder.unlink()
        lock.release()


def is_being_written(folder: Path) -> bool:
    """Return whether a process may hold the writer's lock, without touching the lock.

    Args:
        folder: The folder of the memory.

    Returns:
        False if no process has named itself as the holder, or the named one of this machine has ended. True otherwise,
        also for a holder on another machine, which cannot be checked.
    """
    try:
        holder = json.loads((folder / HOLDER).read_text("utf-8"))
        pid, host = int(holder["pid"]), str(holder["host"])
    except FileNotFoundError:
        return False
    except (OSError, ValueError, KeyError, TypeError):
        return True
    if host != socket.gethostname():
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _write_holder(file: Path) -> None:
    # The holder is only for messages: a full disk must not stop a writer.
    with contextlib.suppress(OSError):
        file.write_text(
            json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": utc_timestamp()}), "utf-8"
        )


def _read_holder(file: Path) -> str:
    try:
        holder = json.loads(file.read_text("utf-8"))
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _read_source(folder: Path) -> str:
    try:
        return (folder / FOLLOWED).read_text("utf-8")[:200]
    except (OSError, ValueError):
        return "another memory"
