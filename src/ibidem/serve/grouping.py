"""Which of the waiting lines to decode together.

A batch takes as many steps as its longest line, and a step costs about as much as four more lines in it would; every
line is padded to the longest. So lines of like length are cheap together, and a few long ones among many short ones are
not. What a batch costs was measured on one CPU core with the model that ships: in lengths of lines, STEP times the
longest, and one time and PADDING times the longest for each line.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

STEP = 4.0
PADDING = 0.2
# A line of this many tokens costs twice as much as its tokens would in short lines: attention grows with the length.
_DOUBLE = 64


def cost(tokens: int) -> float:
    """Estimate the time that decoding a line of so many tokens takes, in units of a token of a short line.

    With the shipped model on one CPU core the unit is 0.4 to 0.7 ms where a translation gets as long as it may.
    """
    return tokens + tokens * tokens / _DOUBLE


def choose_group(lengths: Sequence[int], size: int, wanted: int | None = None, budget: float = math.inf) -> range:
    """Of rising lengths the neighbours, at most `size`, that cost least for what they give; `wanted` is among them.

    Their costs sum to `budget` at most, unless a single line costs more.
    """
    sums = [0, *accumulate(lengths)]
    costs = [0.0, *accumulate(map(cost, lengths))]
    first, last = (0, len(lengths) - 1) if wanted is None else (wanted, min(wanted + size, len(lengths)) - 1)
    best, choice = -1.0, range(0)
    for end in range(first, last + 1):
        latest = end if wanted is None else wanted
        longest = max(lengths[end], 1)
        for start in range(max(0, end + 1 - size), latest + 1):
            if start < end and costs[end + 1] - costs[start] > budget:
                continue
            total = sums[end + 1] - sums[start]
            worth = total / (total + longest * (STEP + PADDING * (end + 1 - start)))
            if worth > best:
                best, choice = worth, range(start, end + 1)
    return choice
