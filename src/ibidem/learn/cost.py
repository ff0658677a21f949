"""Translation cost of every token: how much its n-gram surprised the base model (the paper's section 3.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_BLOCK = 1 << 20


def translation_costs(log_probs: NDArray[np.float32], offsets: NDArray[np.int64], n: int = 2) -> NDArray[np.float32]:
    """The least mean surprise of the last 1, 2, … n tokens that end at each token, inside its sentence.

    c_i = min over b = 1 … n of -(log p_i + … + log p_{i-b+1}) / b: the paper's least perplexity, on the log
    scale as in the authors' code. At the p-th token of a sentence (from 0) only b <= p + 1 are looked at; no
    probability is made up for what would stand before the sentence.

    log_probs [tokens] natural logarithms, offsets [pairs + 1] (pair i is offsets[i]:offsets[i + 1], a pair may
    be empty) -> costs [tokens]. Raises UsageError.
    """
    if n < 1:
        raise UsageError(f"The n-gram of a translation cost needs at least one token, not {n}: use n = 2, or 1 and up.")
    check_offsets(offsets, len(log_probs))
    costs = np.empty(len(log_probs), dtype=np.float32)
    for first, last in cut_blocks(offsets):
        begin, end = offsets[first], offsets[last]
        costs[begin:end] = _costs_of(log_probs[begin:end], offsets[first : last + 1] - begin, n)
    return costs


def _costs_of(log_probs: NDArray[np.float32], offsets: NDArray[np.int64], n: int) -> NDArray[np.float64]:
    """Costs of whole sentences, by shifting the row of surprises over itself n - 1 times."""
    lengths = np.diff(offsets)
    positions = np.arange(len(log_probs)) - np.repeat(offsets[:-1], lengths)
    surprises = np.subtract(0.0, log_probs, dtype=np.float64)  # 0 - x, since -x would make certain tokens cost -0.0
    costs, sums = surprises.copy(), surprises.copy()
    for b in range(2, min(n, int(lengths.max(initial=0))) + 1):
        sums[b - 1 :] += surprises[: 1 - b]
        # Sums that reached into the sentence before stay masked for every longer b.
        inside = positions[b - 1 :] >= b - 1
        np.minimum(costs[b - 1 :], sums[b - 1 :] / b, out=costs[b - 1 :], where=inside)
    return costs


def check_offsets(offsets: NDArray[np.int64], tokens: int) -> None:
    """Raise UsageError unless the offsets cut so many tokens into sentences."""
    if offsets.ndim != 1 or len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != tokens:
        raise UsageError(f"Sentence offsets must begin with 0 and end with the number of tokens, which is {tokens}.")
    if (np.diff(offsets) < 0).any():
        raise UsageError("Sentence offsets must not fall: give where each sentence begins, in order.")


def cut_blocks(bounds: NDArray[np.int64], size: int = _BLOCK) -> Iterator[tuple[int, int]]:
    """Runs [first, last) of parts with at most `size` members together, or of one part that is larger alone.

    bounds [parts + 1]: part i is bounds[i]:bounds[i + 1].
    """
    first, parts = 0, len(bounds) - 1
    while first < parts:
        last = int(np.searchsorted(bounds, bounds[first] + size, side="right")) - 1
        last = min(max(last, first + 1), parts)
        yield first, last
        first = last
