"""Sentence pairs with their entries: as given to a memory, as read back, and as arrays of a segment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ibidem.errors import MemoryFolderError
from ibidem.memory.manifest import DTYPES, ENTRY_ARRAYS, SOURCE_WIDTH, Counts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ibidem.memory.segment import Segment


_LINES = (1 << 63) - 1
_ROWS = 8192


@dataclass(frozen=True, slots=True)
class StoredPair:
    """A sentence pair of a memory.

    Attributes:
        source: The source text.
        target: The target text.
        origin: The name of the file or service that the pair came from.
        location: The line or number of the pair there.
        entries: The numbers of its entries in the memory.
        id: The id of the pair.
    """

    source: str
    target: str
    origin: str
    location: int
    entries: range
    id: int


@dataclass(frozen=True, eq=False)
class SegmentData:
    """Sentence pairs and their entries for a segment or a journal record, checked on construction.

    Attributes:
        keys: [n, d] float16 the model's own keys; None where the memory stores only compact ones.
        values: [n] int32 target token ids.
        log_probs: [n] float32 the base model's log-probabilities of the values.
        lengths: [pairs] the number of entries of each pair; they sum to n.
        sources: The source text of each pair.
        targets: The target text of each pair.
        origins: The origin of each pair.
        locations: The line or number of each pair at its origin.
        compact: [n, c] int8 codes of compact keys (`Memory.key_coding`); None where the memory has none.
        source_vectors: [pairs, 64] int8 source vectors (`SourceProjection`); None stores zeros.

    Raises:
        MemoryFolderError: An array has the wrong shape or dtype or contains NaN or infinity, or a text is not valid
            Unicode.
    """

    keys: NDArray[np.float16] | None
    values: NDArray[np.int32]
    log_probs: NDArray[np.float32]
    lengths: NDArray[np.integer]
    sources: Sequence[str]
    targets: Sequence[str]
    origins: Sequence[str]
    locations: Sequence[int]
    compact: NDArray[np.int8] | None = None
    source_vectors: NDArray[np.int8] | None = None

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
        """Return a selection of pairs with their entries.

        Args:
            pairs: The numbers of the pairs, in the order of the result.
        """
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
            source_vectors=None if self.source_vectors is None else self.source_vectors[list(pairs)],
        )

    def stored_source_vectors(self) -> NDArray[np.int8]:
        """Return [pairs, 64] the source vectors, zeros where there are none."""
        return np.zeros((self.pairs, SOURCE_WIDTH), np.int8) if self.source_vectors is None else self.source_vectors

    def offsets(self) -> NDArray[np.int64]:
        """Return [pairs + 1] offsets: the entries of pair i are offsets[i]:offsets[i + 1]."""
        return np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])

    def pair_name(self, pair: int) -> str:
        """Return the description of a pair for messages.

        Args:
            pair: The number of the pair, from 0.
        """
        return f"pair {pair} (line {self.locations[pair]} of {self.origins[pair]!r})"

    def pair_of(self, entry: int) -> int:
        """Return the number of the pair of an entry.

        Args:
            entry: The number of the entry, from 0.
        """
        return int(np.searchsorted(self.offsets(), entry, side="right")) - 1

    def _has(self, name: str) -> bool:
        """Return whether an array is present; only keys and source vectors may be missing."""
        return name not in ("keys", "compact", "source_vectors") or getattr(self, name) is not None

    def _check_types(self) -> None:
        for name, dimensions, dtype in (
            ("keys", 2, np.float16),
            ("compact", 2, np.int8),
            ("source_vectors", 2, np.int8),
            ("values", 1, np.int32),
            ("log_probs", 1, np.float32),
            ("lengths", 1, np.integer),
        ):
            array = getattr(self, name)
            if not self._has(name):
                continue
            if not isinstance(array, np.ndarray) or array.ndim != dimensions or not np.issubdtype(array.dtype, dtype):
                found = f"{array.ndim}-d {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
                raise MemoryFolderError(
                    f"{name} of a segment must be a {dimensions}-d {dtype.__name__} array, not {found}"
                )

    def _check_counts(self) -> None:
        names = ("lengths", "sources", "targets", "origins", "locations", "source_vectors")
        _check_equal({name: len(getattr(self, name)) for name in names if self._has(name)}, "pairs")
        if self.source_vectors is not None and self.source_vectors.shape[1] != SOURCE_WIDTH:
            width = self.source_vectors.shape[1]
            raise MemoryFolderError(f"source vectors of a segment must have {SOURCE_WIDTH} dimensions, not {width}")
        if (odd := np.flatnonzero((self.lengths < 0) | (self.lengths > self.entries))).size:
            pair = int(odd[0])
            raise MemoryFolderError(
                f"{self.pair_name(pair)} has {self.lengths[pair]} entries: the segment has {self.entries}"
            )
        arrays = ("keys", "compact", "values", "log_probs")
        entries = {name: len(getattr(self, name)) for name in arrays if self._has(name)}
        _check_equal({**entries, "the sum of lengths": int(self.lengths.sum(dtype=np.int64))}, "entries")

    def _check_numbers(self) -> None:
        for name in filter(self._has, ("keys", "log_probs")):
            array = getattr(self, name)
            for start in range(0, len(array), _ROWS):  # in blocks, since a mask of all keys needs half their memory
                finite = np.isfinite(array[start : start + _ROWS])
                if not finite.all():
                    entry = start + int(np.argwhere(~finite)[0][0])
                    raise MemoryFolderError(
                        f"{self.pair_name(self.pair_of(entry))} has NaN or infinity in its {name}: "
                        "omit the pair, or run the model in float32"
                    )
        if (negative := np.flatnonzero(self.values < 0)).size:
            entry = int(negative[0])
            raise MemoryFolderError(
                f"{self.pair_name(self.pair_of(entry))} has the token id {self.values[entry]}: ids start at 0"
            )

    def _check_texts(self) -> None:
        for pair, location in enumerate(self.locations):
            if not 0 <= location <= _LINES:
                raise MemoryFolderError(
                    f"{self.pair_name(pair)} has the invalid line number {location}: give one from 0 to {_LINES}"
                )
        for name in ("sources", "targets", "origins"):
            for pair, text in enumerate(getattr(self, name)):
                try:
                    text.encode("utf-8")
                except UnicodeEncodeError as error:
                    raise MemoryFolderError(
                        f"{self.pair_name(pair)} has a lone surrogate at character {error.start} of its "
                        f"{name.removesuffix('s')}: correct its encoding, or omit the pair"
                    ) from error


def _check_equal(counts: dict[str, int], what: str) -> None:
    if len(set(counts.values())) > 1:
        raise MemoryFolderError(f"the arrays of a segment differ in their number of {what}: {counts}")


class SegmentContent(NamedTuple):
    """The sizes and the arrays of a segment.

    Attributes:
        counts: The sizes.
        arrays: The arrays by the names in `DTYPES`; only those of the layout.
    """

    counts: Counts
    arrays: dict[str, NDArray[Any]]


def round_log_probs(log_probs: NDArray[np.float32]) -> NDArray[np.float16]:
    """Round log-probabilities to float16, as they are stored."""
    return np.maximum(log_probs, np.finfo(np.float16).min).astype(np.float16)


def make_content(data: SegmentData, origins: Mapping[str, int], *, clusters: bool = False) -> SegmentContent:
    """Make the content of a segment of new pairs.

    Args:
        data: The pairs and their entries.
        origins: The number of each origin.
        clusters: Whether to store clusters; the new entries belong to none (-1).

    Returns:
        The sizes and arrays for `write_segment`.
    """
    arrays: dict[str, NDArray[Any]] = {
        "values": data.values,
        "log_probs": round_log_probs(data.log_probs),
        "offsets": data.offsets(),
        "origins": np.array([origins[name] for name in data.origins], np.int32),
        "locations": np.array(data.locations, np.int64),
        "source_vectors": data.stored_source_vectors(),
    }
    for side, texts in (("source", data.sources), ("target", data.targets)):
        encoded = [text.encode("utf-8") for text in texts]
        arrays[f"{side}s"] = np.frombuffer(b"".join(encoded), np.uint8)
        arrays[f"{side}_offsets"] = _offsets(np.fromiter(map(len, encoded), np.int64, len(encoded)))
    arrays |= {name: keys for name, keys in (("keys", data.keys), ("compact", data.compact)) if keys is not None}
    if clusters:
        arrays["clusters"] = np.full(data.entries, -1, np.int32)
    return SegmentContent(Counts(data.entries, data.entries, data.pairs), arrays)


def read_content(segment: Segment) -> SegmentContent:
    """Read and verify all arrays of a segment.

    Args:
        segment: The reader of the segment.

    Raises:
        DamagedMemoryError: A file is missing or changed.
    """
    return SegmentContent(segment.record.counts, {name: segment.array(name).all() for name in segment.expected})


def keep_pairs(content: SegmentContent, kept: NDArray[np.bool_]) -> SegmentContent:
    """Remove pairs from the content of a segment.

    Args:
        content: The content.
        kept: [pairs] True for the pairs to keep.
    """
    pairs = np.flatnonzero(kept)
    given, offsets = content.arrays, content.arrays["offsets"]
    entries = tokens = rows_of_groups(offsets, pairs)
    arrays: dict[str, NDArray[Any]] = {"offsets": _offsets(np.diff(offsets)[pairs])}
    if "rows" in given:
        new_numbers = np.full(content.counts.tokens, -1, np.int64)
        new_numbers[tokens] = np.arange(len(tokens))
        entries = np.flatnonzero(new_numbers[given["rows"]] >= 0)
        arrays["rows"] = new_numbers[given["rows"][entries]]
    arrays |= {name: given[name][entries] for name in ENTRY_ARRAYS if name in given}
    arrays |= {name: given[name][tokens] for name in ("values", "log_probs")}
    arrays |= {name: given[name][pairs] for name in ("origins", "locations", "source_vectors")}
    for side in ("source", "target"):
        bounds = given[f"{side}_offsets"]
        arrays[f"{side}s"] = given[f"{side}s"][rows_of_groups(bounds, pairs)]
        arrays[f"{side}_offsets"] = _offsets(np.diff(bounds)[pairs])
    counts = Counts(len(entries), len(tokens), len(pairs))
    if counts.entries == counts.tokens:
        arrays.pop("rows", None)
    return SegmentContent(counts, arrays)


def join_contents(contents: Sequence[SegmentContent]) -> SegmentContent:
    """Join the contents of segments in order.

    Args:
        contents: One content or more, all of the same layout.
    """
    counts = Counts(
        *(sum(column) for column in zip(*((c.entries, c.tokens, c.pairs) for c, _ in contents), strict=True))
    )
    pruned = counts.entries < counts.tokens
    firsts = np.cumsum([0] + [content.counts.tokens for content in contents]).tolist()
    arrays: dict[str, NDArray[Any]] = {}
    for name in DTYPES:
        if name == "rows":
            parts = [content.arrays.get(name, np.arange(content.counts.entries)) for content in contents]
            if pruned:
                arrays[name] = np.concatenate([part + first for part, first in zip(parts, firsts, strict=False)])
        elif name.endswith("offsets"):
            arrays[name] = _offsets(np.concatenate([np.diff(content.arrays[name]) for content in contents]))
        elif name in contents[0].arrays:
            arrays[name] = np.concatenate([content.arrays[name] for content in contents])
    return SegmentContent(counts, arrays)


def rows_of_groups(offsets: NDArray[np.int64], groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of groups, in order; group i consists of the rows offsets[i]:offsets[i + 1].

    Args:
        offsets: [all groups + 1] the first row of each group.
        groups: [n] numbers of groups.

    Examples:
        >>> rows_of_groups(np.array([0, 2, 5, 6]), np.array([0, 2]))
        array([0, 1, 5])
    """
    starts, lengths = offsets[groups], np.diff(offsets)[groups]
    ends = np.cumsum(lengths, dtype=np.int64)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + lengths, lengths)


def _offsets(lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
