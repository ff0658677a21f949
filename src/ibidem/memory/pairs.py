"""Sentence pairs with their entries: as they are given to a memory, and as they are read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ibidem.errors import MemoryFolderError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_LINES = (1 << 63) - 1
_ROWS = 8192


@dataclass(frozen=True, slots=True)
class StoredPair:
    """A sentence pair of a memory, where it came from, the numbers of its entries in the whole memory, and its id."""

    source: str
    target: str
    origin: str
    location: int
    entries: range
    id: int


@dataclass(frozen=True, eq=False)
class SegmentData:
    """Pairs and their entries for one segment, checked when made.

    keys [n, d] float16, values [n] int32, log_probs [n] float32, lengths [pairs] (the entries of each pair;
    they sum to n); sources, targets, origins and locations: one for each pair; compact [n, c] float16, where the
    memory is searched in a compact space, and keys None where it keeps those alone. Raises MemoryFolderError.
    """

    keys: NDArray[np.float16] | None
    values: NDArray[np.int32]
    log_probs: NDArray[np.float32]
    lengths: NDArray[np.integer]
    sources: Sequence[str]
    targets: Sequence[str]
    origins: Sequence[str]
    locations: Sequence[int]
    compact: NDArray[np.float16] | None = None

    def __post_init__(self) -> None:
        self._check_types()
        self._check_counts()
        self._check_numbers()
        self._check_texts()

    @property
    def entries(self) -> int:
        """The number of entries."""
        return len(self.values)

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return len(self.lengths)

    def select(self, pairs: Sequence[int]) -> SegmentData:
        """The pairs with these numbers, in their order, and their entries."""
        offsets = self.offsets()
        rows = np.concatenate([np.empty(0, np.int64), *(np.arange(offsets[i], offsets[i + 1]) for i in pairs)])
        return SegmentData(
            keys=None if self.keys is None else self.keys[rows],
            values=self.values[rows],
            log_probs=self.log_probs[rows],
            lengths=self.lengths[list(pairs)],
            sources=[self.sources[i] for i in pairs],
            targets=[self.targets[i] for i in pairs],
            origins=[self.origins[i] for i in pairs],
            locations=[self.locations[i] for i in pairs],
            compact=None if self.compact is None else self.compact[rows],
        )

    def offsets(self) -> NDArray[np.int64]:
        """[pairs + 1] the entries of pair i are offsets[i]:offsets[i + 1]."""
        return np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])

    def pair_name(self, pair: int) -> str:
        """A pair as messages name it."""
        return f"pair {pair} (line {self.locations[pair]} of {self.origins[pair]!r})"

    def pair_of(self, entry: int) -> int:
        """The pair that an entry belongs to."""
        return int(np.searchsorted(self.offsets(), entry, side="right")) - 1

    def _has(self, name: str) -> bool:
        """Whether an array is there; keys of one kind may be missing."""
        return name not in ("keys", "compact") or getattr(self, name) is not None

    def _check_types(self) -> None:
        for name, dimensions, dtype in (
            ("keys", 2, np.float16),
            ("compact", 2, np.float16),
            ("values", 1, np.int32),
            ("log_probs", 1, np.float32),
            ("lengths", 1, np.integer),
        ):
            array = getattr(self, name)
            if not self._has(name):
                continue
            if not isinstance(array, np.ndarray) or array.ndim != dimensions or not np.issubdtype(array.dtype, dtype):
                found = f"{array.ndim}-d {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
                raise MemoryFolderError(f"{name} of a segment must be a {dimensions}-d {dtype.__name__} array: {found}")

    def _check_counts(self) -> None:
        pairs = {name: len(getattr(self, name)) for name in ("lengths", "sources", "targets", "origins", "locations")}
        _check_equal(pairs, "pairs")
        if (odd := np.flatnonzero((self.lengths < 0) | (self.lengths > self.entries))).size:
            pair = int(odd[0])
            raise MemoryFolderError(
                f"{self.pair_name(pair)} has {self.lengths[pair]} entries: the segment has {self.entries}"
            )
        names = ("keys", "compact", "values", "log_probs")
        entries = {name: len(getattr(self, name)) for name in names if self._has(name)}
        _check_equal({**entries, "the sum of lengths": int(self.lengths.sum(dtype=np.int64))}, "entries")

    def _check_numbers(self) -> None:
        for name in filter(self._has, ("keys", "compact", "log_probs")):
            array = getattr(self, name)
            for start in range(0, len(array), _ROWS):  # a whole mask of the keys would need half their memory
                finite = np.isfinite(array[start : start + _ROWS])
                if not finite.all():
                    entry = start + int(np.argwhere(~finite)[0][0])
                    raise MemoryFolderError(
                        f"{self.pair_name(self.pair_of(entry))} has NaN or infinity in its {name}: "
                        "leave the pair out, or run the model in a wider type"
                    )
        if (negative := np.flatnonzero(self.values < 0)).size:
            entry = int(negative[0])
            raise MemoryFolderError(
                f"{self.pair_name(self.pair_of(entry))} has the token id {self.values[entry]}: ids start at 0"
            )

    def _check_texts(self) -> None:
        for pair, location in enumerate(self.locations):
            if not 0 <= location <= _LINES:
                raise MemoryFolderError(f"{self.pair_name(pair)} has no line number that can be stored")
        for name in ("sources", "targets", "origins"):
            for pair, text in enumerate(getattr(self, name)):
                try:
                    text.encode("utf-8")
                except UnicodeEncodeError as error:
                    raise MemoryFolderError(
                        f"{self.pair_name(pair)} has a lone surrogate at character {error.start} of its "
                        f"{name.removesuffix('s')}: mend its encoding, or leave the pair out"
                    ) from error


def _check_equal(counts: dict[str, int], what: str) -> None:
    if len(set(counts.values())) > 1:
        raise MemoryFolderError(f"a segment must have one number of {what} throughout, not {counts}")
