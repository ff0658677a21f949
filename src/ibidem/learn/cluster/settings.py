"""How the keys of each family are clustered."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ibidem.errors import UsageError

METHODS = ("auto", "dbscan", "birch", "none")
# From this many entries on, the paper clusters with BIRCH (appendix, "Clustering Algorithm Selection").
BIRCH_FROM = 100_000_000


@dataclass(frozen=True)
class ClusterSettings:
    """The authors' values, but for the distances, which belong to their model's keys.

    method: "dbscan", "birch", "auto" (DBSCAN below 100 million entries, BIRCH from there on, as in the paper), or
    "none": each family is one cluster.
    eps: the distance within which DBSCAN links keys, in the keys' own units. The authors' 10 fits their 1024-d keys
    only; None derives it from the memory, so that the share `eps_quantile` of the entries become core points. With most
    of them hardly any are noise, as with the authors' eps; on IT half of them gave a worse compact space.
    min_samples: entries within eps, itself among them, that make an entry a core point of DBSCAN; clusters of fewer
    entries are noise to BIRCH.
    threshold: the largest radius of a BIRCH cluster, in the keys' own units (the authors give 0.5 to keys divided by
    10, which is 5 here, half their eps); None takes eps (min_samples - 1) / min_samples.
    family_bound: larger families are sampled down to this; the authors take 100,000, and 20,000 for large memories.
    smallest: families of fewer entries are one cluster.
    """

    method: str = "auto"
    eps: float | None = None
    min_samples: int = 4
    threshold: float | None = None
    family_bound: int = 20_000
    smallest: int = 5
    eps_quantile: float = 0.9
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UsageError(f"Unknown clustering method '{self.method}': use one of {', '.join(METHODS)}.")
        for name, distance in (("eps", self.eps), ("threshold", self.threshold)):
            if distance is not None and not (distance > 0 and math.isfinite(distance)):
                raise UsageError(f"{name} is {distance}: give a distance above 0, or none to derive it from the keys.")
        for name, least in (("min_samples", 1), ("family_bound", 2), ("smallest", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} is {getattr(self, name)}: give a whole number of {least} or more.")
        if not 0 < self.eps_quantile <= 1:
            raise UsageError(f"eps_quantile is {self.eps_quantile}: give a share above 0 and up to 1, such as 0.5.")

    def choose_method(self, entries: int) -> str:
        """Say what "auto" means for a memory of so many entries."""
        if self.method != "auto":
            return self.method
        return "dbscan" if entries < BIRCH_FROM else "birch"
