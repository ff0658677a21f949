"""Memories to prune, and plain readings of parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ibidem.learn.prune import EntryGroups, PruneEntries

if TYPE_CHECKING:
    from numpy.typing import NDArray


def zipf_entries(seed: int = 0, tokens: int = 30_000, families: int = 600, *, held: float = 1.0) -> PruneEntries:
    """Sentences of 1 to 25 tokens with Zipf's frequencies; of the tokens, a share is held as entries."""
    generator = np.random.default_rng(seed)
    weights = 1 / np.arange(1, families + 1)
    values = generator.choice(families, size=tokens, p=weights / weights.sum()).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(generator.integers(1, 26, size=tokens))])
    offsets = np.append(offsets[offsets < tokens], tokens)
    rows = np.flatnonzero(generator.random(tokens) < held)
    costs = (generator.exponential(1, size=tokens) ** 1.5).astype(np.float32)
    return PruneEntries(costs[rows], values, offsets, rows)


def as_sets(parts: EntryGroups) -> set[frozenset[int]]:
    return {frozenset(part) for part in as_lists(parts)}


def as_lists(parts: EntryGroups) -> list[list[int]]:
    """The members of every part; what Parts promises is checked on the way."""
    assert sorted(parts.order.tolist()) == list(range(len(parts.order)))
    assert parts.bounds[0] == 0
    assert parts.bounds[-1] == len(parts.order)
    assert (parts.sizes > 0).all()
    return [parts.order[start:end].tolist() for start, end in zip(parts.bounds[:-1], parts.bounds[1:], strict=True)]


def bounds_of(sizes: list[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
