"""Checksums of files: a crc32 of every block, found fast, and one sha256 of the whole."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ibidem.memory.damage import RESTORE, DamagedFile, unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    import numpy as np
    from numpy.typing import NDArray

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


def block_fault(blocks: Iterable[int]) -> str:
    """What is said of blocks whose crc32 differs."""
    numbers = list(blocks)
    named = ", ".join(str(number) for number in numbers[:_NAMED_BLOCKS])
    more = f" and {len(numbers) - _NAMED_BLOCKS} more" if len(numbers) > _NAMED_BLOCKS else ""
    return f"block {named}{more} (of {BLOCK_BYTES} bytes) does not match its crc32"


def size_fault(found: int, expected: int) -> str:
    """What is said of a file that is longer or shorter than was recorded."""
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

    `advance` is told the bytes of each block as it is read. Raises DamagedFile, which names the bad blocks if
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
        raise unreadable(path, error, remedy, name) from error
    found = digester.digest()
    if found.bytes != size:
        raise DamagedFile(path, size_fault(found.bytes, size), remedy, name)
    if crcs is not None and found.crcs != crcs:
        bad = [number for number, (a, b) in enumerate(zip(found.crcs, crcs, strict=True)) if a != b]
        raise DamagedFile(path, block_fault(bad), remedy, name)
    if found.sha256 != sha256:
        raise DamagedFile(path, "its sha256 is not the one recorded", remedy, name)
