"""What to prune, and how: every reading of the paper is a setting."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from ibidem.errors import UsageError
from ibidem.learn.prune.agreement import REACH

STRATEGIES = ("cost-clusters", "covered", "random", "low-probability", "high-probability", "spatial")
GROUPS = ("token", "ngram", "agreeing")
METHODS = ("greedy", "dbscan", "birch")
RULES = ("exact", "floor")
SCALES = ("log", "perplexity")
_FINEST = 10**6


@dataclass(frozen=True)
class PruneSettings:
    """How a memory is pruned; raises UsageError for what cannot be meant.

    strategy: cost-clusters is the paper's own, the best on average in its table; covered is ours, and asks the tuned
    memory itself what it could do without; the others are the paper's baselines.
    rate: the share of entries removed; 0.1 as in that table (the authors' code asks for the share kept instead).
    n: longest n-gram of the cost; 1, since the minimum over more makes a hard token after an easy one look easy (the
    code has 2, the paper gives none).
    groups: which entries are compared: those of a token (Algorithm 1), of an n-gram (the code), or agreeing ones
    (ours), which lie close together with none of another token between them. None: n-grams for cost-clusters, so that
    an entry is given up only for one with the same words before it, and tokens for the others.
    group_n: length of those n-grams; 3 was best on a large memory (docs/results/pruning.md), 2 is the code's.
    agreeing: so many of an entry's nearest ones must have its token for it to be in a group of agreeing ones.
    epsilon: half the width of a cost cluster; the paper gives none, the code has 1.5. None: as small as the rate
    allows, in larger groups where these leave too little to remove: fewer that agree, shorter n-grams.
    scale: of costs while they are compared: perplexity as the paper says, or log as in the code. The same difference
    is little among easy tokens on the one, and much on the other; so is it among hard ones the other way round.
    method: greedy, on which Algorithm 1 and the code agree; dbscan chains the costs of a frequent token into
    one cluster, which is random pruning; birch (needs scikit-learn) depends on the order of entries.
    min_samples: neighbours of a DBSCAN core point, itself included; 4, the authors' value for keys.
    rule: exact removes the share asked for; floor is the code's rounding, which leaves every two alone.
    seed: of the random choices.
    """

    strategy: str = "cost-clusters"
    rate: float = 0.1
    n: int = 1
    groups: str | None = None
    group_n: int = 3
    agreeing: int = 3
    epsilon: float | None = None
    scale: str = "perplexity"
    method: str = "greedy"
    min_samples: int = 4
    rule: str = "exact"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, chosen, options in (
            ("pruning strategy", self.strategy, STRATEGIES),
            ("grouping of entries", self.groups or "token", GROUPS),
            ("clustering of costs", self.method, METHODS),
            ("keeping rule", self.rule, RULES),
            ("scale of costs", self.scale, SCALES),
        ):
            if chosen not in options:
                raise UsageError(f"Unknown {name} '{chosen}': use one of {', '.join(options)}.")
        if not 0 <= self.rate < 1:
            raise UsageError(
                f"The pruning rate is the share of entries removed, from 0 to below 1, not {self.rate}: "
                "0.1 removes one in ten."
            )
        if self.epsilon is not None and not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise UsageError(f"epsilon is a difference of costs above 0, not {self.epsilon}: use 1.5, the authors'.")
        for name, number, least in (
            ("n", self.n, 1),
            ("group_n", self.group_n, 1),
            ("agreeing", self.agreeing, 1),
            ("min_samples", self.min_samples, 1),
            ("seed", self.seed, 0),
        ):
            if not isinstance(number, int) or number < least:
                raise UsageError(f"{name} must be a whole number from {least} up, not {number}.")

        if self.agreeing > REACH:
            raise UsageError(
                f"agreeing is at most {REACH}, since no more neighbours are looked at, not {self.agreeing}."
            )

    @property
    def kept_share(self) -> Fraction:
        """The share of entries to keep, exact: in floats 1 - 0.9 is less than a tenth, and ten entries keep none."""
        return 1 - Fraction(self.rate).limit_denominator(_FINEST)

    @property
    def grouping(self) -> str:
        """What the groups are, also where that is left to the strategy."""
        return self.groups or ("ngram" if self.strategy == "cost-clusters" else "token")

    @property
    def grouped_tokens(self) -> int:
        """How many tokens entries of one group share: 1 for families, more for n-grams."""
        return self.group_n if self.grouping == "ngram" else 1


PAPER_SETTINGS = PruneSettings(n=2, groups="token", group_n=2, epsilon=1.5, scale="log")
"""Algorithm 1 with the numbers of the authors' code."""
