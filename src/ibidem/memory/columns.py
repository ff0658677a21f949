"""The arrays of all segments as one: values, log-probabilities, clusters, source vectors, and numbers of pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from ibidem.errors import UsageError
from ibidem.memory.manifest import DTYPES, SOURCE_WIDTH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ibidem.memory.segment import Segment

_MOST_PAIRS = (1 << 31) - 1
_Number = TypeVar("_Number", bound=np.generic)


class Columns:
    """Arrays over all segments of one generation; joined ones are kept after the first call.

    Methods raise DamagedMemoryError if a block that they read is damaged.

    Attributes:
        tokens: The number of target tokens.
        entries: The number of entries; fewer than the tokens in a pruned memory.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        """Join the arrays of segments.

        Args:
            segments: The segments, in the order of their entries.
        """
        self._segments = segments
        self._first_tokens = np.cumsum([0] + [segment.record.tokens for segment in segments], dtype=np.int64)
        self._joined: dict[tuple[str, bool], NDArray[np.generic]] = {}
        self.tokens = int(self._first_tokens[-1])
        self.entries = sum(segment.record.entries for segment in segments)

    def stored(self, name: str, dtype: type[_Number]) -> NDArray[_Number]:
        """Return a whole array as it is stored.

        Args:
            name: The name of the array.
            dtype: The type of its numbers.

        Returns:
            [tokens] or [entries], read-only.
        """
        return self._column(name, dtype, entries=False)

    def of_entries(self, name: str, dtype: type[_Number]) -> NDArray[_Number]:
        """Return the numbers that an array of tokens has for the entries.

        Args:
            name: The name of the array.
            dtype: The type of its numbers.

        Returns:
            [entries], read-only.
        """
        return self._column(name, dtype, entries=self.entries < self.tokens)

    def _column(self, name: str, dtype: type[_Number], *, entries: bool) -> NDArray[_Number]:
        if (name, entries) not in self._joined:
            parts = [segment.of_entries(name) if entries else segment.array(name).all() for segment in self._segments]
            column = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, DTYPES[name]), *parts])
            column = column.astype(dtype, copy=False)
            column.flags.writeable = False
            self._joined[name, entries] = column
        return cast("NDArray[_Number]", self._joined[name, entries])

    def source_vectors(self, added: NDArray[np.int8]) -> NDArray[np.int8]:
        """Return the source vectors of all pairs.

        Args:
            added: [pairs of the tail, 64] the vectors of the pairs after those of the segments.

        Returns:
            [pairs, 64], read-only.
        """
        parts = [segment.array("source_vectors").all() for segment in self._segments]
        vectors = np.concatenate([np.empty((0, SOURCE_WIDTH), np.int8), *parts, added])
        vectors.flags.writeable = False
        return vectors

    def pair_numbers(self, offsets: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the number of each entry's pair.

        Args:
            offsets: [pairs of the tail + 1] the first entry of each pair of the tail.

        Returns:
            [entries + entries of the tail]
        """
        pairs = sum(segment.record.pairs for segment in self._segments) + len(offsets) - 1
        if pairs > _MOST_PAIRS:
            raise UsageError(
                f"{pairs:,} pairs are more than {_MOST_PAIRS:,}, the most that one memory can number: learn several "
                "smaller memories."
            )
        numbers = np.empty(self.entries + int(offsets[-1]), np.int32)
        entry = pair = 0
        for segment in self._segments:
            numbers[entry : entry + segment.record.entries] = segment.pair_numbers() + np.int32(pair)
            entry, pair = entry + segment.record.entries, pair + segment.record.pairs
        numbers[entry:] = np.repeat(np.arange(pair, pair + len(offsets) - 1), np.diff(offsets))
        return numbers

    def token_offsets(self) -> NDArray[np.int64]:
        """Return [pairs + 1] the first token of each pair."""
        firsts = self._first_tokens[:-1]
        parts = [segment.offsets[1:] + first for segment, first in zip(self._segments, firsts, strict=True)]
        return np.concatenate([np.zeros(1, np.int64), *parts])

    def rows(self) -> NDArray[np.int64]:
        """Return [entries] the token number of each entry, ascending."""
        rows = np.empty(self.entries, np.int64)
        done = 0
        for segment, first in zip(self._segments, self._first_tokens[:-1], strict=True):
            own = np.arange(segment.record.entries) if segment.rows is None else segment.rows
            rows[done : done + len(own)] = first + own
            done += len(own)
        return rows

    def bytes_on_disk(self, name: str) -> int:
        """Return the bytes of an array over all segments.

        Args:
            name: The name of the array.
        """
        return sum(segment.records[name].bytes for segment in self._segments if name in segment.expected)
