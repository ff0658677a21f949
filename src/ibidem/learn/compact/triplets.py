"""Drawing triplets: a pivot, a positive of its cluster, a negative from elsewhere (the paper's 3.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ibidem.errors import UsageError
from ibidem.learn.compact.clusters import Clusters, Runs

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Ids = NDArray[np.int64]
    # (random source, numbers of the chosen clusters) -> (pivots, positives)
    Pairing = Callable[[np.random.Generator, Ids], tuple[Ids, Ids]]


class Draw(NamedTuple):
    """A batch of triplets by number, each [B] int64.

    clusters: the pivots' clusters, all different; pivots: entries, or for static pivots the clusters again, which
    number the centroids; positives, negatives: entries; words, negative_words: their values.
    """

    clusters: Ids
    pivots: Ids
    positives: Ids
    negatives: Ids
    words: Ids
    negative_words: Ids


class Triplets:
    """Seeded draws of triplets from clusters.

    Clusters are drawn uniformly and all different, as the authors do, so rare ones count as much as frequent ones;
    a pivot's cluster has at least two members. A negative's cluster is drawn uniformly among those of other families
    ("family", paper) or all others ("cluster", code), and its member uniformly too. With `held`, positives and
    negatives are held-out members, and pivots are as in training.
    """

    def __init__(
        self,
        clusters: Clusters,
        *,
        batch: int,
        pivots: str,
        negatives: str,
        seed: tuple[int, ...],
        held: bool = False,
    ) -> None:
        self._clusters = clusters
        self._seed = seed
        self._runs = clusters.held if held else clusters.training
        self._eligible = np.flatnonzero(self._runs.sizes >= (1 if held else 2))
        # Where clusters have no member of this kind, they give no negatives: the others, in the same order.
        self._others = np.flatnonzero(self._runs.sizes)
        places = np.searchsorted(self._others, self._eligible)
        self._barred = _BARRED[negatives](clusters.words[self._others], places)
        if not len(self._eligible) or len(self._others) <= self._barred.sizes.max():
            raise UsageError(
                f"{len(clusters)} clusters of {clusters.families} tokens give no triplets: at least two tokens are "
                "needed, and a cluster of two entries. Learn from a larger corpus, train on a larger share, "
                "or choose the method pca."
            )
        self._pair: Pairing = {
            ("static", False): self._pair_centroid,
            ("static", True): self._pair_centroid,
            ("dynamic", False): self._pair_members,
            ("dynamic", True): self._pair_held,
        }[pivots, held]
        self.batch = min(batch, len(self._eligible))

    def draw(self, number: int) -> Draw:
        """The batch of this number: always the same, whatever was drawn before."""
        random = np.random.default_rng([*self._seed, number])
        places = random.choice(len(self._eligible), self.batch, replace=False)
        chosen = self._eligible[places]
        pivots, positives = self._pair(random, chosen)
        # Uniform over all others but the barred run: those from its start on move up by its size.
        starts, sizes = self._barred.starts[places], self._barred.sizes[places]
        negatives = random.integers(0, len(self._others) - sizes)
        negatives = self._others[negatives + np.where(negatives >= starts, sizes, 0)]
        return Draw(
            chosen,
            pivots,
            positives,
            self._member(random, self._runs, negatives),
            self._clusters.words[chosen].astype(np.int64),
            self._clusters.words[negatives].astype(np.int64),
        )

    def _pair_centroid(self, random: np.random.Generator, chosen: Ids) -> tuple[Ids, Ids]:
        return chosen, self._member(random, self._runs, chosen)

    def _pair_members(self, random: np.random.Generator, chosen: Ids) -> tuple[Ids, Ids]:
        starts, sizes = self._runs.starts[chosen], self._runs.sizes[chosen]
        pivots = random.integers(0, sizes)
        positives = (pivots + random.integers(1, sizes)) % sizes
        return self._clusters.members[starts + pivots], self._clusters.members[starts + positives]

    def _pair_held(self, random: np.random.Generator, chosen: Ids) -> tuple[Ids, Ids]:
        pivots = self._member(random, self._clusters.training, chosen)
        return pivots, self._member(random, self._clusters.held, chosen)

    def _member(self, random: np.random.Generator, runs: Runs, clusters: Ids) -> Ids:
        """A random member of each cluster's run."""
        members: Ids = self._clusters.members[runs.starts[clusters] + random.integers(0, runs.sizes[clusters])]
        return members


def _bar_family(words: NDArray[np.int32], places: Ids) -> Runs:
    """The run of the family of each place: where it starts, and how many they are."""
    first = np.searchsorted(words, words[places], side="left")
    return Runs(first, np.searchsorted(words, words[places], side="right") - first)


def _bar_cluster(_words: NDArray[np.int32], places: Ids) -> Runs:
    """Each place itself."""
    return Runs(places, np.ones(len(places), np.int64))


_BARRED: dict[str, Callable[[NDArray[np.int32], Ids], Runs]] = {"family": _bar_family, "cluster": _bar_cluster}
