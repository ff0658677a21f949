"""Files of a memory: durable writes, checksums, and the errors for damaged files."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ibidem.errors import CommittedError, DamagedMemoryError, MemoryFolderError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from numpy.typing import NDArray


RESTORE = "restore it from a copy, or learn the memory again"

_NOT_DAMAGE = {errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM}


@dataclass(frozen=True)
class Damage:
    """One damaged file of a memory: its path relative to the folder, and what is wrong with it."""

    file: str
    reason: str


class DamagedFile(DamagedMemoryError):  # noqa: N818 (the family's name is the base class's)
    """The damage of one file; `file` and `reason` are kept apart for `verify`."""

    def __init__(self, file: Path, reason: str, remedy: str = RESTORE, name: str = "") -> None:
        super().__init__(f"{name or file} is damaged: {reason}; {remedy}")
        self.file = file
        self.reason = reason


def read_error(file: Path, error: OSError, remedy: str = RESTORE, name: str = "") -> MemoryFolderError:
    """The error for a file that the system would not read: damage, unless the reason lies with the reader."""
    if isinstance(error, FileNotFoundError):
        return DamagedFile(file, "the file is missing", remedy, name)
    if error.errno in _NOT_DAMAGE:
        return MemoryFolderError(
            f"cannot read {name or file}: {error.strerror}; check the file's permissions and the limits of "
            "this process (ulimit -a), then run again"
        )
    return DamagedFile(file, f"it cannot be read ({error.strerror})", remedy, name)


BLOCK_BYTES = 1 << 20
_NAMED_BLOCKS = 8


@dataclass(frozen=True)
class Digest:
    """The size in bytes, the sha256 (hexadecimal) and the crc32 of every block of a file."""

    bytes: int
    sha256: str
    crcs: tuple[int, ...]


class Digester:
    """Collects a digest from blocks of BLOCK_BYTES (the last may be shorter)."""

    def __init__(self) -> None:
        self._bytes = 0
        self._sha256 = hashlib.sha256()
        self._crcs: list[int] = []

    def add(self, block: bytes | memoryview) -> None:
        """Take the next block of the file."""
        self._bytes += len(block)
        self._sha256.update(block)
        self._crcs.append(zlib.crc32(block))

    def digest(self) -> Digest:
        """The digest of all blocks added so far."""
        return Digest(self._bytes, self._sha256.hexdigest(), tuple(self._crcs))


def blocks_of(content: NDArray[np.uint8]) -> Iterator[memoryview]:
    """The bytes of an array, a block at a time."""
    return (content[start : start + BLOCK_BYTES].data for start in range(0, len(content), BLOCK_BYTES))


def blocks_of_file(file: BinaryIO) -> Iterator[bytes]:
    """The bytes of an open file, a block at a time."""
    while block := file.read(BLOCK_BYTES):
        yield block


def describe_blocks(blocks: Iterable[int]) -> str:
    """Describe blocks whose crc32 differs."""
    numbers = list(blocks)
    named = ", ".join(str(number) for number in numbers[:_NAMED_BLOCKS])
    more = f" and {len(numbers) - _NAMED_BLOCKS} more" if len(numbers) > _NAMED_BLOCKS else ""
    return f"block {named}{more} (of {BLOCK_BYTES} bytes) does not match its crc32"


def describe_size(found: int, expected: int) -> str:
    """Describe a file whose size differs from the recorded one."""
    return f"it has {found} bytes, and {expected} were recorded"


def check_file(
    path: Path,
    size: int,
    sha256: str,
    crcs: tuple[int, ...] | None = None,
    *,
    advance: Callable[[int], None] | None = None,
    remedy: str = RESTORE,
    name: str = "",
) -> None:
    """Read every byte of a file and compare it with what was recorded.

    `advance` is called with the bytes of each block as it is read. Raises DamagedFile, which names the bad blocks if
    crcs are given.
    """
    digester = Digester()
    try:
        with path.open("rb") as file:
            for block in blocks_of_file(file):
                digester.add(block)
                if advance is not None:
                    advance(len(block))
    except OSError as error:
        raise read_error(path, error, remedy, name) from error
    found = digester.digest()
    if found.bytes != size:
        raise DamagedFile(path, describe_size(found.bytes, size), remedy, name)
    if crcs is not None and found.crcs != crcs:
        bad = [number for number, (a, b) in enumerate(zip(found.crcs, crcs, strict=True)) if a != b]
        raise DamagedFile(path, describe_blocks(bad), remedy, name)
    if found.sha256 != sha256:
        raise DamagedFile(path, "its sha256 is not the one recorded", remedy, name)


TEMPORARY = ".tmp-"


def temporary_path(path: Path) -> Path:
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
        if not existed:  # else its parent may belong to another user
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
    beside = temporary_path(path)
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
def write_errors(folder: Path) -> Iterator[None]:
    """Turn a failed write (disk full, no permission) into a MemoryFolderError."""
    try:
        yield
    except OSError as error:
        raise MemoryFolderError(
            f"could not write to {error.filename or folder}: {error.strerror}; the memory {folder} stays at "
            "its last committed generation: make room, or gain the permission, and run again"
        ) from error
