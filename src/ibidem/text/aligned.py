"""Two plain text files whose lines are translations of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.pair import Found, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.text.stream import Stream


def read_aligned(source: Stream, target: Stream) -> Iterator[Found]:
    """Yield line by line; files of different length are a TextError, found when the shorter one ends."""
    targets = target.lines()
    for number, text in source.lines():
        other = next(targets, None)
        if other is None:
            break
        yield Unit(text, other[1], number)
    for longer in (source, target):
        for _ in longer.raw_lines():
            pass
    if source.line != target.line:
        raise TextError(
            f"{source.name} has {source.line:,} lines but {target.name} has {target.line:,}. Line n of one "
            "must translate line n of the other: find where they part (compare the last lines of both) and "
            "align them."
        )
