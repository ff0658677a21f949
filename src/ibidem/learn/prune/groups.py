"""Groups of entries that are compared while pruning: by token, by n-gram, or by consistent neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.learn.cost import cut_blocks
from ibidem.learn.limits import LARGEST_INT32
from ibidem.learn.prune.allocation import count_distinct, row_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

MAX_NEIGHBOURS = 16
"""The number of nearest neighbours with which an entry can share a consistent group."""

_SENTENCE_START = 0
_NO_RANK = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class EntryGroups:
    """A partition of entries into groups: group i holds order[bounds[i]:bounds[i + 1]], and no group is empty.

    Attributes:
        order: [entries] entry numbers, group after group; int32 where all entries can be counted in it, else int64.
        bounds: [groups + 1] int64, the position in `order` where each group begins, and the number of entries.
    """

    order: NDArray[np.integer[Any]]
    bounds: NDArray[np.int64]

    @classmethod
    def from_starts(cls, order: NDArray[np.integer[Any]], starts: NDArray[np.bool_]) -> EntryGroups:
        """Build groups from an order [entries] and a mask [entries] of the positions where a group begins.

        Args:
            order: [entries] entry numbers, group after group.
            starts: [entries] true at the first position of each group; the first must be true.
        """
        bounds = np.empty(int(np.count_nonzero(starts)) + 1, np.int64)
        done = 0
        for rows in row_slices(len(starts)):
            found = np.flatnonzero(starts[rows])
            bounds[done : done + len(found)] = found + rows.start
            done += len(found)
        bounds[done] = len(order)
        return cls(order, bounds)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of entries of each group [groups]."""
        return np.diff(self.bounds)

    def blocks(self) -> Iterator[tuple[slice, EntryGroups]]:
        """Iterate over runs of whole groups that need little memory: the group numbers, and the groups."""
        for first, last in cut_blocks(self.bounds):
            begin, end = self.bounds[first], self.bounds[last]
            yield slice(first, last), EntryGroups(self.order[begin:end], self.bounds[first : last + 1] - begin)

    def numbers(self) -> NDArray[np.int64]:
        """Return the group number of each position of `order` [entries]."""
        return np.repeat(np.arange(len(self)), self.sizes)


def refine(
    groups: EntryGroups, keys: NDArray[Any], split: Callable[[NDArray[Any], NDArray[np.int64]], EntryGroups]
) -> EntryGroups:
    """Split every group by the keys of its entries; the subgroups of a group stay together.

    Args:
        groups: The groups to split.
        keys: [entries] what to split by.
        split: Called with the keys [m] of some whole groups and their bounds; returns groups of 0 … m - 1.
    """
    return split_blocks(groups, lambda block: split(keys[block.order], block.bounds))


def split_blocks(groups: EntryGroups, split: Callable[[EntryGroups], EntryGroups]) -> EntryGroups:
    """Split every group; beyond the result, the RAM of one block of groups is needed.

    Args:
        groups: The groups to split.
        split: Called with some whole groups of m entries in total; returns groups of their positions 0 … m - 1, those
            of one group adjacent.
    """
    order, starts = np.empty_like(groups.order), np.zeros(len(groups.order), np.bool_)
    done = 0
    for _, block in groups.blocks():
        inner = split(block)
        order[done : done + len(block.order)] = block.order[inner.order]
        starts[done + inner.bounds[:-1]] = True
        done += len(block.order)
    return EntryGroups.from_starts(order, starts)


def split_by_number(numbers: NDArray[np.integer[Any]], bounds: NDArray[np.int64]) -> EntryGroups:
    """Split groups by a number [m] of each entry; every entry with a negative number (noise) becomes its own group.

    Args:
        numbers: [m] the number of each entry, group after group.
        bounds: [groups + 1] where each group begins, and m.

    Returns:
        The smaller groups, over the positions 0 to m - 1.
    """
    outer = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    order = np.lexsort((numbers, outer))
    sorted_numbers = numbers[order]
    starts = sorted_numbers < 0
    starts[bounds[:-1]] = True
    starts[1:] |= sorted_numbers[1:] != sorted_numbers[:-1]
    return EntryGroups.from_starts(order, starts)


def group_entries(
    values: NDArray[np.integer[Any]], offsets: NDArray[np.int64], rows: NDArray[np.int64], n: int = 1
) -> EntryGroups:
    """Group entries by the n tokens that end at them; a symbol that is no token stands before each sentence.

    The result is exact: n-grams are ranked, not hashed.

    Args:
        values: [tokens] the token ids of all sentences, 0 or greater.
        offsets: [pairs + 1] the first token of each sentence, and the number of tokens.
        rows: [entries] the tokens that are entries, increasing.
        n: The length of the n-grams; 1 groups by token.

    Returns:
        Groups in the order of their n-grams read backwards, so that groups of one token are adjacent. Entries of a
        group increase.

    Examples:
        >>> import numpy as np
        >>> groups = group_entries(np.array([7, 8, 7, 8, 9]), np.array([0, 5]), np.arange(5), n=2)
        >>> groups.order.tolist(), groups.sizes.tolist()
        ([0, 2, 1, 3, 4], [1, 1, 2, 1])
    """
    families = group_by_token(values, rows)
    if n == 1 or not len(rows):
        return families
    width = int(values.max()) + 2

    def split(own: NDArray[np.int64], bounds: NDArray[np.int64]) -> EntryGroups:
        keys = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        positions = own - offsets[np.searchsorted(offsets, own, side="right") - 1]
        for back in range(1, n):
            inside = positions >= back
            if not inside.any():
                break
            before = np.where(inside, values[np.maximum(own - back, 0)].astype(np.int64) + 1, _SENTENCE_START)
            # A rank is less than the number of entries: the product fits into 63 bits for any corpus.
            keys = _rank(keys) * width + before
        order = np.argsort(keys, kind="stable")
        return EntryGroups.from_starts(order, _changes(keys[order]))

    return refine(families, rows, split)


def group_by_token(values: NDArray[np.integer[Any]], rows: NDArray[np.int64] | None = None) -> EntryGroups:
    """Group entries by their token, block by block: beyond the result, the RAM of one block is needed.

    Args:
        values: [tokens] token ids.
        rows: [entries] the tokens that are entries; None: all.

    Returns:
        Groups in the order of their tokens. Entries of a group increase.
    """
    size = len(values) if rows is None else len(rows)

    def tokens(part: slice) -> NDArray[np.integer[Any]]:
        return values[part] if rows is None else values[rows[part]]

    distinct, counts = count_distinct(map(tokens, row_slices(size)))
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    order: NDArray[np.integer[Any]] = np.empty(size, np.int32 if size <= LARGEST_INT32 else np.int64)
    following = bounds[:-1].copy()
    for part in row_slices(size):
        families = np.searchsorted(distinct, tokens(part))
        own = np.argsort(families, kind="stable")
        here = np.bincount(families, minlength=len(distinct))
        order[np.arange(len(own)) + np.repeat(following - np.cumsum(here) + here, here)] = own + part.start
        following += here
    return EntryGroups(order, bounds)


def group_consistent(
    values: NDArray[np.integer[Any]], near: NDArray[np.int32], consistent_neighbours: int, seed: int
) -> EntryGroups:
    """Group entries of one token with their neighbours, where the nearest neighbours have the same token.

    An entry is consistent if its `consistent_neighbours` nearest neighbours have its token. Any other entry lies at the
    border to another token and forms its own group: if it were pruned, its neighbours would predict the wrong token in
    its place.

    A consistent entry links to the consistent entries of its token among its MAX_NEIGHBOURS nearest. In each round,
    a free entry becomes a centre if more entries link to it than to any free entry that it links to; every free entry
    that links to a new centre then joins the nearest one. Rounds end when no entry is free.

    Args:
        values: [entries] token ids.
        near: [entries, K] the nearest other entries, nearest first, -1 where there are fewer.
        consistent_neighbours: How many of the nearest neighbours must have the same token.
        seed: Breaks ties between entries with equally many links.

    Returns:
        Groups; those of one token are adjacent.
    """
    families = group_by_token(values)
    chances = np.random.default_rng(seed).random(len(values))
    places = np.empty_like(families.order)

    # Links stay inside a token, so tokens are independent of each other.
    def split(block: EntryGroups) -> EntryGroups:
        places[block.order] = np.arange(len(block.order), dtype=places.dtype)
        links = _ConsistentLinks(values, near, block.order, places, consistent_neighbours)
        centres = _find_centres(links, chances[block.order])
        order = np.argsort(centres, kind="stable")
        return EntryGroups.from_starts(order, _changes(centres[order]))

    return split_blocks(families, split)


class _ConsistentLinks:
    """Directed links between the consistent entries of some tokens, by their places in an order."""

    def __init__(
        self,
        values: NDArray[np.integer[Any]],
        near: NDArray[np.int32],
        order: NDArray[np.integer[Any]],
        places: NDArray[np.integer[Any]],
        consistent_neighbours: int,
    ) -> None:
        shape = len(order), min(near.shape[1], MAX_NEIGHBOURS)
        self._near = np.zeros(shape, places.dtype)
        self._linked = np.zeros(shape, np.bool_)
        consistent = np.zeros(len(order), np.bool_)
        for rows in row_slices(len(order)):
            own = order[rows]
            others = near[own, : shape[1]]
            same = (others >= 0) & (others != own[:, None]) & (values[others] == values[own][:, None])
            consistent[rows] = same[:, :consistent_neighbours].sum(1) == consistent_neighbours
            self._near[rows] = np.where(same, places[others], 0)
            self._linked[rows] = same
        for rows in row_slices(len(order)):
            self._linked[rows] &= consistent[rows][:, None] & consistent[self._near[rows]]

    def count_incoming(self) -> NDArray[np.int64]:
        """Count the links to each place [m]."""
        counts = np.zeros(len(self._near), np.int64)
        for rows in row_slices(len(self._near)):
            counts += np.bincount(self._near[rows][self._linked[rows]], minlength=len(counts))
        return counts

    def lowest_linked(self, rows: NDArray[np.int64], ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the lowest of the ranks [entries] that each row links to, _NO_RANK without a link [rows]."""
        lowest: NDArray[np.int64] = np.where(self._linked[rows], ranks[self._near[rows]], _NO_RANK).min(axis=1)
        return lowest

    def nearest_linked(self, rows: NDArray[np.int64], marked: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the nearest marked entry that each row links to, -1 without one [rows]."""
        found = self._linked[rows] & marked[self._near[rows]]
        nearest = self._near[rows, found.argmax(axis=1)]
        return np.where(found.any(axis=1), nearest, -1)


def _find_centres(links: _ConsistentLinks, chances: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the centre of each place's group [m]; a centre is its own. Chances [m] break ties."""
    incoming = links.count_incoming()
    size = len(incoming)
    ranks = np.empty(size, np.int64)
    ranks[np.lexsort((chances, -incoming))] = np.arange(size)
    centres = np.full(size, -1)
    free_ranks = ranks.copy()  # _NO_RANK once an entry is in a group
    free = np.arange(size)
    while len(free):
        is_centre = np.zeros(size, np.bool_)
        for block in _row_blocks(free):
            is_centre[block] = ranks[block] < links.lowest_linked(block, free_ranks)
        centres[is_centre] = np.flatnonzero(is_centre)
        for block in _row_blocks(free[~is_centre[free]]):
            centres[block] = links.nearest_linked(block, is_centre)
        free_ranks[centres >= 0] = _NO_RANK
        free = free[centres[free] < 0]
    return centres


def _row_blocks(rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    for part in row_slices(len(rows)):
        yield rows[part]


def _rank(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number the distinct keys 0, 1, … in their order [n]."""
    order = np.argsort(keys, kind="stable")
    ranks = np.empty_like(keys)
    ranks[order] = np.cumsum(_changes(keys[order])) - 1
    return ranks


def _changes(keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark the positions of a sequence of keys that differ from the one before [n]."""
    changes = np.ones(len(keys), dtype=np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=changes[1:])
    return changes
