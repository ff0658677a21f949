"""Neighbourhoods of one-dimensional costs: after a sort each is a run of consecutive entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BITS = np.uint64(32)


@dataclass(frozen=True, eq=False)
class Windows:
    """Entries sorted by group, then cost, then number, and who is within epsilon of whom.

    order [m] the entries so sorted; those within epsilon of the one at place i, and in its group, stand at
    places left[i]:right[i], itself among them.
    """

    order: NDArray[np.int64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.order)


def open_windows(costs: NDArray[np.float32], bounds: NDArray[np.int64], epsilon: float) -> Windows:
    """Sort the costs [m] of each group and find all windows; group i is bounds[i]:bounds[i + 1].

    Two costs are near if |a - b| <= epsilon in float64; scikit-learn compares the squares, which says the same.
    """
    groups = np.repeat(np.arange(len(bounds) - 1, dtype=np.uint64) << _BITS, np.diff(bounds))
    keys = groups | _sortable(costs)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    lowest, highest = _reach(costs[order], epsilon)
    left = np.searchsorted(keys, groups | _sortable(lowest), side="left")
    right = np.searchsorted(keys, groups | _sortable(highest), side="right")
    return Windows(order, left, right)


def _sortable(costs: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Whole numbers below 2³² in the order of the costs, so that group and cost are one key."""
    bits = (np.asarray(costs, dtype=np.float32) + np.float32(0)).view(np.uint32)  # + 0 makes -0.0 equal 0.0
    flip = np.where(bits >> 31, np.uint32(0xFFFFFFFF), np.uint32(0x80000000))
    return (bits ^ flip).astype(np.uint64)


def _reach(costs: NDArray[np.float32], epsilon: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The lowest and the highest float32 within epsilon of each cost."""
    return -_highest(-costs, epsilon), _highest(costs, epsilon)


def _highest(costs: NDArray[np.float32], epsilon: float) -> NDArray[np.float32]:
    wide = costs.astype(np.float64)
    # Near 0 a float32 is finer than the last bit of epsilon: what differs by less than half of it is near too.
    edge = (wide + epsilon) + np.spacing(epsilon) / 2
    highest: NDArray[np.float32] = np.minimum(edge, np.finfo(np.float32).max).astype(np.float32)
    # The guess is off by a step or two; the test itself decides which way.
    while (beyond := highest - wide > epsilon).any():
        highest[beyond] = np.nextafter(highest[beyond], np.float32(-np.inf))
    while True:
        following = np.nextafter(highest, np.float32(np.inf))
        within = following - wide <= epsilon
        if not within.any():
            return highest
        highest[within] = following[within]
