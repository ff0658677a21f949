"""Entries cut into parts (groups, or the clusters inside them) as one order and its bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.learn.cost import cut_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class EntryGroups:
    """Part i holds order[bounds[i]:bounds[i + 1]]; every entry is in one part, and no part is empty.

    order [entries] int64, bounds [parts + 1] int64.
    """

    order: NDArray[np.int64]
    bounds: NDArray[np.int64]

    @classmethod
    def opened(cls, order: NDArray[np.int64], opens: NDArray[np.bool_]) -> EntryGroups:
        """Parts of an order [entries] whose first members are marked [entries]."""
        return cls(order, np.append(np.flatnonzero(opens), len(order)))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of entries of each part [parts]."""
        return np.diff(self.bounds)

    def blocks(self) -> Iterator[tuple[slice, EntryGroups]]:
        """Runs of whole parts, so that work on them needs little memory: which parts, and they themselves."""
        for first, last in cut_blocks(self.bounds):
            begin, end = self.bounds[first], self.bounds[last]
            yield slice(first, last), EntryGroups(self.order[begin:end], self.bounds[first : last + 1] - begin)

    def numbers(self) -> NDArray[np.int64]:
        """The part of each entry, in this order [entries]."""
        return np.repeat(np.arange(len(self)), self.sizes)


def refine(
    parts: EntryGroups, keys: NDArray[Any], split: Callable[[NDArray[Any], NDArray[np.int64]], EntryGroups]
) -> EntryGroups:
    """Cut every part into smaller ones by its entries' keys [entries]; parts stay in their order.

    split(keys [m], bounds) gets the keys of some whole parts, and gives parts of the numbers 0 … m - 1.
    """
    order = np.empty_like(parts.order)
    bounds = [np.zeros(1, dtype=np.int64)]
    done = 0
    for _, block in parts.blocks():
        inner = split(keys[block.order], block.bounds)
        order[done : done + len(block.order)] = block.order[inner.order]
        bounds.append(inner.bounds[1:] + done)
        done += len(block.order)
    return EntryGroups(order, np.concatenate(bounds))


def split_by_number(numbers: NDArray[np.integer[Any]], bounds: NDArray[np.int64]) -> EntryGroups:
    """One part for each number inside each part; a negative number (noise) is a part of its own for each entry."""
    outer = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    order = np.lexsort((numbers, outer))
    sorted_numbers = numbers[order]
    opens = sorted_numbers < 0
    opens[bounds[:-1]] = True
    opens[1:] |= sorted_numbers[1:] != sorted_numbers[:-1]
    return EntryGroups.opened(order, opens)
