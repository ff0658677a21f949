"""Arrays of a sealed segment: raw little-endian files, mapped, each block verified when first touched."""

from __future__ import annotations

import mmap
import os
import zlib
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.memory.damage import DamagedFile, unreadable
from ibidem.memory.digests import BLOCK_BYTES, block_fault, size_fault

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from ibidem.memory.fields import Fields


@dataclass(frozen=True)
class ArrayRecord:
    """What segment.json says of one array."""

    dtype: str
    shape: tuple[int, ...]
    bytes: int
    sha256: str
    crcs: tuple[int, ...]

    @classmethod
    def from_fields(cls, fields: Fields, dtype: str, shape: tuple[int | None, ...]) -> ArrayRecord:
        """Read and check against the type and shape that the manifest implies (None: any length)."""
        found = fields.integers("shape")
        if len(found) != len(shape) or any(b not in (a, None) for a, b in zip(found, shape, strict=True)):
            raise fields.fault("shape", f"the shape {list(shape)} that the manifest implies")
        if fields.text("dtype") != dtype:
            raise fields.fault("dtype", repr(dtype))
        size = prod(found) * np.dtype(dtype).itemsize
        if fields.integer("bytes") != size:
            raise fields.fault("bytes", f"{size}, as its shape implies")
        crcs = fields.integers("crcs", most=0xFFFFFFFF)
        if len(crcs) != -(-size // BLOCK_BYTES):
            raise fields.fault("crcs", f"a list of {-(-size // BLOCK_BYTES)} whole numbers")
        return cls(dtype, found, size, fields.sha256("sha256"), crcs)


class StoredArray:
    """A read-only array on disk; every block's crc32 is checked the first time that a byte of it is read.

    Raises DamagedMemoryError if the file is missing, has not the recorded size, or holds a changed block.
    """

    def __init__(self, path: Path, record: ArrayRecord) -> None:
        self._path = path
        self._crcs = record.crcs
        self._content = _content(path, record.bytes)
        self._rows: NDArray[Any] = self._content.view(record.dtype).reshape(record.shape)
        self._row_bytes = self._rows.dtype.itemsize * prod(record.shape[1:])
        self._verified = np.zeros(len(record.crcs), bool)
        self._whole = not record.crcs

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows start:stop, verified, without a copy."""
        if not self._whole and stop > start:
            first, last = start * self._row_bytes, stop * self._row_bytes - 1
            self._verify(np.arange(first // BLOCK_BYTES, last // BLOCK_BYTES + 1))
        return self._rows[start:stop]

    def all(self) -> NDArray[Any]:
        """Every row, verified, without a copy."""
        return self.read(0, len(self))

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """The rows with these numbers, verified and copied."""
        if not self._whole and rows.size:
            first = rows * self._row_bytes // BLOCK_BYTES
            last = ((rows + 1) * self._row_bytes - 1) // BLOCK_BYTES
            touched = np.zeros(len(self._crcs), bool)
            for step in range(int((last - first).max()) + 1):
                touched[np.minimum(first + step, last)] = True
            self._verify(np.flatnonzero(touched))
        found: NDArray[Any] = self._rows[rows]
        return found

    def _verify(self, blocks: NDArray[np.int64]) -> None:
        for block in blocks[~self._verified[blocks]].tolist():
            content = self._content[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES].data
            if zlib.crc32(content) != self._crcs[block]:
                raise DamagedFile(self._path, block_fault([block]))
            self._verified[block] = True
        self._whole = bool(self._verified.all())


def _content(path: Path, size: int) -> NDArray[np.uint8]:
    """The bytes of a file whose size is checked before anything is mapped or allocated."""
    try:
        with path.open("rb") as file:
            if (found := os.fstat(file.fileno()).st_size) != size:
                raise DamagedFile(path, size_fault(found, size))
            if size > BLOCK_BYTES:
                return np.frombuffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), np.uint8)
            # A mapping holds a file descriptor as long as it lives: too dear for a thousand small segments.
            content = file.read(size)
    except (OSError, ValueError) as error:  # mmap raises ValueError if the file shrank meanwhile
        raise unreadable(path, error if isinstance(error, OSError) else OSError(0, str(error))) from error
    if len(content) != size:
        raise DamagedFile(path, size_fault(len(content), size))
    return np.frombuffer(content, np.uint8)
