"""Limits on the input that a reader accepts, so that a small file can neither exhaust the memory nor run without end.

The constants are far above anything in real translation files and apply to every caller. `ReadLimits` holds the limits
that depend on the trust in a file: the defaults suit the owner of the machine, a server sets stricter ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ibidem.errors import TextError

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
