"""Writing files so that a killed process or a full disk leaves either the old file or the new one."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from typing import TYPE_CHECKING

import numpy as np

from ibidem.errors import CommittedError, MemoryFolderError
from ibidem.memory.digests import Digest, Digester, blocks_of, blocks_of_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

TEMPORARY = ".tmp-"


def temporary(path: Path) -> Path:
    """The name beside `path` under which it is written before it is renamed."""
    return path.with_name(TEMPORARY + path.name)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable, as far as its file system can."""
    if os.name == "nt":  # Windows cannot open a directory; its renames are journalled
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network, FUSE and read-only file systems cannot sync a directory, and would never take a memory.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Make a directory and its missing parents, durably.

    The parent of one that exists already is synced too: a process may have been killed after it made the directory
    and before it synced its name.
    """
    existed = path.is_dir()
    if not existed:
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
    try:
        sync_directory(path.parent)
    except PermissionError:
        if not existed:  # else its parent belongs to another user, who made it
            raise


def write_blocks(path: Path, blocks: Iterable[bytes | memoryview]) -> Digest:
    """Write blocks of BLOCK_BYTES to a new file, durably, and return their digest."""
    digester = Digester()
    with path.open("wb") as file:
        for block in blocks:
            file.write(block)
            digester.add(block)
        file.flush()
        os.fsync(file.fileno())
    return digester.digest()


def link_file(source: Path, target: Path) -> None:
    """Give a file that never changes a second name; a copy where the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        with source.open("rb") as file:
            write_blocks(target, blocks_of_file(file))


def rename(source: Path, target: Path) -> None:
    """Give a written file or directory its name, durably, in place of any file of that name."""
    os.replace(source, target)  # noqa: PTH105 (one name for tests to make fail)
    sync_directory(target.parent)


def prepare_file(path: Path, content: bytes) -> tuple[Path, Digest]:
    """Write the content of a file durably beside its place; return where, and the digest."""
    beside = temporary(path)
    return beside, write_blocks(beside, blocks_of(np.frombuffer(content, np.uint8)))


def replace_file(path: Path, content: bytes) -> Digest:
    """Put a file with this content in place at once."""
    beside, digest = prepare_file(path, content)
    rename(beside, path)
    return digest


def commit_file(beside: Path, path: Path, done: str) -> None:
    """Give a prepared file its name, which commits a change.

    Raises OSError where nothing is committed, and CommittedError, beginning with `done`, where the name is in place and
    only the disk's confirmation is missing.
    """
    os.replace(beside, path)  # noqa: PTH105 (one name for tests to make fail)
    try:
        sync_directory(path.parent)
    except OSError as error:
        raise CommittedError(
            f"{done}, but the disk did not confirm it ({error.strerror}): it need not be made again, and may be lost "
            "in a power cut; check the disk, then run `ibidem verify`"
        ) from error


def remove_file(path: Path) -> None:
    """Remove a file or a directory if the system lets us."""
    # Windows keeps what a reader has mapped: such a file stays until a later writer sweeps.
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


@contextlib.contextmanager
def reported_writes(folder: Path) -> Iterator[None]:
    """Turn a failed write (disk full, no permission) into a MemoryFolderError."""
    try:
        yield
    except OSError as error:
        raise MemoryFolderError(
            f"could not write to {error.filename or folder}: {error.strerror}; the memory {folder} stays at "
            "its last committed generation: make room, or gain the permission, and run again"
        ) from error
