"""Groups of entries that say the same: by token, or by token and the tokens before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.learn.prune.parts import EntryGroups

if TYPE_CHECKING:
    from numpy.typing import NDArray

_START = 0


def group_entries(
    values: NDArray[np.integer[Any]], offsets: NDArray[np.int64], rows: NDArray[np.int64], n: int = 1
) -> EntryGroups:
    """Group entries by the n tokens that end at them; before a sentence stands a symbol that is no token.

    values [tokens] of all tokens from 0 up, offsets [pairs + 1], rows [entries] the tokens that are entries,
    increasing -> groups in the order of their tokens read backwards (so those of one value are neighbours),
    the entries of a group in increasing order. Exact: n-grams are ranked, not hashed.
    """
    keys = values[rows].astype(np.int64)
    if n > 1 and len(rows):
        width = int(values.max()) + 2
        positions = rows - offsets[np.searchsorted(offsets, rows, side="right") - 1]
        for back in range(1, n):
            inside = positions >= back
            if not inside.any():
                break
            before = np.where(inside, values[np.maximum(rows - back, 0)].astype(np.int64) + 1, _START)
            # Ranks are below the number of entries, so that the product fits in 63 bits for any corpus.
            keys = _rank(keys) * width + before
    order = np.argsort(keys, kind="stable")
    return EntryGroups.opened(order, _changes(keys[order]))


def _rank(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number the distinct keys 0, 1, … in their order [n]."""
    order = np.argsort(keys, kind="stable")
    ranks = np.empty_like(keys)
    ranks[order] = np.cumsum(_changes(keys[order])) - 1
    return ranks


def _changes(keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where a sorted row of keys shows a new one [n]."""
    changes = np.ones(len(keys), dtype=np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=changes[1:])
    return changes
