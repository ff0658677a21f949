"""Groups of entries whose surroundings agree with them: what one of them says, those around it say too.

An entry beside others with another token marks where one word ends and the other begins: without it, they take its
place. It is never given up here, and the others only for one of the same token close to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.learn.prune.parts import EntryGroups

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

# How many of an entry's nearest ones it can be in a group with.
REACH = 16
_BLOCK = 1 << 18
_NOBODY = np.iinfo(np.int64).max


def group_agreeing(values: NDArray[np.integer[Any]], near: NDArray[np.int32], agreeing: int, seed: int) -> EntryGroups:
    """Group entries of one token around some of them, where the nearest entries agree.

    values [entries]; near [entries, K] the nearest others, nearest first, -1 where there is none; agreeing: so many of
    an entry's nearest ones must have its token, else it is a group of its own -> groups, those of one value together.

    Again and again each free entry becomes a centre that more entries look to than to any free one it looks to itself,
    and every entry that looks to a centre joins the nearest. seed: decides among equals.
    """
    centres = _find_centres(_Looks(values, near, agreeing), seed)
    order = np.lexsort((centres, values))
    opens = np.ones(len(values), np.bool_)
    np.not_equal(centres[order[1:]], centres[order[:-1]], out=opens[1:])
    return EntryGroups.opened(order, opens)


class _Looks:
    """Who looks to whom: agreeing entries to those of the same token within reach that agree too."""

    def __init__(self, values: NDArray[np.integer[Any]], near: NDArray[np.int32], agreeing: int) -> None:
        self._near = near[:, :REACH]
        self._same = np.zeros(self._near.shape, np.bool_)
        agrees = np.zeros(len(values), np.bool_)
        for block in _blocks(np.arange(len(values))):
            others = self._near[block]
            there = (others >= 0) & (others != block[:, None])
            self._same[block] = there & (values[others] == values[block][:, None])
            agrees[block] = self._same[block, :agreeing].sum(1) == agreeing
        for block in _blocks(np.arange(len(values))):
            self._same[block] &= agrees[block][:, None] & agrees[self._near[block]]

    def popularity(self) -> NDArray[np.int64]:
        """How many look to each entry [entries]."""
        counts = np.zeros(len(self._near), np.int64)
        for block in _blocks(np.arange(len(self._near))):
            counts += np.bincount(self._near[block][self._same[block]], minlength=len(counts))
        return counts

    def least(self, rows: NDArray[np.int64], keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """The least key [entries] of those that each of some entries looks to, or a very large number [rows]."""
        least: NDArray[np.int64] = np.where(self._same[rows], keys[self._near[rows]], _NOBODY).min(axis=1)
        return least

    def first(self, rows: NDArray[np.int64], marked: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The nearest marked entry that each of some entries looks to, -1 where there is none [rows]."""
        found = self._same[rows] & marked[self._near[rows]]
        nearest = self._near[rows, found.argmax(axis=1)]
        return np.where(found.any(axis=1), nearest, -1)


def _find_centres(looks: _Looks, seed: int) -> NDArray[np.int64]:
    """The centre of each entry's group [entries], which may be itself."""
    popularity = looks.popularity()
    size = len(popularity)
    ranks = np.empty(size, np.int64)
    ranks[np.lexsort((np.random.default_rng(seed).random(size), -popularity))] = np.arange(size)
    centres = np.full(size, -1)
    keys = ranks.copy()  # of those that are free, the others' are out of the question
    free = np.arange(size)
    while len(free):
        is_centre = np.zeros(size, np.bool_)
        for block in _blocks(free):
            is_centre[block] = ranks[block] < looks.least(block, keys)
        centres[is_centre] = np.flatnonzero(is_centre)
        for block in _blocks(free[~is_centre[free]]):
            centres[block] = looks.first(block, is_centre)
        keys[centres >= 0] = _NOBODY
        free = free[centres[free] < 0]
    return centres


def _blocks(rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    for start in range(0, len(rows), _BLOCK):
        yield rows[start : start + _BLOCK]
