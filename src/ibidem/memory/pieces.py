"""Arrays for a segment: of new pairs, or of a sealed segment less some pairs, and several of them as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ibidem.memory.layout import DTYPES, OF_ENTRIES, Counts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ibidem.memory.pairs import SegmentData
    from ibidem.memory.segment import Segment


class Piece(NamedTuple):
    """Counts, and the arrays of a segment that has them."""

    counts: Counts
    arrays: dict[str, NDArray[Any]]


def new_piece(data: SegmentData, origins: Mapping[str, int], *, clusters: bool = False) -> Piece:
    """The piece of new pairs; `origins` gives each origin's number; with `clusters` the entries belong to none."""
    arrays: dict[str, NDArray[Any]] = {
        "values": data.values,
        "log_probs": data.log_probs,
        "offsets": data.offsets(),
        "origins": np.array([origins[name] for name in data.origins], np.int32),
        "locations": np.array(data.locations, np.int64),
    }
    for side, texts in (("source", data.sources), ("target", data.targets)):
        encoded = [text.encode("utf-8") for text in texts]
        arrays[f"{side}s"] = np.frombuffer(b"".join(encoded), np.uint8)
        arrays[f"{side}_offsets"] = _offsets(np.fromiter(map(len, encoded), np.int64, len(encoded)))
    arrays |= {name: keys for name, keys in (("keys", data.keys), ("compact", data.compact)) if keys is not None}
    if clusters:
        arrays["clusters"] = np.full(data.entries, -1, np.int32)
    return Piece(Counts(data.entries, data.entries, data.pairs), arrays)


def sealed_piece(segment: Segment) -> Piece:
    """The piece that a sealed segment is, every array verified."""
    return Piece(segment.record.counts, {name: segment.array(name).all() for name in segment.expected})


def keep_pairs(piece: Piece, kept: NDArray[np.bool_]) -> Piece:
    """The pairs of a piece that are kept, and all that belongs to them; kept: [pairs]."""
    pairs = np.flatnonzero(kept)
    given, offsets = piece.arrays, piece.arrays["offsets"]
    entries = tokens = members(offsets, pairs)
    arrays: dict[str, NDArray[Any]] = {"offsets": _offsets(np.diff(offsets)[pairs])}
    if "rows" in given:
        new_numbers = np.full(piece.counts.tokens, -1, np.int64)
        new_numbers[tokens] = np.arange(len(tokens))
        entries = np.flatnonzero(new_numbers[given["rows"]] >= 0)
        arrays["rows"] = new_numbers[given["rows"][entries]]
    arrays |= {name: given[name][entries] for name in OF_ENTRIES if name in given}
    arrays |= {name: given[name][tokens] for name in ("values", "log_probs")}
    arrays |= {name: given[name][pairs] for name in ("origins", "locations")}
    for side in ("source", "target"):
        bounds = given[f"{side}_offsets"]
        arrays[f"{side}s"] = given[f"{side}s"][members(bounds, pairs)]
        arrays[f"{side}_offsets"] = _offsets(np.diff(bounds)[pairs])
    counts = Counts(len(entries), len(tokens), len(pairs))
    if counts.entries == counts.tokens:
        arrays.pop("rows", None)
    return Piece(counts, arrays)


def join_pieces(pieces: Sequence[Piece]) -> Piece:
    """All pieces as one, in order."""
    counts = Counts(*(sum(column) for column in zip(*((c.entries, c.tokens, c.pairs) for c, _ in pieces), strict=True)))
    thinned = counts.entries < counts.tokens
    firsts = np.cumsum([0] + [piece.counts.tokens for piece in pieces]).tolist()
    arrays: dict[str, NDArray[Any]] = {}
    for name in DTYPES:
        if name == "rows":
            parts = [piece.arrays.get(name, np.arange(piece.counts.entries)) for piece in pieces]
            if thinned:
                arrays[name] = np.concatenate([part + first for part, first in zip(parts, firsts, strict=False)])
        elif name.endswith("offsets"):
            arrays[name] = _offsets(np.concatenate([np.diff(piece.arrays[name]) for piece in pieces]))
        elif name in pieces[0].arrays:
            arrays[name] = np.concatenate([piece.arrays[name] for piece in pieces])
    return Piece(counts, arrays)


def members(offsets: NDArray[np.int64], groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers of all members of these groups, in order; group i is offsets[i]:offsets[i + 1]."""
    starts, lengths = offsets[groups], np.diff(offsets)[groups]
    ends = np.cumsum(lengths, dtype=np.int64)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + lengths, lengths)


def _offsets(lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
