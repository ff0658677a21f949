"""Lines of text in."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from ibidem.errors import TextError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def open_input(path: Path) -> BinaryIO:
    """A file to read; raises TextError where it cannot be."""
    try:
        return path.open("rb")
    except OSError as error:
        raise TextError(f"Cannot read {path}: {error.strerror}. Check the path.") from error


def read_lines(source: BinaryIO, name: str) -> Iterator[str]:
    """Lines of UTF-8 without their ends (LF or CRLF); only LF separates lines."""
    for number, raw in enumerate(source, start=1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise TextError(
                f"{name}, line {number}: not UTF-8 (byte {error.start + 1} of the line); "
                "convert the file first, e.g. with `iconv -f latin1 -t utf-8`."
            ) from None
        if number == 1:
            line = line.removeprefix("\ufeff")
        yield line.removesuffix("\n").removesuffix("\r")
