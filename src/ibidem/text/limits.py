"""Limits on what a reader accepts, so that a small file can neither fill the memory nor run without end.

The constants are far above anything in real translation files and hold for every caller. `ReadLimits` holds the limits
that depend on whose file it is: the defaults suit the owner of the machine, a server sets stricter ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ibidem.errors import TextError

LONGEST = 2**20
"""The longest line, in bytes, or segment, in characters: more is no text, and would fill the memory."""

LONGEST_UNIT = 2**22
"""The most bytes of one XLIFF unit, and of the comments and blank lines before one PO entry."""

MOST_TOKENS = 100_000
"""The most tags and pieces of text in one XML unit that is kept as a tree."""

DEEPEST = 256
"""The most XML elements that are open at once; expat allocates memory for each of them."""

MOST_ATTRIBUTES = 256
"""The most attributes of one XML element."""

MOST_NAMES = 10_000
"""The most different names of XML elements and attributes; expat keeps each of them until the end."""

LONGEST_DOCTYPE = 2**16
"""The most bytes of an XML document type declaration."""

MOST_DEFAULTS = 32
"""The most attributes with a default value that a document type declares; each element gets all of its own."""

LONGEST_DEFAULTS = 1_000
"""The most characters of these default values together."""

LONGEST_NAMESPACE = 1_024
"""The most characters of the URI of an XML namespace, which becomes part of each name in it."""

LONGEST_ORIGIN = 1_024
"""The most characters of an origin that a file states; a longer one is ignored."""

MO_SHARING = 4
"""How many times its own size the strings of an MO file may add up to; more means that entries share strings."""

BLOCK = 2**16
"""Bytes that are read, decompressed or parsed between two calls of a `Check`."""

Check: TypeAlias = Callable[[], None]
"""Called about once for each `BLOCK` of bytes read or decompressed, also while no pair is found; raises to stop."""


def no_check() -> None:
    """Never stop."""


@dataclass(frozen=True)
class ReadLimits:
    """Limits of one corpus file.

    expanded_bytes: the most bytes that a compressed file may unfold to, None for any number.
    ratio, ratio_bytes: a compressed file that unfolds to more than `ratio_bytes` may be at most `ratio` times its size.
    unpack_bytes: the most memory, in bytes, that decompression may take.
    whole_bytes: the most bytes of a format that is read whole (MO).
    dropped_in_a_row: the most units in a row that may give no pair.
    segment: the most characters of one side; a longer pair is dropped.
    """

    expanded_bytes: int | None = None
    ratio: int = 300
    ratio_bytes: int = 2**28
    unpack_bytes: int = 2**31
    whole_bytes: int = 2**28
    dropped_in_a_row: int = 5_000_000
    segment: int = LONGEST

    def check_expansion(self, name: str, packed: int, unpacked: int) -> None:
        """Raise TextError where a compressed file of so many bytes unfolds to too many."""
        if self.expanded_bytes is not None and unpacked > self.expanded_bytes:
            raise TextError(f"{name}: unpacks to more than {self.expanded_bytes:,} bytes. Split it into several files.")
        if unpacked > self.ratio_bytes and unpacked > packed * self.ratio:
            raise TextError(
                f"{name}: unpacks to more than {self.ratio} times its size, which text does not do. "
                "If it is text all the same, unpack it and give the unpacked file."
            )
