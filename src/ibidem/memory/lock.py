"""The writer's lock: held by the operating system, so that a killed holder leaves none behind."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from typing import TYPE_CHECKING

from ibidem.errors import LockedMemoryError, MemoryFolderError
from ibidem.memory.manifest import moment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK = "lock"

if sys.platform == "win32":
    import msvcrt

    # Windows forbids reading locked bytes, so the lock lies beyond the text that names its holder.
    _LOCKED_BYTE = 1 << 30

    def _take(descriptor: int) -> None:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError from error

    def _release(descriptor: int) -> None:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _take(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _release(descriptor: int) -> None:
        # Closing alone would leave the lock with a forked child that inherited the descriptor.
        fcntl.flock(descriptor, fcntl.LOCK_UN)


# How often one who waits for the lock looks again, in seconds.
_PAUSE = 0.002


@contextlib.contextmanager
def writer_lock(folder: Path, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock of a memory; raises LockedMemoryError if another writer holds it for `patience` seconds more."""
    file = folder / LOCK
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    except FileNotFoundError as error:
        raise MemoryFolderError(f"there is no memory at {folder}: check the path") from error
    except OSError as error:
        raise MemoryFolderError(f"cannot write to {folder}: {error.strerror}; gain the permission first") from error
    try:
        try:
            _wait(descriptor, patience)
        except BlockingIOError as error:
            raise LockedMemoryError(f"{folder} is being written by {_holder(file)}; wait for it or stop it") from error
        except OSError as error:
            raise MemoryFolderError(
                f"cannot lock {file}: {error.strerror}; keep the memory on a file system that has locks"
            ) from error
        try:
            _sign(descriptor, {"pid": os.getpid(), "host": socket.gethostname(), "since": moment()})
            yield
        finally:
            _sign(descriptor, None)
            _release(descriptor)
    finally:
        os.close(descriptor)


def _wait(descriptor: int, patience: float) -> None:
    end = time.monotonic() + patience
    while True:
        try:
            return _take(descriptor)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise
        time.sleep(_PAUSE)


def _sign(descriptor: int, holder: dict[str, object] | None) -> None:
    # The name of the holder is a courtesy: a full disk must not keep a writer from cleaning up.
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        if holder is not None:
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, json.dumps(holder).encode("utf-8"))


def _holder(file: Path) -> str:
    try:
        holder = json.loads(file.read_text("utf-8"))
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
