"""Cutting a line that is longer than the model reads into parts that it does read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Where a long line may be cut, best places first.
_PLACES = (re.compile(r"(?<=[.!?…。！？])\s+"), re.compile(r"(?<=[;:,–—])\s+"), re.compile(r"\s+"))


def split_text(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Parts of the text that all fit, cut at ends of sentences, else of clauses, else of words, else anywhere."""
    return [text] if fits(text) else list(_split(text, fits, 0))


def _split(text: str, fits: Callable[[str], bool], level: int) -> Iterator[str]:
    if fits(text):
        yield text
        return
    if level == len(_PLACES):
        middle = max(1, len(text) // 2)
        if len(text) > 1:
            yield from _split(text[:middle], fits, level)
            yield from _split(text[middle:], fits, level)
        return
    part = ""
    for piece in _PLACES[level].split(text):
        joined = f"{part} {piece}" if part else piece
        if fits(joined):
            part = joined
            continue
        if part:
            yield from _split(part, fits, level + 1)
        part = piece
    if part:
        yield from _split(part, fits, level + 1)
