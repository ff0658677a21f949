"""Search for words and phrases in the stored pairs (concordance).

The texts of a segment are scanned in blocks as they are stored, without an index: every change of a memory is found at
once, and nothing must be kept up to date.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ibidem.memory.memory import Memory
    from ibidem.memory.pairs import StoredPair
    from ibidem.memory.segment import Segment

Side: TypeAlias = Literal["source", "target", "both"]
Mode: TypeAlias = Literal["words", "phrase"]

MAX_QUERY = 500
"""The most characters of a query."""
MAX_WORDS = 16
"""The most words of a query that are searched for."""

_WORD = re.compile(r"\w+")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
# The Kelvin sign, the only other character whose lower case is in ASCII.
_KELVIN = "\u212a".encode()
# The bytes that are folded at once.
_BLOCK_BYTES = 1 << 20


class SearchResult(NamedTuple):
    """The pairs that a query matches.

    Attributes:
        pairs: The requested ones, the newest first.
        total: The number of all that match, as far as they were searched.
        complete: Whether all pairs were searched within the time.
    """

    pairs: list[StoredPair]
    total: int
    complete: bool


def search_pairs(
    memory: Memory,
    query: str,
    *,
    side: str = "both",
    mode: str = "words",
    limit: int = 20,
    offset: int = 0,
    seconds: float = 10.0,
) -> SearchResult:
    """Search the pairs of a memory, the newest first; upper and lower case are alike.

    Args:
        memory: The memory.
        query: Words or a phrase, at most MAX_QUERY characters.
        side: "source", "target" or "both": where to search; each word must be on the same side.
        mode: "words": each word, or the beginning of one, in any order. "phrase": the text as it stands.
        limit: The most pairs to return.
        offset: The number of pairs to leave out before them.
        seconds: The time after which the search ends.

    Raises:
        UsageError: The query is empty or too long, or another argument is invalid.

    Examples:
        >>> [pair.source for pair in search_pairs(memory, "morgen gut").pairs]
        ['Guten Morgen!']
    """
    if side not in get_args(Side) or mode not in get_args(Mode):
        raise UsageError(f"Invalid search: side {side!r}, mode {mode!r}. Use source, target or both; words or phrase.")
    if limit < 0 or offset < 0:
        raise UsageError("Invalid search: limit and offset are 0 or more.")
    if len(query) > MAX_QUERY:
        raise UsageError(f"The query has {len(query):,} characters: give at most {MAX_QUERY}.")
    matches = _matcher(query, mode)
    sides = [name for name in ("source", "target") if side in (name, "both")]
    deadline = time.monotonic() + seconds
    numbers: list[int] = []
    complete = True
    for part in _parts(memory, sides, matches):
        numbers += part
        if time.monotonic() > deadline:
            complete = False
            break
    chosen = numbers[offset : offset + limit]
    return SearchResult([memory.sentence(number) for number in chosen], len(numbers), complete)


class _Matcher(NamedTuple):
    """A test for folded texts: `rarest` is the part to look for first, and `test` checks a text that has it.

    `ascii` is the longest part of `rarest` in ASCII, which can be looked for in UTF-8.
    """

    rarest: str
    test: Callable[[str], bool]
    ascii: bytes


def _matcher(query: str, mode: str) -> _Matcher:
    """Return a test whose time is linear in the text, since every part is looked for literally."""
    if mode == "phrase":
        phrase = " ".join(fold(query).split())
        if not phrase:
            raise UsageError("The query is empty: give a word or a phrase.")
        return _Matcher(phrase, lambda text: phrase in text, _longest_ascii(phrase))
    words = list(dict.fromkeys(_WORD.findall(fold(query))))
    if not words:
        raise UsageError("The query has no word: give one, or search for a phrase.")
    if len(words) > MAX_WORDS:
        raise UsageError(f"The query has {len(words)} words: give at most {MAX_WORDS}.")
    tests = [re.compile(rf"(?<!\w){re.escape(word)}") for word in words]
    rarest = max(words, key=len)
    return _Matcher(rarest, lambda text: all(test.search(text) for test in tests), _longest_ascii(rarest))


def _longest_ascii(text: str) -> bytes:
    return max(_NOT_ASCII.split(text), key=len).encode()


def fold(text: str) -> str:
    """Return a text in lower case, as texts are compared; its length in characters stays the same.

    Args:
        text: The text.
    """
    lowered = text.lower()
    # "İ" has two characters in lower case, which would shift the positions of all that follow.
    return lowered if len(lowered) == len(text) else "".join(low if len(low := c.lower()) == 1 else c for c in text)


def _parts(memory: Memory, sides: Sequence[str], matches: _Matcher) -> Iterator[list[int]]:
    """Yield the numbers of the matching pairs of one block after the other, the newest first."""
    sealed = memory.pairs
    tail = memory.tail
    added = []
    for index in np.flatnonzero(tail.active).tolist():
        pair = memory.sentence(sealed + index)
        if any(_is_match(fold(getattr(pair, side)), matches) for side in sides):
            added.append(sealed + index)
    yield added[::-1]
    hidden = memory.lookup.hidden_numbers()
    for first, segment in memory.lookup.segments():
        for start, stop in _blocks(segment):
            found: set[int] = set()
            for side in sides:
                found.update(_scan(segment, f"{side}s", start, stop, matches))
            yield [number for local in sorted(found, reverse=True) if (number := first + local) not in hidden]


def _is_match(text: str, matches: _Matcher) -> bool:
    return matches.rarest in text and matches.test(text)


def _blocks(segment: Segment) -> Iterator[tuple[int, int]]:
    """Yield ranges of pairs whose longer side has about _BLOCK_BYTES, the last first."""
    offsets = np.maximum(segment.source_offsets, segment.target_offsets)
    stop = segment.record.pairs
    while stop > 0:
        start = int(np.searchsorted(offsets, offsets[stop] - _BLOCK_BYTES, side="left"))
        start = min(start, stop - 1)
        yield start, stop
        stop = start


def _scan(segment: Segment, name: str, start: int, stop: int, matches: _Matcher) -> Iterator[int]:
    """Yield the numbers in the segment of the pairs start:stop whose texts match."""
    offsets: NDArray[np.int64] = segment.source_offsets if name == "sources" else segment.target_offsets
    first, last = int(offsets[start]), int(offsets[stop])
    whole = segment.array(name).read(first, last).tobytes()
    # Much faster than decoding, and enough for most blocks if the word is rare.
    if matches.ascii not in whole.lower() and _KELVIN not in whole:
        return
    text = fold(whole.decode("utf-8", "surrogatepass"))
    place = text.find(matches.rarest)
    if place < 0:
        return
    starts = offsets[start : stop + 1] - first
    if len(text) != len(whole):  # positions in characters: continuation bytes are not counted
        is_start = (np.frombuffer(whole, np.uint8) & 0xC0) != 0x80
        starts = np.concatenate([[0], np.cumsum(is_start)])[starts]
    while place >= 0:
        number = int(np.searchsorted(starts, place, side="right")) - 1
        begin, end = int(starts[number]), int(starts[number + 1])
        # Texts follow one another without a separator, so a phrase may seem to cross their border.
        if place + len(matches.rarest) <= end and matches.test(text[begin:end]):
            yield start + number
            place = text.find(matches.rarest, end)
        else:
            place = text.find(matches.rarest, place + 1)
