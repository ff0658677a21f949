"""The splitter of long texts into pieces that the model translates well, at a bounded cost."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# The most source tokens that are translated as one piece. Sentence-level models drop text from longer inputs, and the
# cost of attention grows with the square of the length.
PIECE_TOKENS = 128

# Where a long text may be cut, best places first. Chinese and Japanese have no spaces, and the mark that closes a
# quotation belongs to the sentence before it.
_AFTER_STOP = "[。！？」』”’）]"
_PLACES = (
    re.compile(rf"(?<=[.!?…])\s+|(?:(?<=[。！？])|(?<=[。！？][」』”’）]))(?!{_AFTER_STOP})\s*"),
    re.compile(r"(?<=[;:,–—])\s+|(?<=[；：，、])\s*"),
    re.compile(r"\s+"),
)


class Piece(NamedTuple):
    """A piece of a text.

    Attributes:
        text: The piece.
        ids: Its token ids, with the model's special tokens.
    """

    text: str
    ids: list[int]


def split_text(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Split a text into pieces that fit, at ends of sentences, else of clauses, else of words, else anywhere.

    Args:
        text: The text.
        fits: Returns whether a piece is short enough.

    Returns:
        The pieces, without white space at the cuts. A single character that does not fit is a piece of its own.

    Examples:
        >>> split_text("One, two. Three, four.", lambda piece: len(piece) <= 12)
        ['One, two.', 'Three, four.']
    """
    return [text] if fits(text) else list(_split(text, fits, 0))


def _split(text: str, fits: Callable[[str], bool], level: int) -> Iterator[str]:
    """Split a text that does not fit as a whole at the places of this level, and of later ones where needed."""
    if level == len(_PLACES):
        yield from _halve(text, fits)
        return
    cuts = [0, *(place.end() for place in _PLACES[level].finditer(text)), len(text)]
    pieces = [text[start:end] for start, end in pairwise(cuts) if text[start:end].strip()]
    first = 0
    while first < len(pieces):
        count = _count_fitting(pieces, first, fits)
        if count:
            yield _join(pieces, first, count)
        else:
            yield from _split(pieces[first].strip(), fits, level + 1)
        first += max(count, 1)


def _halve(text: str, fits: Callable[[str], bool]) -> Iterator[str]:
    if len(text) == 1 or fits(text):
        yield text
        return
    middle = len(text) // 2
    yield from _halve(text[:middle], fits)
    yield from _halve(text[middle:], fits)


def _join(pieces: Sequence[str], first: int, count: int) -> str:
    return "".join(pieces[first : first + count]).strip()


def _count_fitting(pieces: Sequence[str], first: int, fits: Callable[[str], bool]) -> int:
    """Count how many pieces from `first` on fit when joined, in logarithmically many attempts."""

    def fit(count: int) -> bool:
        return fits(_join(pieces, first, count))

    rest = len(pieces) - first
    if not fit(1):
        return 0
    fitting, excess = 1, 2
    while excess <= rest and fit(excess):
        fitting, excess = excess, 2 * excess
    excess = min(excess, rest + 1)
    while excess - fitting > 1:
        middle = (fitting + excess) // 2
        if fit(middle):
            fitting = middle
        else:
            excess = middle
    return fitting
