"""Which of the waiting lines to decode together.

A batch takes as many steps as its longest line, and a step costs about as much as four more lines in it would; every
line is padded to the longest. So lines of like length are cheap together, and a few long ones among many short ones are
not. What a batch costs was measured on one CPU core with the model that ships: in lengths of lines, STEP times the
longest, and one time and PADDING times the longest for each line.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

STEP = 4.0
PADDING = 0.2


def choose_group(lengths: Sequence[int], size: int, wanted: int | None = None) -> range:
    """Of rising lengths the neighbours, at most `size`, that cost least for what they give; `wanted` is among them."""
    sums = [0, *accumulate(lengths)]
    first, last = (0, len(lengths) - 1) if wanted is None else (wanted, min(wanted + size, len(lengths)) - 1)
    best, choice = -1.0, range(0)
    for end in range(first, last + 1):
        latest = end if wanted is None else wanted
        longest = max(lengths[end], 1)
        for start in range(max(0, end + 1 - size), latest + 1):
            total = sums[end + 1] - sums[start]
            worth = total / (total + longest * (STEP + PADDING * (end + 1 - start)))
            if worth > best:
                best, choice = worth, range(start, end + 1)
    return choice
