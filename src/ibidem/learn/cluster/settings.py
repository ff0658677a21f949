"""Settings of the clustering of keys."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ibidem.errors import UsageError

METHODS = ("auto", "dbscan", "birch", "none")
# The paper clusters memories of 100M entries and more with BIRCH (section 4.2, "Clustering Algorithm Selection").
BIRCH_FROM = 100_000_000


@dataclass(frozen=True)
class ClusterSettings:
    """Hold the settings of the clustering; all defaults but the distances are the authors'.

    Distances are in the units of the model's own keys. The authors' distances fit the 1024-dimensional keys of their
    model only, so by default they are derived from the memory.

    Args:
        method: "dbscan", "birch", "auto" (the paper's choice, section 4.2: DBSCAN below 100 million entries, BIRCH
            above), or "none" (each family is one cluster).
        eps: Radius of DBSCAN's neighbourhoods (the authors': 10). None derives it from the keys: `derive_eps`.
        min_samples: Number of entries within eps, the entry itself included, that make an entry a core point of
            DBSCAN. BIRCH clusters of fewer entries are noise.
        threshold: Largest radius of a BIRCH cluster (the authors': 0.5 for keys divided by 10, which is half their
            eps). None takes eps (min_samples - 1) / min_samples.
        family_bound: Largest number of entries of a family that are clustered; a larger family is sampled. The
            authors take 100,000, and 20,000 for large memories.
        smallest: Families of fewer entries are one cluster each.
        eps_quantile: Share of the entries that a derived eps makes core points. A high share leaves little noise, as
            the authors' eps does.
        seed: Seed of all random draws.

    Raises:
        UsageError: A setting is out of its range.

    Examples:
        >>> ClusterSettings().choose_method(entries=3_000_000)
        'dbscan'
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
                raise UsageError(f"Invalid {name} {distance}: give a distance above 0, or none to derive it.")
        for name, least in (("min_samples", 1), ("family_bound", 2), ("smallest", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise UsageError(f"Invalid {name} {getattr(self, name)}: give a whole number of {least} or more.")
        if not 0 < self.eps_quantile <= 1:
            raise UsageError(f"Invalid eps_quantile {self.eps_quantile}: give a share above 0 and up to 1.")

    def choose_method(self, entries: int) -> str:
        """Resolve "auto" for a memory of this many entries.

        Returns:
            "dbscan", "birch" or "none".
        """
        if self.method != "auto":
            return self.method
        return "dbscan" if entries < BIRCH_FROM else "birch"
