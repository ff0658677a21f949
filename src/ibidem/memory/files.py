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

RESTORE = "run `ibidem repair`, with --from if there is a backup, or learn the memory again"
_NOT_DAMAGE = {errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
BLOCK_BYTES = 1 << 20
_NAMED_BLOCKS = 8
TEMPORARY = ".tmp-"


@dataclass(frozen=True)
class Damage:
    """A damaged file of a memory.

    Attributes:
        file: Its path relative to the folder of the memory.
        reason: The kind of damage.
    """

    file: str
    reason: str


class DamagedFile(DamagedMemoryError):  # noqa: N818 (the base class has the suffix)
    """Raised for one damaged file.

    Attributes:
        file: The file.
        reason: The kind of damage; `verify` reports it.
    """

    def __init__(self, file: Path, reason: str, remedy: str = RESTORE, name: str = "") -> None:
        """Make the message.

        Args:
            file: The file.
            reason: The kind of damage, a clause such as "the file is missing".
            remedy: What the user can do, a clause.
            name: The name of the file in the message; empty for its path.
        """
        super().__init__(f"{name or file} is damaged: {reason}; {remedy}")
        self.file = file
        self.reason = reason


def read_error(file: Path, error: OSError, remedy: str = RESTORE, name: str = "") -> MemoryFolderError:
    """Return the error for a file that could not be read: damage, or a limit or permission of the process.

    Args:
        file: The file.
        error: The error of the operating system.
        remedy: What the user can do about a damaged file.
        name: The name of the file in the message; empty for its path.
    """
    if isinstance(error, FileNotFoundError):
        return DamagedFile(file, "the file is missing", remedy, name)
    if error.errno in _NOT_DAMAGE:
        return MemoryFolderError(
            f"cannot read {name or file}: {error.strerror}; check the file's permissions and the limits of "
            "this process (ulimit -a), then run again"
        )
    return DamagedFile(file, f"it cannot be read ({error.strerror})", remedy, name)


@dataclass(frozen=True)
class Digest:
    """The digest of a file.

    Attributes:
        bytes: The size.
        sha256: The sha256 in hexadecimal.
        crcs: The crc32 of each block of BLOCK_BYTES.
    """

    bytes: int
    sha256: str
    crcs: tuple[int, ...]


class Digester:
    """An accumulator for the digest of a file, from blocks of BLOCK_BYTES (the last may be shorter).

    Args:
        with_crcs: Whether to compute the crc32 of each block; the digest has none otherwise.
    """

    def __init__(self, *, with_crcs: bool = True) -> None:
        self._bytes = 0
        self._sha256 = hashlib.sha256()
        self._crcs: list[int] = []
        self._with_crcs = with_crcs

    def add(self, block: bytes | memoryview) -> None:
        """Add the next block.

        Args:
            block: Exactly BLOCK_BYTES bytes; only the last block may be shorter.
        """
        self._bytes += len(block)
        self._sha256.update(block)
        if self._with_crcs:
            self._crcs.append(zlib.crc32(block))

    def digest(self) -> Digest:
        """Return the digest of all blocks so far."""
        return Digest(self._bytes, self._sha256.hexdigest(), tuple(self._crcs))


def blocks_of(content: NDArray[np.uint8]) -> Iterator[memoryview]:
    """Yield the bytes of an array in blocks.

    Args:
        content: [n] uint8.

    Yields:
        Views of BLOCK_BYTES bytes; the last may be shorter.
    """
    return (content[start : start + BLOCK_BYTES].data for start in range(0, len(content), BLOCK_BYTES))


def blocks_of_file(file: BinaryIO) -> Iterator[bytes]:
    """Yield the rest of an open file in blocks.

    Args:
        file: A file that was opened for reading in binary mode.

    Yields:
        BLOCK_BYTES bytes; the last block may be shorter.
    """
    while block := file.read(BLOCK_BYTES):
        yield block


def describe_blocks(blocks: Iterable[int]) -> str:
    """Return the reason text for blocks with a wrong crc32.

    Args:
        blocks: The numbers of the blocks, from 0; only the first few are named.
    """
    numbers = list(blocks)
    named = ", ".join(str(number) for number in numbers[:_NAMED_BLOCKS])
    more = f" and {len(numbers) - _NAMED_BLOCKS} more" if len(numbers) > _NAMED_BLOCKS else ""
    return f"block {named}{more} (of {BLOCK_BYTES} bytes) does not match its crc32"


def describe_size(found: int, expected: int) -> str:
    """Return the reason text for a file with a wrong size.

    Args:
        found: The size on disk in bytes.
        expected: The recorded size in bytes.
    """
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
    """Read every byte of a file and compare it with its record.

    Args:
        path: The file.
        size: The recorded size in bytes.
        sha256: The recorded sha256.
        crcs: The recorded crc32 of each block, to name damaged blocks; None where they were not recorded.
        advance: A function that is called with the number of bytes of each block that was read.
        remedy: What the user can do about a damaged file.
        name: The name of the file in the message; empty for its path.

    Raises:
        DamagedFile: The file is missing or changed.
        MemoryFolderError: The process may not read the file, or has reached a limit.
    """
    digester = Digester(with_crcs=crcs is not None)
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


def temporary_path(path: Path) -> Path:
    """Return the temporary name under which `path` is written before it is renamed.

    Args:
        path: The final place of a file or directory.
    """
    return path.with_name(TEMPORARY + path.name)


def sync_directory(path: Path) -> None:
    """Sync a directory, so that the names in it are durable, as far as the file system supports it.

    Args:
        path: An existing directory.

    Raises:
        OSError: The directory cannot be opened, or the disk reports an error.
    """
    if os.name == "nt":  # Windows cannot open a directory; its renames are journalled
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network, FUSE and read-only file systems cannot sync a directory; a memory there is less durable.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Make a directory and its missing parents, durably.

    The parent of an existing directory is synced too: a process may have been killed after it made the directory and
    before it synced its name.

    Args:
        path: The directory; an existing one is kept.

    Raises:
        OSError: The directory cannot be made or synced.
    """
    existed = path.is_dir()
    if not existed:
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
    try:
        sync_directory(path.parent)
    except PermissionError:
        if not existed:  # the parent of an existing directory may belong to another user
            raise


def write_blocks(path: Path, blocks: Iterable[bytes | memoryview]) -> Digest:
    """Write blocks to a new file, durably.

    Args:
        path: The file; an existing one is overwritten.
        blocks: Blocks of BLOCK_BYTES; the last may be shorter.

    Returns:
        The digest of the file.

    Raises:
        OSError: The write failed; the file may be incomplete.
    """
    digester = Digester()
    with path.open("wb") as file:
        for block in blocks:
            file.write(block)
            digester.add(block)
        file.flush()
        os.fsync(file.fileno())
    return digester.digest()


def link_file(source: Path, target: Path) -> None:
    """Make a hard link to a file that never changes, or a copy where the file system has no hard links.

    Args:
        source: A file that never changes.
        target: The new name, which must not exist.

    Raises:
        FileExistsError: The new name exists.
        OSError: The file cannot be copied.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        raise  # a copy would overwrite the target, which may be a link to the source
    except OSError:
        with source.open("rb") as file:
            write_blocks(target, blocks_of_file(file))


def rename(source: Path, target: Path) -> None:
    """Rename a complete file or directory durably; an existing file of that name is replaced.

    Args:
        source: A complete file or directory.
        target: The new name in the same file system.

    Raises:
        OSError: The rename failed, or the disk did not confirm it.
    """
    os.replace(source, target)  # noqa: PTH105 (one name for tests to make fail)
    sync_directory(target.parent)


def prepare_file(path: Path, content: bytes) -> tuple[Path, Digest]:
    """Write the content of a file durably under a temporary name.

    Args:
        path: The final place of the file.
        content: All bytes of the file.

    Returns:
        The temporary path, for `commit_file` or `rename`, and the digest.
    """
    temporary = temporary_path(path)
    return temporary, write_blocks(temporary, blocks_of(np.frombuffer(content, np.uint8)))


def replace_file(path: Path, content: bytes) -> Digest:
    """Replace the content of a file atomically and durably.

    Args:
        path: The file; it need not exist.
        content: All bytes of the file.

    Returns:
        The digest of the content.

    Raises:
        OSError: The write failed. The file has its old content, unless only the last sync failed.
    """
    temporary, digest = prepare_file(path, content)
    rename(temporary, path)
    return digest


def fill_file(path: Path, fill: Callable[[Path], None]) -> None:
    """Write a file atomically and durably with a function that writes to a path.

    Args:
        path: The file; an existing one is replaced.
        fill: Writes to the temporary path that it gets, and raises OSError where that fails.

    Raises:
        OSError: The write failed. The file has its old content, unless only the last sync failed.
    """
    temporary = temporary_path(path)
    try:
        fill(temporary)
        with temporary.open("r+b") as file:  # Windows cannot sync a file that is open for reading only
            os.fsync(file.fileno())
        rename(temporary, path)
    finally:
        remove_file(temporary)


def commit_file(temporary: Path, path: Path, done: str) -> None:
    """Rename a prepared file to its place, which commits a change.

    Args:
        temporary: The prepared file.
        path: Its place.
        done: The beginning of the message of a CommittedError.

    Raises:
        OSError: Nothing was committed.
        CommittedError: The file is in its place, and the disk did not confirm it.
    """
    os.replace(temporary, path)  # noqa: PTH105 (one name for tests to make fail)
    try:
        sync_directory(path.parent)
    except OSError as error:
        raise CommittedError(
            f"{done}, but the disk did not confirm it ({error.strerror}): do not repeat it; it may be lost in a power "
            "cut; check the disk, then run `ibidem verify`"
        ) from error


def remove_file(path: Path) -> None:
    """Delete a file or a directory; errors of the operating system are ignored.

    Args:
        path: The file or directory; a missing one is ignored.
    """
    # Windows cannot delete a file that a reader has mapped: a later writer deletes it.
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


@contextlib.contextmanager
def write_errors(folder: Path) -> Iterator[None]:
    """Convert an error of the operating system (disk full, no permission) to a MemoryFolderError.

    Args:
        folder: The folder of the memory for the message.

    Raises:
        MemoryFolderError: The body raised an OSError; the message says that the last generation is kept.
    """
    try:
        yield
    except OSError as error:
        raise MemoryFolderError(
            f"could not write to {error.filename or folder}: {error.strerror}; the memory {folder} stays at "
            "its last committed generation: free disk space or get write permission, then run again"
        ) from error
