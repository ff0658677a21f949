"""Translation costs: the perplexity of each token's n-gram by the base model (the paper's section 3.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_BLOCK = 1 << 20


def translation_costs(log_probs: NDArray[np.float32], offsets: NDArray[np.int64], n: int = 2) -> NDArray[np.float32]:
    """Compute the translation cost of each token (the paper's section 3.2).

    c_i = min over b = 1 … n of -(log p_i + … + log p_{i-b+1}) / b: the paper's minimal perplexity, on the log scale as
    in the authors' code. At the p-th token of a sentence (from 0) only b <= p + 1 are considered: nothing is assumed
    about what precedes a sentence.

    Args:
        log_probs: [tokens] natural log-probabilities by the base model.
        offsets: [pairs + 1] pair i is offsets[i]:offsets[i + 1]; a pair may be empty.
        n: The longest n-gram.

    Returns:
        [tokens] costs.

    Raises:
        UsageError: `n` is less than 1, or the offsets do not match the tokens.

    Examples:
        >>> import numpy as np
        >>> translation_costs(np.array([-1, -3, -2], np.float32), np.array([0, 2, 3]), n=2).tolist()
        [1.0, 2.0, 2.0]
    """
    if n < 1:
        raise UsageError(f"Invalid n-gram length {n} of a translation cost: use 1 or more; the paper uses 2.")
    check_offsets(offsets, len(log_probs))
    costs = np.empty(len(log_probs), dtype=np.float32)
    for first, last in cut_blocks(offsets):
        begin, end = offsets[first], offsets[last]
        costs[begin:end] = _costs_of(log_probs[begin:end], offsets[first : last + 1] - begin, n)
    return costs


def _costs_of(log_probs: NDArray[np.float32], offsets: NDArray[np.int64], n: int) -> NDArray[np.float64]:
    """Compute the costs of whole sentences with n - 1 shifted additions."""
    lengths = np.diff(offsets)
    positions = np.arange(len(log_probs)) - np.repeat(offsets[:-1], lengths)
    losses = np.subtract(0.0, log_probs, dtype=np.float64)  # 0 - x, since -x is -0.0 for a probability of 1
    costs, sums = losses.copy(), losses.copy()
    for b in range(2, min(n, int(lengths.max(initial=0))) + 1):
        sums[b - 1 :] += losses[: 1 - b]
        # A sum that extends into the previous sentence stays masked for every longer b.
        inside = positions[b - 1 :] >= b - 1
        np.minimum(costs[b - 1 :], sums[b - 1 :] / b, out=costs[b - 1 :], where=inside)
    return costs


def check_offsets(offsets: NDArray[np.int64], tokens: int) -> None:
    """Check that offsets divide tokens into sentences.

    Args:
        offsets: [pairs + 1] the first token of each sentence, and the number of tokens.
        tokens: The number of tokens.

    Raises:
        UsageError: The offsets do not begin with 0, do not end with the number of tokens, or decrease.
    """
    if offsets.ndim != 1 or len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != tokens:
        raise UsageError(f"Sentence offsets must begin with 0 and end with the number of tokens, which is {tokens}.")
    if (np.diff(offsets) < 0).any():
        raise UsageError("Sentence offsets must not decrease: give where each sentence begins, in order.")


def cut_blocks(bounds: NDArray[np.int64], size: int = _BLOCK) -> Iterator[tuple[int, int]]:
    """Iterate over runs [first, last) of groups with at most `size` members in total, or of one larger group.

    Args:
        bounds: [groups + 1] group i is bounds[i]:bounds[i + 1].
        size: The most members of a run.
    """
    first, groups = 0, len(bounds) - 1
    while first < groups:
        last = int(np.searchsorted(bounds, bounds[first] + size, side="right")) - 1
        last = min(max(last, first + 1), groups)
        yield first, last
        first = last
