"""Entries to prune, and groups as plain lists and sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ibidem.learn.prune import EntryGroups, PruneEntries

if TYPE_CHECKING:
    from numpy.typing import NDArray


def zipf_entries(seed: int = 0, tokens: int = 30_000, families: int = 600, *, held: float = 1.0) -> PruneEntries:
    """Make sentences of 1 to 25 tokens with Zipf's frequencies, and hold a share of the tokens as entries."""
    generator = np.random.default_rng(seed)
    weights = 1 / np.arange(1, families + 1)
    values = generator.choice(families, size=tokens, p=weights / weights.sum()).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(generator.integers(1, 26, size=tokens))])
    offsets = np.append(offsets[offsets < tokens], tokens)
    rows = np.flatnonzero(generator.random(tokens) < held)
    costs = (generator.exponential(1, size=tokens) ** 1.5).astype(np.float32)
    return PruneEntries(costs[rows], values, offsets, rows)


def as_sets(groups: EntryGroups) -> set[frozenset[int]]:
    return {frozenset(group) for group in as_lists(groups)}


def as_lists(groups: EntryGroups) -> list[list[int]]:
    """Return the members of every group, and check that the groups are a partition."""
    assert sorted(groups.order.tolist()) == list(range(len(groups.order)))
    assert groups.bounds[0] == 0
    assert groups.bounds[-1] == len(groups.order)
    assert (groups.sizes > 0).all()
    return [groups.order[start:end].tolist() for start, end in zip(groups.bounds[:-1], groups.bounds[1:], strict=True)]


def bounds_of(sizes: list[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
