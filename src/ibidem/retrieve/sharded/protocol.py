"""The messages between a shard and its clients: length-prefixed frames of binary arrays.

A frame has a header of 32 bytes: the magic bytes "ibsh", the version, the kind, the bytes that follow, the number of
the request, and the digest of the hidden entries that a search leaves out. All numbers are little-endian. Whatever the
other side sends, reading it raises `WireError` or gives arrays of the announced shapes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ibidem.native import SearchMode
from ibidem.retrieve.parts import Found, Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = 1
HEADER = struct.Struct("<4sBBHIIQQ")
MAGIC = b"ibsh"

HELLO, CHALLENGE, PROOF, WELCOME, REFUSED, SEARCH, FOUND, HIDE, FAILED, SHARE, SHARED = range(1, 12)
"""Kinds of frames."""

MOST_ROWS = 1 << 14
MOST_K = 1024
MOST_BYTES = 1 << 26
"""Limits of a frame after authentication."""
MOST_BYTES_BEFORE = 512
"""Limit of a frame before authentication, for the shard."""
MOST_BYTES_OF_GREETING = 1 << 14
"""Limit of a frame before authentication, for the client."""

_SHAPE = struct.Struct("<IIII")


class WireError(Exception):
    """Raised where the other side breaks the protocol; the connection is closed then."""


class VersionError(WireError):
    """Raised where the other side has another version of the protocol."""


class Frame(NamedTuple):
    """A message.

    Attributes:
        kind: One of the kinds above.
        request: The number of the request; 0 where there is none.
        hidden: The digest of the hidden entries; 0 where there are none.
        payload: The bytes after the header; valid until the next frame is read.
    """

    kind: int
    request: int
    hidden: int
    payload: memoryview


def encode_header(kind: int, size: int, request: int = 0, hidden: int = 0) -> bytes:
    """Encode the header of a frame.

    Args:
        kind: The kind.
        size: The bytes of the payload.
        request: The number of the request.
        hidden: The digest of the hidden entries.
    """
    return HEADER.pack(MAGIC, VERSION, kind, 0, size, 0, request, hidden)


def read_header(header: bytes | memoryview, most: int) -> tuple[int, int, int, int]:
    """Read the header of a frame.

    Args:
        header: Its 32 bytes.
        most: The most bytes of the payload.

    Returns:
        The kind, the bytes of the payload, the number of the request, and the digest of the hidden entries.

    Raises:
        WireError: It is not valid, of another version, or announces too much.
    """
    magic, version, kind, zero, size, more, request, hidden = HEADER.unpack(header)
    if magic != MAGIC:
        raise WireError("it does not use the protocol of shards")
    if version != VERSION:
        raise VersionError(
            f"it has version {version} of the protocol, and this ibidem version {VERSION}: install the same "
            "version of ibidem on both sides"
        )
    if zero or more or not HELLO <= kind <= SHARED:
        raise WireError("it sent a header that is not valid")
    if size > most:
        raise WireError(f"it announced {size:,} bytes, more than {most:,}")
    return kind, size, request, hidden


class FrameReader:
    """Puts frames together from bytes as they arrive.

    Args:
        most: The most bytes of a payload.

    Attributes:
        most: The most bytes of a payload; it may be changed between frames.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._header = memoryview(bytearray(HEADER.size))
        self._payload = bytearray()
        self._taken = 0
        self._size = -1  # bytes of the payload; -1 while the header is read
        self._fields = (0, 0, 0)

    def place(self) -> memoryview:
        """Return where the next bytes belong; at least one byte."""
        if self._size < 0:
            return self._header[self._taken :]
        return memoryview(self._payload)[self._taken : self._size]

    def add(self, count: int) -> Frame | None:
        """Take bytes that were written to `place()`.

        Args:
            count: The number of bytes, at least 1.

        Returns:
            The frame that they complete; None where more bytes are needed.

        Raises:
            WireError: They are not the beginning of a frame, or it is too large.
        """
        self._taken += count
        if self._size < 0:
            if self._taken < HEADER.size:
                return None
            self._begin()
        if self._taken < self._size:
            return None
        frame = Frame(*self._fields, memoryview(self._payload)[: self._size])
        self._taken, self._size = 0, -1
        return frame

    def _begin(self) -> None:
        kind, size, request, hidden = read_header(self._header, self.most)
        if len(self._payload) < size:
            self._payload = bytearray(size)  # another one, so that earlier frames keep theirs
        self._fields, self._size, self._taken = (kind, request, hidden), size, 0


def encode_search(rows: Rows) -> list[bytes | memoryview]:
    """Encode queries as the payload of a SEARCH frame, in pieces.

    Args:
        rows: The queries.
    """
    count, dimension = rows.queries.shape
    shape = _SHAPE.pack(count, rows.k, rows.group_size, dimension)
    modes = rows.modes.tobytes() + b"\0" * _padding(count)
    return [shape + modes, np.ascontiguousarray(rows.queries, "<f4").data.cast("B")]


def decode_search(payload: memoryview, dimension: int) -> Rows:
    """Decode the payload of a SEARCH frame.

    Args:
        payload: The bytes.
        dimension: The components of a key of the shard.

    Raises:
        WireError: The bytes are no queries for this shard, or beyond a limit.
    """
    if len(payload) < _SHAPE.size:
        raise WireError("it sent a search that is too short")
    count, k, group_size, given = _SHAPE.unpack_from(payload)
    if given != dimension:
        raise WireError(f"it sent queries of {given} dimensions, and the keys have {dimension}")
    if not 1 <= count <= MOST_ROWS or not 1 <= k <= MOST_K or not 1 <= group_size <= count:
        raise WireError(f"it requested {k} neighbours of {count} queries in groups of {group_size}")
    begin = _SHAPE.size + count + _padding(count)
    if len(payload) != begin + 4 * count * dimension:
        raise WireError("it sent a search of another size than announced")
    modes = np.frombuffer(payload, np.uint8, count, _SHAPE.size)
    if modes.max() > SearchMode.FULL:
        raise WireError("it sent a mode that does not exist")
    queries = np.frombuffer(payload, "<f4", count * dimension, begin).reshape(count, dimension)
    return Rows(queries, modes, group_size, k)


def encode_found(found: Found) -> list[bytes | memoryview]:
    """Encode neighbours as the payload of a FOUND frame, in pieces.

    Args:
        found: The neighbours.
    """
    count, k = found.entries.shape
    width = found.distances.dtype.itemsize
    parts = (np.ascontiguousarray(found.entries, "<i8"), np.ascontiguousarray(found.distances, f"<f{width}"))
    return [_SHAPE.pack(count, k, width, 0), *(part.data.cast("B") for part in parts)]


def decode_found(payload: memoryview, rows: int, k: int, size: int, *, precise: bool) -> Found:
    """Decode the payload of a FOUND frame into arrays of their own, and check every number.

    Args:
        payload: The bytes.
        rows: The number of queries that were sent.
        k: The neighbours that were requested.
        size: The number of entries of the part.
        precise: Whether the distances are float64.

    Raises:
        WireError: The bytes are not what was requested, or no neighbours of this part.
    """
    width = 8 if precise else 4
    count = rows * k
    if len(payload) != _SHAPE.size + (8 + width) * count or _SHAPE.unpack_from(payload) != (rows, k, width, 0):
        raise WireError("it sent an answer of another shape than was requested")
    entries = np.frombuffer(payload, "<i8", count, _SHAPE.size).reshape(rows, k).copy()
    distances = np.frombuffer(payload, f"<f{width}", count, _SHAPE.size + 8 * count).reshape(rows, k).copy()
    absent = entries < 0
    if entries.max() >= size or entries.min() < -1:
        raise WireError("it sent entries that its part does not have")
    if not (distances >= 0).all() or not np.array_equal(np.isinf(distances), absent):
        raise WireError("it sent distances that are none")
    if not (distances[:, 1:] >= distances[:, :-1]).all():
        raise WireError("it sent neighbours that are not sorted")
    return Found(distances, entries)


def encode_hidden(entries: NDArray[np.int64]) -> memoryview:
    """Encode hidden entries as the payload of a HIDE frame.

    Args:
        entries: [n] ascending, at least one.
    """
    return np.ascontiguousarray(entries, "<i8").data.cast("B")


def decode_hidden(payload: memoryview, size: int) -> NDArray[np.int64]:
    """Decode the payload of a HIDE frame.

    Args:
        payload: The bytes.
        size: The number of entries of the part.

    Returns:
        [n] ascending.

    Raises:
        WireError: The bytes are no ascending entries of the part.
    """
    if not len(payload) or len(payload) % 8:
        raise WireError("it sent hidden entries of a wrong size")
    entries = np.frombuffer(payload, "<i8").astype(np.int64)
    if entries[0] < 0 or entries[-1] >= size or not (np.diff(entries) > 0).all():
        raise WireError("it sent hidden entries that its part does not have")
    return entries


def _padding(count: int) -> int:
    return -count % 16
