"""The lines of a file with the bytes they stand at."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import TextError
from ibidem.text.limits import LONGEST
from ibidem.text.stream import RECODE, bad_byte

if TYPE_CHECKING:
    from collections.abc import Iterator

_BOM = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """The number of a line, from 1, its text without its end, and where that begins and ends in the file."""

    number: int
    text: str
    start: int
    end: int

    def place(self, column: int) -> int:
        """Where a character of the line begins in the file."""
        return self.start + len(self.text[:column].encode("utf-8"))


def read_lines(data: bytes, name: str, remedy: str = RECODE) -> Iterator[Line]:
    """Yield the lines of a file in UTF-8; only LF and CRLF end one, and a byte order mark belongs to none."""
    start, number = 0, 0
    while start < len(data):
        number += 1
        stop = data.find(b"\n", start)
        following = len(data) if stop < 0 else stop + 1
        first = start + len(_BOM) if number == 1 and data.startswith(_BOM) else start
        body = data[first:following].removesuffix(b"\n").removesuffix(b"\r")
        if len(body) > LONGEST:
            raise TextError(f"{name}, line {number}: longer than {LONGEST:,} bytes. Check that it is a text file.")
        try:
            yield Line(number, body.decode("utf-8"), first, first + len(body))
        except UnicodeDecodeError as error:
            raise bad_byte(name, number, body[error.start], remedy) from error
        start = following


def newline_of(data: bytes) -> bytes:
    """The line end that a file uses."""
    return b"\r\n" if b"\r\n" in data else b"\n"
