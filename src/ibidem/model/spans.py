"""Where each token of a text stands in it, for any tokenizer: found by decoding ever longer beginnings."""

from __future__ import annotations

from difflib import SequenceMatcher
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Spans:
    """The places (start, end) of the tokens `ids` in `text`, in characters, white space before a token left out.

    A tokenizer may spell a text otherwise than it was written (… as ...): then the places are those of the
    characters that correspond. A token that adds no character of its own, such as the end of the sentence or
    the first bytes of a character, is empty.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], ids: Sequence[int], text: str) -> None:
        self._decode = decode
        self._ids = ids
        self._spelt = decode(ids)
        self._written = None if self._spelt == text else _align(self._spelt, text)
        self._ends = {-1: 0, len(ids) - 1: len(self._spelt)}

    def __getitem__(self, position: int) -> tuple[int, int]:
        """The place of the token at a position."""
        end = self._end(position)
        start = min(self._end(position - 1), end)
        while start < end and self._spelt[start].isspace():
            start += 1
        if self._written is None:
            return start, end
        starts, ends = self._written
        return starts[start], ends[end] if start < end else starts[start]

    def _end(self, position: int) -> int:
        """Where the tokens up to a position end in the spelt text."""
        if position not in self._ends:
            begun = self._decode(self._ids[: position + 1])
            same = takewhile(lambda pair: pair[0] == pair[1], zip(begun, self._spelt, strict=False))
            self._ends[position] = len(begun) if self._spelt.startswith(begun) else sum(1 for _ in same)
        return self._ends[position]


def _align(spelt: str, written: str) -> tuple[list[int], list[int]]:
    """For every place in the spelt text, what corresponds to it where a token starts there, and where one ends."""
    starts, ends = [0] * len(spelt), [0]
    for kind, first, last, from_, to in SequenceMatcher(None, spelt, written, autojunk=False).get_opcodes():
        same = kind == "equal"
        starts[first:last] = range(from_, to) if same else [from_] * (last - first)
        ends += range(from_ + 1, to + 1) if same else [to] * (last - first)
    return [*starts, len(written)], ends
