"""Settings of pruning; every reading of the paper is one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from ibidem.errors import UsageError
from ibidem.learn.prune.groups import MAX_NEIGHBOURS

STRATEGIES = ("cost-clusters", "redundant", "random", "low-probability", "high-probability", "spatial")
GROUPS = ("token", "ngram", "consistent")
METHODS = ("greedy", "dbscan", "birch")
RULES = ("exact", "floor")
SCALES = ("log", "perplexity")
_RATE_DENOMINATOR = 10**6


@dataclass(frozen=True)
class PruneSettings:
    """Settings of pruning.

    "The paper" is its section 3.2 with Algorithm 1; "the code" is the code that its authors published.

    Attributes:
        strategy: "cost-clusters" is the paper's method. "redundant" is ours: it removes the entries that the tuned
            memory predicts without them. "random" (RP), "low-probability" (LTP), "high-probability" (HTP) and
            "spatial" (SP) are the baselines of the paper's section 4.5.2.
        rate: The share of entries to remove, from 0 to below 1; 0.1 as in the paper's comparison of strategies. The
            code takes the share to keep instead.
        n: The longest n-gram of the translation cost. The paper (section 4.3) and the code use 2. The default is 1,
            since the minimum over several lengths gives a hard token after an easy one a low cost.
        groups: Which entries are compared: those of one "token" (the paper), of one "ngram" (the code), or "consistent"
            ones (ours), whose nearest neighbours have the same token. None: "ngram" for cost-clusters, and "token" for
            the other strategies.
        group_n: The length of the n-grams that group entries; the code uses 2.
        consistent_neighbours: How many of an entry's nearest neighbours must have its token, for
            consistent groups.
        epsilon: Half the width of a cost cluster; the paper gives none, the code uses 1.5. None: as small as the rate
            allows, with larger groups (fewer consistent neighbours, shorter n-grams) where these are too small for the
            rate.
        scale: The scale on which costs are compared: "perplexity" (the paper) or "log" (the code).
        method: The clustering of costs: "greedy" (the paper and the code); "dbscan", which chains the costs of a
            frequent token into one cluster, so that pruning becomes random; or "birch", which depends on the order of
            entries and needs scikit-learn.
        min_samples: The neighbours of a DBSCAN core point, itself included; the code uses 4 for keys.
        rule: "exact" removes the requested share; "floor" is the rounding of the code, which leaves clusters of two
            alone.
        seed: The seed of all random choices.

    Raises:
        UsageError: A setting is invalid.

    Examples:
        >>> PruneSettings(rate=0.3, groups="token").kept_share
        Fraction(7, 10)
    """

    strategy: str = "cost-clusters"
    rate: float = 0.1
    n: int = 1
    groups: str | None = None
    group_n: int = 3
    consistent_neighbours: int = 3
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
            ("allocation rule", self.rule, RULES),
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
            ("consistent_neighbours", self.consistent_neighbours, 1),
            ("min_samples", self.min_samples, 1),
            ("seed", self.seed, 0),
        ):
            if not isinstance(number, int) or number < least:
                raise UsageError(f"{name} must be a whole number from {least} up, not {number}.")
        if self.consistent_neighbours > MAX_NEIGHBOURS:
            raise UsageError(
                f"consistent_neighbours is at most {MAX_NEIGHBOURS}, the number of neighbours that are compared, not "
                f"{self.consistent_neighbours}: use 3, the default."
            )

    @property
    def kept_share(self) -> Fraction:
        """The exact share of entries to keep; in floating point 1 - 0.9 is less than 0.1, and ten entries keep none."""
        return 1 - Fraction(self.rate).limit_denominator(_RATE_DENOMINATOR)

    @property
    def grouping(self) -> str:
        """The kind of groups, with the strategy's default where `groups` is None."""
        return self.groups or ("ngram" if self.strategy == "cost-clusters" else "token")

    @property
    def grouped_tokens(self) -> int:
        """How many tokens the entries of one group share: 1 for families, more for n-grams."""
        return self.group_n if self.grouping == "ngram" else 1


PAPER_SETTINGS = PruneSettings(n=2, groups="token", group_n=2, epsilon=1.5, scale="log")
"""Algorithm 1 of the paper with the values of the authors' code."""
