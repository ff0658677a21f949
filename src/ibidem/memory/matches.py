"""Matches of a text among the stored sources, exact and fuzzy ones in percent, as translation memories show them."""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ibidem.memory.memory import Memory
    from ibidem.memory.pairs import StoredPair

LEAST_PERCENT = 50
"""Pairs that are less similar than this are no matches."""

# The number of pairs with the nearest source vectors whose texts are compared.
_CANDIDATES = 64
# Longer texts are not compared, since the time grows with the square of the length.
_MAX_LENGTH = 2_000
# The number of source vectors that are multiplied at once.
_BLOCK = 1 << 16


class Match(NamedTuple):
    """A stored pair whose source is like a text.

    Attributes:
        pair: The pair.
        percent: The similarity of its source, from 0 to 100; 100 for an equal one only.
    """

    pair: StoredPair
    percent: int


def similarity(one: str, other: str) -> int:
    """Compare two texts by their edit distance, in percent of the longer text, rounded down.

    White space counts as one space. Only equal texts have 100; texts of more than 2,000 characters that differ have 0.

    Args:
        one: A text.
        other: Another text.

    Examples:
        >>> similarity("Die Datei ist leer.", "Die Datei ist voll.")
        78
        >>> similarity("Die Datei  ist leer.", "Die Datei ist leer.")
        100
    """
    first, second = " ".join(one.split()), " ".join(other.split())
    if first == second:
        return 100
    longest = max(len(first), len(second))
    if longest > _MAX_LENGTH:
        return 0
    return min(99, 100 * (longest - edit_distance(first, second)) // longest)


def edit_distance(one: str, other: str) -> int:
    """Return the Levenshtein distance of two texts, by Myers' algorithm with one bit for each character of the first.

    Args:
        one: A text.
        other: Another text.

    Examples:
        >>> edit_distance("kitten", "sitting")
        3
    """
    if not one:
        return len(other)
    places: dict[str, int] = {}
    for number, character in enumerate(one):
        places[character] = places.get(character, 0) | 1 << number
    mask, last = (1 << len(one)) - 1, 1 << (len(one) - 1)
    increases, decreases, distance = mask, 0, len(one)
    for character in other:
        equal = places.get(character, 0)
        vertical = equal | decreases
        horizontal = (((equal & increases) + increases) ^ increases) | equal
        up = decreases | (~(horizontal | increases) & mask)
        down = increases & horizontal
        if up & last:
            distance += 1
        elif down & last:
            distance -= 1
        up, down = (up << 1 | 1) & mask, down << 1 & mask
        increases = down | (~(vertical | up) & mask)
        decreases = up & vertical
    return distance


def find_matches(
    memory: Memory, source: str, vector: NDArray[np.int8] | None, limit: int, vectors: NDArray[np.int8] | None = None
) -> list[Match]:
    """Find the pairs whose sources are most like a text.

    The texts of the pairs with an equal source and of the 64 with the nearest source vectors are compared, so the time
    grows with the number of pairs only by a product of their vectors.

    Args:
        memory: The memory.
        source: The text.
        vector: Its source vector [64]; None finds equal sources only.
        limit: The most matches.
        vectors: `memory.source_vectors()`, if it was read already.

    Returns:
        The matches of at least LEAST_PERCENT, best first; of equal ones the newest first.
    """
    numbers = [memory.number_of(id) for id in memory.find(source)]
    if vector is not None:
        known = memory.source_vectors() if vectors is None else vectors
        numbers += nearest_vectors(known, vector, _CANDIDATES + len(memory.tail.removed)).tolist()
    excluded = memory.tail.removed
    found: dict[tuple[str, str], Match] = {}
    for number in sorted(set(numbers), reverse=True):
        pair = memory.sentence(number)
        if pair.id in excluded:
            continue
        percent = similarity(source, pair.source)
        if percent >= LEAST_PERCENT:
            found.setdefault((pair.source, pair.target), Match(pair, percent))
    return nlargest(limit, found.values(), key=lambda match: match.percent)


def nearest_vectors(vectors: NDArray[np.int8], vector: NDArray[np.int8], count: int) -> NDArray[np.int64]:
    """Return the numbers of the vectors with the largest products with a vector.

    Args:
        vectors: [n, 64].
        vector: [64].
        count: The most numbers.

    Returns:
        [at most count], in no order.
    """
    query = vector.astype(np.float32)
    blocks = range(0, len(vectors), _BLOCK)
    products = [vectors[first : first + _BLOCK].astype(np.float32) @ query for first in blocks]
    scores = np.concatenate([np.empty(0, np.float32), *products])
    if len(scores) <= count:
        return np.arange(len(scores))
    return np.argpartition(-scores, count)[:count].astype(np.int64)
