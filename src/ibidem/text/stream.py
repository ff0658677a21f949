"""Input files: a decompressed stream with limits on its size.

The limits ensure that a small file can neither exhaust the memory nor run without end. The constants are far above
anything in real translation files and apply to every caller. `ReadLimits` holds the limits that depend on the trust in
a file: the defaults suit the owner of the machine, a server sets stricter ones.
"""

from __future__ import annotations

import gzip
import io
import lzma
import re
import stat
import sys
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeAlias

from ibidem.errors import EncodingError, TextError
from ibidem.text.encoding import HEAD_BYTES, RecodedFile, find_encoding, recognize_utf_16
from ibidem.wording import describe_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import WriteableBuffer


MAX_TEXT = 2**20
"""The longest line, in bytes, or segment, in characters."""

MAX_UNIT_BYTES = 2**22
"""The longest XLIFF unit, and the longest comments and blank lines before one PO entry, in bytes."""

MAX_UNIT_TOKENS = 100_000
"""The most tags and pieces of text in one XML unit that is kept as a tree."""

MAX_DEPTH = 256
"""The most nested XML elements; expat allocates memory for each of them."""

MAX_ATTRIBUTES = 256
"""The most attributes of one XML element."""

MAX_NAMES = 10_000
"""The most different names of XML elements and attributes; expat stores each of them until the end."""

MAX_DOCTYPE_BYTES = 2**16
"""The longest XML document type declaration, in bytes."""

MAX_DEFAULTS = 32
"""The most default values of attributes in a document type; expat adds them to each element."""

MAX_DEFAULT_CHARACTERS = 1_000
"""The most characters of these default values together."""

MAX_NAMESPACE = 1_024
"""The longest URI of an XML namespace, in characters; it becomes part of each name in it."""

MAX_ORIGIN = 1_024
"""The longest origin that a file may state, in characters; a longer one is ignored."""

MAX_MO_SHARING = 4
"""The most bytes of all strings of an MO file, as a multiple of its size; above it, entries share strings."""

BLOCK_BYTES = 2**16
"""The number of bytes that are read, decompressed or parsed between two calls of a `Check`."""

Check: TypeAlias = Callable[[], None]
"""Called about once for each BLOCK_BYTES read or decompressed, also while no pair is found; raises to stop reading."""


def no_check() -> None:
    """Never stop reading."""


@dataclass(frozen=True)
class ReadLimits:
    """Limits on one corpus file.

    Attributes:
        expanded_bytes: The largest decompressed size, in bytes; None for no limit.
        ratio: The largest decompressed size as a multiple of the compressed size.
        ratio_bytes: The decompressed size, in bytes, above which `ratio` applies.
        unpack_bytes: The most memory, in bytes, for decompression.
        whole_bytes: The largest file, in bytes, of a format that is read whole (MO).
        dropped_in_a_row: The most consecutive units without a pair.
        segment: The most characters of one side; a longer pair is dropped.
    """

    expanded_bytes: int | None = None
    ratio: int = 300
    ratio_bytes: int = 2**28
    unpack_bytes: int = 2**31
    whole_bytes: int = 2**28
    dropped_in_a_row: int = 5_000_000
    segment: int = MAX_TEXT

    def check_expansion(self, name: str, packed: int, unpacked: int) -> None:
        """Check the decompressed size of a file.

        Args:
            name: The name of the file, for messages.
            packed: The compressed size in bytes.
            unpacked: The number of bytes decompressed so far.

        Raises:
            TextError: If the file exceeds a limit.
        """
        if self.expanded_bytes is not None and unpacked > self.expanded_bytes:
            raise TextError(f"{name}: unpacks to more than {self.expanded_bytes:,} bytes. Split it into several files.")
        if unpacked > self.ratio_bytes and unpacked > packed * self.ratio:
            raise TextError(
                f"{name}: unpacks to more than {self.ratio} times its size, which is unusual for text. "
                "If it is text, unpack it and give the unpacked file."
            )


STDIN = "-"
"""The path that stands for standard input."""

COMPRESSED_ENDINGS = (".gz", ".xz")
"""The endings of compressed files."""

RECODE = "Convert it to UTF-8 first, for instance: iconv -f latin1 -t utf-8 OLD > NEW"
"""The advice for a file that is not in UTF-8."""

NAME_ENCODING = (
    f"If a program such as Excel on Windows wrote it, give {describe_option('--encoding', 'cp1252')}. Else convert it "
    "to UTF-8 first: iconv -f ENCODING -t utf-8 OLD > NEW"
)
"""The advice for a file of parallel text that is not in UTF-8."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError)


class Stream:
    r"""An input file, decompressed by its ending and read in bounded memory.

    It is a context manager. Every failure to read is a TextError that names the file.

    Args:
        origin: The path, or "-" for standard input.
        limits: Limits on the decompressed size and on memory.
        check: Called for each block that is read or decompressed; it raises to stop reading. A reader that works for
            long without reading calls it too.
        encoding: The encoding of the lines, such as "cp1252"; None recognises UTF-8 and UTF-16.

    Attributes:
        origin: The path as the user gave it.
        name: The name of the file in messages.
        size: The number of (compressed) bytes, None if it is unknown.
        line: The number of lines read.
        encoding: The encoding from which `lines` converts, None if the lines are in UTF-8.

    Raises:
        TextError: If the file does not exist or is a folder.
        UsageError: If the encoding does not exist.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "lines.txt.gz")
        ...     _ = path.write_bytes(gzip.compress(b"one\r\ntwo\n"))
        ...     with Stream(str(path)) as stream:
        ...         print(list(stream.lines()))
        [(1, 'one'), (2, 'two')]
    """

    def __init__(
        self,
        origin: str,
        limits: ReadLimits | None = None,
        check: Check = no_check,
        encoding: str | None = None,
    ) -> None:
        self.origin = origin
        self.encoding = None if encoding is None else find_encoding(encoding)
        self._recoded = False
        self.limits = limits or ReadLimits()
        self.check = check
        self.name = "standard input" if origin == STDIN else origin
        self.size = None if origin == STDIN else _find_size(origin)
        self.line = 0
        self._consumed = 0
        self._stack = ExitStack()
        self._file: IO[bytes] | None = None
        self._body: IO[bytes] = io.BytesIO()

    def __enter__(self) -> Stream:
        if self.origin == STDIN:
            self._body = sys.stdin.buffer
            return self
        if self.size == 0 and self.origin.lower().endswith(COMPRESSED_ENDINGS):
            # gzip.GzipFile accepts an empty file as an empty text.
            raise self._read_error(EOFError("the file is empty"))
        try:
            file = self._stack.enter_context(Path(self.origin).open("rb", buffering=0))
        except OSError as error:
            raise _open_error(self.origin, error) from error
        source = _CheckedFile(file, self.check)
        self._file = io.BufferedReader(source, BLOCK_BYTES)
        self._body = self._decompress(self._file, source)
        return self

    def __exit__(self, *_: object) -> None:
        self._consumed = self.consumed()
        self._file = None
        self._stack.close()

    def consumed(self) -> int:
        """Return the number of (compressed) bytes read so far; 0 if it is unknown."""
        if self._file is None or self.size is None:
            return self._consumed
        return self._file.tell()

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes, none only at the end.

        Args:
            size: The largest number of bytes, at least 1.

        Raises:
            TextError: If the file is damaged or exceeds a limit.
        """
        try:
            return self._body.read(size)
        except _READ_ERRORS as error:
            raise self._read_error(error) from error

    def raw_lines(self) -> Iterator[bytes]:
        r"""Yield each line with its `\n`; a second call continues where the first one stopped.

        Raises:
            TextError: If a line is longer than MAX_TEXT bytes, or the file is damaged or exceeds a limit.
        """
        while True:
            try:
                line = self._body.readline(MAX_TEXT + 1)
            except _READ_ERRORS as error:
                raise self._read_error(error) from error
            if not line:
                return
            self.line += 1
            if len(line) > MAX_TEXT:
                raise line_too_long(self.name, self.line)
            yield line

    def lines(self, remedy: str = NAME_ENCODING) -> Iterator[tuple[int, str]]:
        r"""Yield the number, from 1, and the text of each line, without its `\n` or `\r\n`.

        A byte order mark at the start is left out. UTF-16 is recognised, with and without this mark.

        Args:
            remedy: The advice in the error message for a byte that is not UTF-8.

        Raises:
            TextError: If a line is too long or not UTF-8.
        """
        if not self._recoded:
            self._recode()
        for raw in self.raw_lines():
            yield self.line, decode_line(raw, self.line, self.name, remedy)

    def _recode(self) -> None:
        """Convert the rest of the file to UTF-8, if it is stated or recognised to be in another encoding."""
        self._recoded = True
        body = self._body
        try:
            head = body.peek(HEAD_BYTES) if isinstance(body, io.BufferedReader) else body.read(HEAD_BYTES)
        except _READ_ERRORS as error:
            raise self._read_error(error) from error
        self.encoding = self.encoding or recognize_utf_16(head)
        taken = b"" if isinstance(body, io.BufferedReader) else head
        if self.encoding is not None or taken:
            self._body = io.BufferedReader(RecodedFile(taken, body, self.encoding, self.name), BLOCK_BYTES)

    def _decompress(self, file: IO[bytes], source: _CheckedFile) -> IO[bytes]:
        ending = self.origin.lower()
        if ending.endswith(".gz"):
            unpacked: io.RawIOBase | gzip.GzipFile = self._stack.enter_context(gzip.GzipFile(fileobj=file, mode="rb"))
        elif ending.endswith(".xz"):
            unpacked = _XzFile(file, self.limits.unpack_bytes)
        else:
            return file
        # The readline of GzipFile is slow Python; a buffer around it reads lines in C.
        return io.BufferedReader(_CheckedDecompression(unpacked, self, source), BLOCK_BYTES)

    def _read_error(self, error: Exception) -> TextError:
        if not self.origin.lower().endswith(COMPRESSED_ENDINGS):
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


_SIGNATURES = {
    b"PK\x03\x04": "a zip archive or an office document (DOCX, XLSX, ODT)",
    b"\xd0\xcf\x11\xe0": "an old or encrypted office document (DOC, XLS)",
    b"%PDF-": "a PDF",
    b"{\\rtf": "an RTF document",
    b"\x1f\x8b": "a gzip file",
    b"\xfd7zXZ": "an xz file",
    b"7z\xbc\xaf": "a 7z archive",
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
    b"GIF8": "an image",
    b"SQLite format 3": "a database",
    b"\x7fELF": "a program",
}
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_UTF_16_TEXT = re.compile(rb"(?:[\t\n\r -~]\0){8}|(?:\0[\t\n\r -~]){8}")


def refuse_binary(head: bytes, name: str) -> None:
    """Refuse bytes that are not text.

    Args:
        head: The beginning of a file.
        name: The name of the file, for messages.

    Raises:
        TextError: If the bytes begin like a known binary format, or are UTF-16.

    Examples:
        >>> refuse_binary("Grüße".encode(), "a.txt")
    """
    kind = next((kind for mark, kind in _SIGNATURES.items() if head.startswith(mark)), None)
    if kind is not None:
        known = "Give it with the ending of its format, or save" if head.startswith(b"PK") else "Save"
        raise TextError(f"{name}: it is {kind}, not text. {known} it as text in UTF-8 (from a spreadsheet: CSV UTF-8).")
    if head.startswith(_UTF_16_MARKS) or _UTF_16_TEXT.search(head):
        raise TextError(f"{name}: it is UTF-16. Convert it to UTF-8 first: iconv -f utf-16 -t utf-8 OLD > NEW")


def decode_line(raw: bytes, number: int, name: str, remedy: str = RECODE) -> str:
    """Decode one line of a file, without its end and without the byte order mark of the first line.

    Args:
        raw: The line with its end.
        number: The number of the line, from 1.
        name: The name of the file, for messages.
        remedy: The advice for a byte that is not UTF-8.

    Raises:
        TextError: If the line is not UTF-8, or not text.
    """
    if number == 1:
        refuse_binary(raw, name)
    body = raw.removesuffix(b"\n").removesuffix(b"\r")
    if number == 1:
        body = body.removeprefix(BYTE_ORDER_MARK)
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise invalid_byte(name, number, body[error.start], remedy) from error


def invalid_byte(name: str, line: int, byte: int, remedy: str = RECODE) -> EncodingError:
    """Return the error for a byte that is not UTF-8.

    Args:
        name: The name of the file.
        line: The line of the byte, from 1.
        byte: Its value.
        remedy: The advice at the end of the message.
    """
    return EncodingError(f"{name}, line {line}: byte 0x{byte:02X} is not UTF-8. {remedy}")


def line_too_long(name: str, line: int) -> TextError:
    """Return the error for a line of more than MAX_TEXT bytes.

    Args:
        name: The name of the file.
        line: The number of the line, from 1.
    """
    return TextError(
        f"{name}, line {line}: longer than {MAX_TEXT:,} bytes. Check that it is a text file with one segment a line."
    )


class _CheckedFile(io.RawIOBase):
    """An unbuffered file that calls a check before each read, and counts the bytes read."""

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


class _CheckedDecompression(io.RawIOBase):
    """Decompressed bytes, with a check before each read and a limit on their number."""

    def __init__(self, file: io.RawIOBase | gzip.GzipFile, stream: Stream, source: _CheckedFile) -> None:
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


class _XzFile(io.RawIOBase):
    """A decompressed .xz file of any number of streams; `lzma.LZMAFile` cannot limit its memory."""

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
            part = self._start_stream(len(view)) if self._decoder.eof else self._continue_stream(len(view))
        view[: len(part)] = part
        return len(part)

    def _continue_stream(self, size: int) -> bytes:
        packed = self._file.read(io.DEFAULT_BUFFER_SIZE) if self._decoder.needs_input else b""
        if self._decoder.needs_input and not packed:
            raise EOFError("it ends before the end of its stream")
        return self._decoder.decompress(packed, size)

    def _start_stream(self, size: int) -> bytes:
        packed = self._decoder.unused_data or self._file.read(io.DEFAULT_BUFFER_SIZE)
        if not packed:
            self._ended = True
            return b""
        self._decoder = lzma.LZMADecompressor(memlimit=self._memory)
        try:
            return self._decoder.decompress(packed, size)
        except lzma.LZMAError as error:
            if _is_memory_limit(error):
                raise
            # `lzma.LZMAFile` ignores other bytes after the last stream too.
            self._ended = True
            return b""


def _is_memory_limit(error: Exception) -> bool:
    return isinstance(error, lzma.LZMAError) and "memory usage limit" in str(error).lower()


def _find_size(origin: str) -> int | None:
    try:
        status = Path(origin).stat()
    except (OSError, ValueError) as error:
        raise _open_error(origin, error) from error
    if stat.S_ISDIR(status.st_mode):
        raise TextError(f"{origin}: is a folder. Give the path of a file in it.")
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _open_error(origin: str, error: Exception) -> TextError:
    what = getattr(error, "strerror", None) or error
    return TextError(f"{origin}: cannot be opened ({what}). Check the path and the permissions.")
