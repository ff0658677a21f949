"""Encodings of parallel text: UTF-16 recognised by its bytes, stated encodings, and conversion to UTF-8."""

from __future__ import annotations

import codecs
import io
from typing import IO, TYPE_CHECKING

from ibidem.errors import TextError, UsageError
from ibidem.wording import describe_option

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

HEAD_BYTES = 4096
"""The number of bytes from which an encoding is recognised."""

_BLOCK_BYTES = 2**16
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_LEAST_PAIRS = 4
_ZERO_SHARE = 0.7


def recognize_utf_16(head: bytes) -> str | None:
    """Recognise UTF-16 by its byte order mark, or by the zero bytes of Latin letters.

    Args:
        head: The beginning of a file.

    Returns:
        The name of the encoding; None if the text is not in UTF-16.

    Examples:
        >>> recognize_utf_16("Tür".encode("utf-16")), recognize_utf_16("Die Tür".encode("utf-16-be"))
        ('utf-16', 'utf-16-be')
    """
    if head.startswith(_UTF_16_MARKS):
        return "utf-16"
    pairs = len(head) // 2
    zeros = [head[first : 2 * pairs : 2].count(0) for first in (0, 1)]
    if pairs >= _LEAST_PAIRS and max(zeros) > _ZERO_SHARE * pairs and min(zeros) < (1 - _ZERO_SHARE) * pairs:
        return "utf-16-le" if zeros[1] > zeros[0] else "utf-16-be"
    return None


def find_encoding(name: str) -> str:
    """Return the name of an encoding as Python writes it.

    Args:
        name: The name as a user writes it, such as "Windows-1252".

    Raises:
        UsageError: If there is no such encoding of text.

    Examples:
        >>> find_encoding("Windows-1252")
        'cp1252'
    """
    try:
        "".encode(name)
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        raise UsageError(
            f"{name!r} is not an encoding of text. Use one such as utf-8, cp1252 (Excel on Windows), latin1 or utf-16."
        ) from None


class RecodedFile(io.RawIOBase):
    """The rest of a file, converted to UTF-8 while it is read.

    Args:
        first: Bytes that were read already.
        body: The rest of the file.
        encoding: The encoding of both; None leaves the bytes as they are.
        name: The name of the file, for messages.
    """

    def __init__(self, first: bytes, body: IO[bytes], encoding: str | None, name: str) -> None:
        self._first = first
        self._body = body
        self._encoding = encoding
        self._name = name
        self._ready = b""
        self._ended = False
        self._decoder = codecs.getincrementaldecoder(encoding)() if encoding else None

    def readable(self) -> bool:
        """Return that the file can be read."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read into a buffer.

        Args:
            buffer: Receives the bytes.

        Returns:
            The number of bytes, 0 only at the end.

        Raises:
            TextError: If a byte is not valid in the encoding.
        """
        view = memoryview(buffer)
        while not self._ready and not self._ended:
            block = self._first or self._body.read(_BLOCK_BYTES)
            self._first = b""
            self._ended = not block
            self._ready = self._convert(block)
        part, self._ready = self._ready[: len(view)], self._ready[len(view) :]
        view[: len(part)] = part
        return len(part)

    def _convert(self, block: bytes) -> bytes:
        if self._decoder is None:
            return block
        try:
            return self._decoder.decode(block, self._ended).encode("utf-8")
        except UnicodeError as error:
            what = error.reason if isinstance(error, UnicodeDecodeError) else "a surrogate"
            raise TextError(
                f"{self._name}: it is not valid {self._encoding} ({what}). Name its encoding with "
                f"{describe_option('--encoding', 'NAME')}, or convert it to UTF-8."
            ) from None
