"""Parts of a corpus where targets belong to other sources, found by what translations share with their sources.

Translations share numbers, names, words with a common beginning, their last sign, and about the length. In a part where
one line is missing on one side, each source shares more with the target of a neighbour than with its own.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from math import log, sqrt
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.text import Pair

BLOCK_PAIRS = 64
"""The number of consecutive pairs that are judged together."""

_OFFSETS = (-2, -1, 1, 2)
# An offset at which nothing belongs together, as the level of chance.
_FAR = -9
_REACH = max(*_OFFSETS, -_FAR)
_WORD = re.compile(r"[^\W_]+")
_STEM = 4
_MAX_WORDS = 40
# Standard errors by which a block must prefer another offset, and the mean must exceed chance.
_SHIFTED = 4.0
_ALIGNED = 1.0
_LEAST_PAIRS = 24


class _Features(NamedTuple):
    """What is compared of a text."""

    stems: frozenset[str]
    length: float
    end: str


class Part(NamedTuple):
    """Consecutive blocks with the same defect.

    Attributes:
        offset: How many pairs after their own the targets stand; None where they stand nowhere near.
        first: The first pair, from 0.
        last: The last pair.
    """

    offset: int | None
    first: int
    last: int


@dataclass
class _Block:
    """Sums of one block: of each offset, the sum and the sum of squares of its advantage over the own target."""

    first: int
    pairs: int
    gains: dict[int, tuple[float, float]]


class Alignment:
    """Compares each source of a corpus with its own target and with those around it.

    Examples:
        >>> from ibidem.text import Pair
        >>> alignment = Alignment()
        >>> for number in range(200):
        ...     target = f"item {number + (number >= 100)}"
        ...     alignment.add(Pair(f"Eintrag {number}", target, "a.tsv", number + 1))
        >>> [(part.offset, part.last) for part in alignment.find_parts()]
        [(-1, 199)]
    """

    def __init__(self) -> None:
        self._window: deque[tuple[_Features, _Features]] = deque(maxlen=2 * _REACH + 1)
        self._number = 0
        self._blocks: list[_Block] = []

    def add(self, pair: Pair) -> None:
        """Add the next pair of the corpus.

        Args:
            pair: The pair.
        """
        self._window.append((_features_of(pair.source), _features_of(pair.target)))
        self._number += 1
        if len(self._window) == 2 * _REACH + 1:
            self._compare(_REACH, self._number - 1 - _REACH)

    def skip(self) -> None:
        """Skip pairs: those before and after the gap are no neighbours."""
        self._window.clear()

    @property
    def pairs(self) -> int:
        """The number of pairs that were added."""
        return self._number

    def find_parts(self) -> list[Part]:
        """Return the parts in which the targets belong to other sources, in the order of the corpus."""
        parts: list[Part] = []
        for block in self._blocks:
            if block.pairs < _LEAST_PAIRS:
                continue
            offset = max(_OFFSETS, key=lambda one: _z_value(block, one))
            last = block.first + block.pairs - 1
            if _z_value(block, offset) >= _SHIFTED:
                found: int | None = offset
            elif -_z_value(block, _FAR) < _ALIGNED:
                found = None
            else:
                continue
            if parts and parts[-1].offset == found and block.first - parts[-1].last <= BLOCK_PAIRS + 1:
                parts[-1] = parts[-1]._replace(last=last)
            else:
                parts.append(Part(found, block.first, last))
        if parts and parts[-1].last >= self._number - BLOCK_PAIRS - _REACH:  # the rest is too short to be judged
            parts[-1] = parts[-1]._replace(last=self._number - 1)
        return parts

    @property
    def blocks(self) -> int:
        """The number of blocks that can be judged."""
        return sum(block.pairs >= _LEAST_PAIRS for block in self._blocks)

    def _compare(self, place: int, number: int) -> None:
        source = self._window[place][0]
        own = _similarity(source, self._window[place][1])
        if not self._blocks or number - self._blocks[-1].first >= BLOCK_PAIRS:
            self._blocks.append(_Block(number, 0, dict.fromkeys((*_OFFSETS, _FAR), (0.0, 0.0))))
        block = self._blocks[-1]
        block.pairs = number - block.first + 1
        for offset in block.gains:
            gain = _similarity(source, self._window[place + offset][1]) - own
            total, squares = block.gains[offset]
            block.gains[offset] = total + gain, squares + gain * gain


def _z_value(block: _Block, offset: int) -> float:
    """Return the mean advantage of an offset in standard errors."""
    total, squares = block.gains[offset]
    mean = total / block.pairs
    variance = max(squares / block.pairs - mean * mean, 1e-4)
    return mean / sqrt(variance / block.pairs)


def _features_of(text: str) -> _Features:
    words = _WORD.findall(text.lower())[:_MAX_WORDS]
    return _Features(frozenset(word[:_STEM] for word in words), log(8 + len(text)), text[-1:])


def _similarity(one: _Features, other: _Features) -> float:
    shared = len(one.stems & other.stems)
    smaller = min(len(one.stems), len(other.stems)) or 1
    end = 0.1 if one.end == other.end and not one.end.isalpha() else 0.0
    return shared / smaller + end - 0.5 * abs(one.length - other.length)


def shifted_pairs(parts: list[Part]) -> Iterator[int]:
    """Yield the numbers of the pairs in shifted parts.

    Args:
        parts: What `Alignment.find_parts` returned.
    """
    for part in parts:
        if part.offset is not None:
            yield from range(part.first, part.last + 1)
