"""A file, or standard input, as a stream of bytes or of lines, decompressed, in bounded memory."""

from __future__ import annotations

import gzip
import io
import lzma
import stat
import sys
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.limits import BLOCK, LONGEST, Check, ReadLimits, no_check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import WriteableBuffer

STDIN = "-"
COMPRESSED = (".gz", ".xz")

RECODE = "Convert it to UTF-8 first, for instance: iconv -f latin1 -t utf-8 OLD > NEW"

_BOM = b"\xef\xbb\xbf"
_UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError)


class Stream:
    """An input that is opened as a context manager, and knows how much of itself was consumed.

    `origin` is the path as the user gave it, `name` what messages call it. `size` is the number of
    (compressed) bytes, None where it cannot be known. `line` is the number of lines read. Whatever goes wrong
    while reading is a TextError that names the file.

    `check` is called for each block that is read or decompressed, and stops reading by raising; a reader that works
    for long without reading calls it too.
    """

    def __init__(self, origin: str, limits: ReadLimits | None = None, check: Check = no_check) -> None:
        self.origin = origin
        self.limits = limits or ReadLimits()
        self.check = check
        self.name = "standard input" if origin == STDIN else origin
        self.size = None if origin == STDIN else _size(origin)
        self.line = 0
        self._consumed = 0
        self._stack = ExitStack()
        self._file: IO[bytes] | None = None
        self._body: IO[bytes] = io.BytesIO()

    def __enter__(self) -> Stream:
        if self.origin == STDIN:
            self._body = sys.stdin.buffer
            return self
        if self.size == 0 and self.origin.lower().endswith(COMPRESSED):
            # gzip.GzipFile would take an empty file for an empty text.
            raise self._unreadable(EOFError("the file is empty"))
        try:
            file = self._stack.enter_context(Path(self.origin).open("rb", buffering=0))
        except OSError as error:
            raise _unopened(self.origin, error) from error
        source = _Checked(file, self.check)
        self._file = io.BufferedReader(source, BLOCK)
        self._body = self._decompress(self._file, source)
        return self

    def __exit__(self, *_: object) -> None:
        self._consumed = self.consumed()
        self._file = None
        self._stack.close()

    def consumed(self) -> int:
        """Count the (compressed) bytes taken from the file so far; 0 where that cannot be known."""
        if self._file is None or self.size is None:
            return self._consumed
        return self._file.tell()

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes, none only at the end."""
        try:
            return self._body.read(size)
        except _UNREADABLE as error:
            raise self._unreadable(error) from error

    def raw_lines(self) -> Iterator[bytes]:
        """Yield each line with its `\\n`; a second call goes on where the first left off."""
        while True:
            try:
                line = self._body.readline(LONGEST + 1)
            except _UNREADABLE as error:
                raise self._unreadable(error) from error
            if not line:
                return
            self.line += 1
            if len(line) > LONGEST:
                raise TextError(
                    f"{self.name}, line {self.line}: longer than {LONGEST:,} bytes. "
                    "Check that it is a text file with one segment a line."
                )
            yield line

    def lines(self, remedy: str = RECODE) -> Iterator[tuple[int, str]]:
        """Yield the number, from 1, and the text of each line, without its `\\n` or `\\r\\n`.

        A byte order mark at the start is left out. A byte that is not UTF-8 is a TextError that ends in
        `remedy`.
        """
        for raw in self.raw_lines():
            number = self.line
            body = raw.removesuffix(b"\n").removesuffix(b"\r")
            if number == 1:
                body = body.removeprefix(_BOM)
            try:
                yield number, body.decode("utf-8")
            except UnicodeDecodeError as error:
                raise bad_byte(self.name, number, body[error.start], remedy) from error

    def _decompress(self, file: IO[bytes], source: _Checked) -> IO[bytes]:
        ending = self.origin.lower()
        if ending.endswith(".gz"):
            unpacked: io.RawIOBase | gzip.GzipFile = self._stack.enter_context(gzip.GzipFile(fileobj=file, mode="rb"))
        elif ending.endswith(".xz"):
            unpacked = _Xz(file, self.limits.unpack_bytes)
        else:
            return file
        # The readline of GzipFile is slow Python; a buffer around it reads lines in C.
        return io.BufferedReader(_Unpacked(unpacked, self, source), BLOCK)

    def _unreadable(self, error: Exception) -> TextError:
        if not self.origin.lower().endswith(COMPRESSED):
            return TextError(f"{self.name}: cannot be read ({error}). Check the file and the disk.")
        if _is_memory_limit(error):
            return TextError(
                f"{self.name}: unpacking takes more than {self.limits.unpack_bytes:,} bytes of memory. "
                "Compress it again with `xz -6`."
            )
        tool = "gzip -t" if self.origin.lower().endswith(".gz") else "xz -t"
        return TextError(
            f"{self.origin}: the compressed file is truncated or damaged ({error}). "
            f"Check it with `{tool} {self.origin}`, then copy or compress it again."
        )


class _Checked(io.RawIOBase):
    """An unbuffered file that calls a check before each read, and counts the bytes taken."""

    def __init__(self, file: io.FileIO, check: Check) -> None:
        self._file = file
        self._check = check
        self.taken = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        self._check()
        count = self._file.readinto(buffer)
        self.taken += count or 0
        return count

    def tell(self) -> int:
        return self._file.tell()


class _Unpacked(io.RawIOBase):
    """Decompressed bytes, which are counted and checked."""

    def __init__(self, file: io.RawIOBase | gzip.GzipFile, stream: Stream, source: _Checked) -> None:
        self._file = file
        self._stream = stream
        self._source = source
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        stream = self._stream
        stream.check()
        count = self._file.readinto(buffer)
        self._count += count or 0
        stream.limits.check_expansion(stream.name, stream.size or self._source.taken, self._count)
        return count


class _Xz(io.RawIOBase):
    """An .xz file of any number of streams, decompressed; `lzma.LZMAFile` cannot limit the memory that this takes."""

    def __init__(self, file: IO[bytes], memory: int) -> None:
        self._file = file
        self._memory = memory
        self._decoder = lzma.LZMADecompressor(memlimit=memory)
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        part = b""
        while not part and not self._ended:
            part = self._next_stream(len(view)) if self._decoder.eof else self._go_on(len(view))
        view[: len(part)] = part
        return len(part)

    def _go_on(self, most: int) -> bytes:
        packed = self._file.read(io.DEFAULT_BUFFER_SIZE) if self._decoder.needs_input else b""
        if self._decoder.needs_input and not packed:
            raise EOFError("it ends before the end of its stream")
        return self._decoder.decompress(packed, most)

    def _next_stream(self, most: int) -> bytes:
        packed = self._decoder.unused_data or self._file.read(io.DEFAULT_BUFFER_SIZE)
        if not packed:
            self._ended = True
            return b""
        self._decoder = lzma.LZMADecompressor(memlimit=self._memory)
        try:
            return self._decoder.decompress(packed, most)
        except lzma.LZMAError as error:
            if _is_memory_limit(error):
                raise
            # Other bytes after the last stream are ignored, as by `lzma.LZMAFile`.
            self._ended = True
            return b""


def _is_memory_limit(error: Exception) -> bool:
    return isinstance(error, lzma.LZMAError) and "memory usage limit" in str(error).lower()


def _size(origin: str) -> int | None:
    try:
        status = Path(origin).stat()
    except (OSError, ValueError) as error:
        raise _unopened(origin, error) from error
    if stat.S_ISDIR(status.st_mode):
        raise TextError(f"{origin}: is a folder. Give the path of a file in it.")
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _unopened(origin: str, error: Exception) -> TextError:
    what = getattr(error, "strerror", None) or error
    return TextError(f"{origin}: cannot be opened ({what}). Check the path and the permissions.")


def bad_byte(name: str, line: int, byte: int, remedy: str = RECODE) -> TextError:
    """Describe a byte that is not UTF-8."""
    return TextError(f"{name}, line {line}: byte 0x{byte:02X} is not UTF-8. {remedy}")
