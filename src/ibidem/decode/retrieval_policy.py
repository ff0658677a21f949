"""The retrieval policy: which hypotheses skip the search in a memory, and which search fewer lists.

On a CPU, search is the largest cost of a memory. A hypothesis far below the best one of its sentence hardly ever wins,
so it skips retrieval. A hypothesis a little below the best one, or whose next token the base model predicts with a high
probability, probes fewer lists of a native index. The policy depends on the sentence alone, never on batch or threads.
The native step applies the same rules in `native/step/beams.cpp` and `native/step/retrieval_context.h`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ibidem.native import RetrievalPolicy

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Differences of log-probability; docs/results/speed.md has what other margins cost.
RETRIEVAL_MARGIN = 3.0
_REDUCED_GAP = 0.25
# Probability of the best token without a memory.
_REDUCED_ABOVE = 0.85


def default_margin(device: torch.device) -> float:
    """Return the retrieval margin of a device: RETRIEVAL_MARGIN on a CPU, no limit elsewhere.

    Args:
        device: Device of the search.
    """
    return RETRIEVAL_MARGIN if device.type == "cpu" else math.inf


def make_policy(margin: float) -> RetrievalPolicy:
    """Return the policy of the native step for a retrieval margin; without a limit every search is a full one.

    Args:
        margin: The retrieval margin, a difference of log-probability; infinite for no limit.
    """
    if margin == math.inf:
        return RetrievalPolicy(math.inf, math.inf, math.inf)
    return RetrievalPolicy(margin, _REDUCED_GAP, _REDUCED_ABOVE)


def find_lagging(scores: Tensor, margin: float) -> Tensor:
    """Return which hypotheses skip retrieval.

    Args:
        scores: [n, beam] log-probabilities of the hypotheses of each sentence, best first.
        margin: The retrieval margin.

    Returns:
        [n, beam] booleans.
    """
    return scores < scores[:, :1] - margin
