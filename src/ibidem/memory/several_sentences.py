"""The stored sources of several sentences: how many there are, and whether one of them is like a line.

The sources of a segment are examined once, when they are first needed. Pairs of the journals count after the next
sealing.
"""

from __future__ import annotations

import re
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary
from zlib import crc32

import numpy as np

from ibidem.memory.matches import similarity
from ibidem.text import find_sentences

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ibidem.memory.memory import Memory
    from ibidem.memory.segment import Segment

SIMILAR_PERCENT = 70
"""The least similarity of a stored source that is like a line, as `similarity` computes it."""

# The sources whose texts are compared: those with the most common words, as a share of the words of either.
_CANDIDATES = 16
_LEAST_SHARED = 0.3
_BITS = 512
_CHUNK = 4096
_WORD = re.compile(r"\w+")
# Without this there is one sentence only.
_INNER_STOP = re.compile(r"[.!?…;؟۔।॥።։။]\S{0,200}\s+\S|[。！？｡]")
_COUNTS = np.array([number.bit_count() for number in range(256)], np.uint8)


class SeveralSentences(NamedTuple):
    """The sources of a segment that have several sentences.

    Attributes:
        numbers: [n] their pairs, by number in the segment, ascending.
        counts: [n] their numbers of sentences.
        lengths: [n] their lengths in characters.
        words: [n, 64] uint8, sets of words as bits, by a digest of each word.
    """

    numbers: NDArray[np.int64]
    counts: NDArray[np.int32]
    lengths: NDArray[np.int32]
    words: NDArray[np.uint8]


_known: WeakKeyDictionary[Segment, SeveralSentences] = WeakKeyDictionary()


def count_sources(memory: Memory, sentences: int) -> int:
    """Count the sealed sources that have at least a number of sentences.

    Args:
        memory: The memory.
        sentences: The number, 2 or more.
    """
    return sum(int((several.counts >= sentences).sum()) for _, _, several in _several(memory))


def has_similar_source(memory: Memory, source: str, sentences: int) -> bool:
    """Return whether a sealed source of as many sentences is like a line.

    The sources that have the most words in common with the line are compared by `similarity`.

    Args:
        memory: The memory.
        source: The line, with single spaces.
        sentences: Its number of sentences, 2 or more.
    """
    words = _digest(source)
    hidden = None
    for first, segment, several in _several(memory):
        shortest, longest = np.minimum(several.lengths, len(source)), np.maximum(several.lengths, len(source))
        rows = np.flatnonzero((several.counts == sentences) & (100 * shortest >= SIMILAR_PERCENT * longest))
        common = _COUNTS[several.words[rows] & words].sum(axis=1, dtype=np.int32)
        either = _COUNTS[several.words[rows] | words].sum(axis=1, dtype=np.int32)
        shared = common / np.maximum(either, 1)
        best = np.argsort(-shared, kind="stable")[:_CANDIDATES]
        for number in several.numbers[rows[best[shared[best] >= _LEAST_SHARED]]].tolist():
            (stored,) = segment.sources(number, number + 1)
            if similarity(source, stored) < SIMILAR_PERCENT:
                continue
            hidden = memory.lookup.hidden_numbers() if hidden is None else hidden
            if first + number not in hidden:
                return True
    return False


def _several(memory: Memory) -> Iterable[tuple[int, Segment, SeveralSentences]]:
    """Yield the segments with the numbers of their first pairs and their sources of several sentences."""
    for first, segment in memory.lookup.segments():
        found = _known.get(segment)
        if found is None:
            found = _known[segment] = _examine(segment, memory.identity.source_language)
        yield first, segment, found


def _examine(segment: Segment, language: str | None) -> SeveralSentences:
    numbers: list[int] = []
    counts: list[int] = []
    lengths: list[int] = []
    words: list[bytes] = []
    for start in range(0, segment.record.pairs, _CHUNK):
        sources = segment.sources(start, min(start + _CHUNK, segment.record.pairs))
        chosen = [_INNER_STOP.search(source) is not None for source in sources]
        for number, source in compress(enumerate(sources, start), chosen):
            count = len(find_sentences(source, language))
            if count > 1:
                numbers.append(number)
                counts.append(count)
                lengths.append(len(source))
                words.append(_digest(source).tobytes())
    return SeveralSentences(
        np.array(numbers, np.int64),
        np.array(counts, np.int32),
        np.array(lengths, np.int32),
        np.frombuffer(b"".join(words), np.uint8).reshape(len(words), _BITS // 8),
    )


def _digest(source: str) -> NDArray[np.uint8]:
    """Return the set of the words of a text as bits, [64] uint8."""
    bits = np.zeros(_BITS, bool)
    bits[[crc32(word.encode()) % _BITS for word in _WORD.findall(source.lower())]] = True
    return np.packbits(bits)
