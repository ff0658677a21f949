"""Triplets for training: the clusters they are drawn from, the draws, and batches of their keys.

A triplet is a pivot, a positive of its cluster, and a negative from another family (the paper's section 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from ibidem.errors import UsageError
from ibidem.learn.cluster import EXCLUDED, UNSAMPLED

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.learn.compact.key_source import KeySource

    Ids = NDArray[np.int64]
    # (random generator, numbers of the chosen clusters) -> (pivots, positives)
    PairDraw = Callable[[np.random.Generator, Ids], tuple[Ids, Ids]]

# Streams of the seed.
_SHARE_STREAM, _HELD_STREAM = 1, 2
# Members of a cluster that are never held out.
_LEAST_TRAINED = 2


class Ranges(NamedTuple):
    """Hold a range of members for each cluster: members[starts : starts + sizes].

    Attributes:
        starts: [C] int64, the first position of each range.
        sizes: [C] int64, the length of each range; it may be 0.
    """

    starts: Ids
    sizes: Ids


@dataclass(frozen=True)
class Clusters:
    """Hold the members of each cluster; clusters are numbered from 0, those of one family consecutively.

    Attributes:
        members: [m] entries, cluster by cluster, in random order within a cluster.
        training: The ranges of members to train on.
        held: The ranges of members to validate on.
        tokens: [C] int32, the value of each cluster's family, ascending.
        entries: Number of entries of the memory.
    """

    members: Ids
    training: Ranges
    held: Ranges
    tokens: NDArray[np.int32]
    entries: int

    @classmethod
    def of(
        cls, values: NDArray[np.int32], labels: NDArray[np.int32], *, held_out: float = 0.0, seed: int = 0
    ) -> Clusters:
        """Collect the clusters of a memory.

        Args:
            values: [entries], the token id of each entry.
            labels: [entries], the cluster of each entry; entries with a negative label are left out.
            held_out: About this share of each cluster's members is held out; two are always left to train on.
            seed: Seed of the choice of held-out members.

        Returns:
            The clusters in ascending order of their values.

        Raises:
            UsageError: The arrays do not fit each other, or a cluster holds several values.
        """
        if values.shape != labels.shape or values.ndim != 1:
            raise UsageError(
                f"{len(values)} values and {len(labels)} cluster labels do not belong together: "
                "cluster the memory again."
            )
        random = np.random.default_rng([seed, _HELD_STREAM])
        members = random.permutation(np.flatnonzero(labels >= 0))
        members = members[np.argsort(labels[members], kind="stable")]
        found, starts, sizes = np.unique(labels[members], return_index=True, return_counts=True)
        tokens = values[members[starts]]
        mixed = values[members] != np.repeat(tokens, sizes)
        if mixed.any():
            raise UsageError(
                f"Cluster {labels[members[int(np.argmax(mixed))]]} holds entries of more than one token: "
                "cluster the memory again."
            )
        held = np.floor(held_out * sizes + random.random(len(found))).astype(np.int64)
        held = np.minimum(held, np.maximum(sizes - _LEAST_TRAINED, 0))
        order = np.argsort(tokens, kind="stable")
        training = Ranges(starts[order], (sizes - held)[order])
        held_ranges = Ranges(training.starts + training.sizes, held[order])
        return cls(members, training, held_ranges, tokens[order], len(labels))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def families(self) -> int:
        """The number of families."""
        return len(np.unique(self.tokens))

    def clustered(self) -> NDArray[np.bool_]:
        """Return which entries belong to a cluster, held out or not: [entries]."""
        mask = np.zeros(self.entries, bool)
        mask[self.members] = True
        return mask

    def training_entries(self) -> Ids:
        """Return the entries to train on, cluster by cluster."""
        starts, sizes = self.training
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        listed: Ids = self.members[np.repeat(starts, sizes) + within]
        return listed

    def training_labels(self) -> NDArray[np.int32]:
        """Return the cluster of every entry to train on, -1 for all others: [entries]."""
        labels = np.full(self.entries, -1, np.int32)
        labels[self.training_entries()] = np.repeat(np.arange(len(self)), self.training.sizes)
        return labels


def join_families(values: NDArray[np.int32], labels: NDArray[np.int32] | None) -> NDArray[np.int32]:
    """Return labels [entries] that make each family one cluster; excluded entries stay excluded.

    Args:
        values: [entries] the token id of each entry.
        labels: [entries] the clusters; None if the memory is not clustered.
    """
    return values if labels is None else np.where(labels == EXCLUDED, np.int32(EXCLUDED), values)


def sample_entries(labels: NDArray[np.int32], share: float, seed: int) -> NDArray[np.int32]:
    """Return a copy of the labels in which all clustered entries but a random share are UNSAMPLED.

    Args:
        labels: [entries] cluster numbers; negative ones stay as they are.
        share: The share of clustered entries to keep, above 0 and up to 1.
        seed: Seed of the draw.
    """
    if share == 1:
        return labels
    drawn = np.random.default_rng([seed, _SHARE_STREAM]).random(len(labels), np.float32) < share
    return np.where(drawn | (labels < 0), labels, np.int32(UNSAMPLED))


class TripletIds(NamedTuple):
    """Hold a batch of triplets by number, each field [B] int64.

    Attributes:
        clusters: The clusters of the pivots, all different.
        pivots: Entries; for static pivots the clusters again, which number the centroids.
        positives: Entries.
        negatives: Entries.
        tokens: The values of the positives.
        negative_tokens: The values of the negatives.
    """

    clusters: Ids
    pivots: Ids
    positives: Ids
    negatives: Ids
    tokens: Ids
    negative_tokens: Ids


class TripletSampler:
    """Draw batches of triplets, each determined by the seed and its number.

    Clusters are drawn uniformly without replacement, as in the authors' code, so that a rare cluster counts as much
    as a frequent one; the cluster of a pivot has at least two members. The cluster of a negative is drawn uniformly
    among those that are allowed, and its member uniformly.

    Args:
        clusters: The clusters.
        batch: Largest number of triplets of a batch; `batch` is lower if there are fewer clusters.
        pivots: "static" (the centroid, the paper's ST) or "dynamic" (another member, DY).
        negatives: From another "family" (paper) or from any other "cluster" (the authors' code).
        seed: Seed of the draws.
        held: Draw positives and negatives among the held-out members; pivots are those of training.

    Raises:
        UsageError: There are too few tokens or clusters for a triplet.
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
        self._ranges = clusters.held if held else clusters.training
        self._eligible = np.flatnonzero(self._ranges.sizes >= (1 if held else 2))
        # Clusters that have members of this kind, in the same order: only they give negatives.
        self._others = np.flatnonzero(self._ranges.sizes)
        places = np.searchsorted(self._others, self._eligible)
        exclude = _exclude_family if negatives == "family" else _exclude_cluster
        self._excluded = exclude(clusters.tokens[self._others], places)
        if not len(self._eligible) or len(self._others) <= self._excluded.sizes.max():
            raise UsageError(
                f"{len(clusters)} clusters of {clusters.families} tokens give no triplets: at least two tokens are "
                "needed, and a cluster of two entries. Learn from a larger corpus, train on a larger share, "
                "or choose the method pca."
            )
        self._draw_pairs: PairDraw = self._draw_centroids
        if pivots == "dynamic":
            self._draw_pairs = self._draw_held if held else self._draw_members
        self.batch = min(batch, len(self._eligible))

    def draw(self, number: int) -> TripletIds:
        """Draw the batch of this number; it does not depend on earlier draws.

        Args:
            number: The number of the batch, at least 0; the same number gives the same batch.
        """
        random = np.random.default_rng([*self._seed, number])
        places = random.choice(len(self._eligible), self.batch, replace=False)
        chosen = self._eligible[places]
        pivots, positives = self._draw_pairs(random, chosen)
        # Uniform over all others but the excluded range: numbers from its start on are shifted by its size.
        starts, sizes = self._excluded.starts[places], self._excluded.sizes[places]
        negatives = random.integers(0, len(self._others) - sizes)
        negatives = self._others[negatives + np.where(negatives >= starts, sizes, 0)]
        return TripletIds(
            chosen,
            pivots,
            positives,
            self._draw_member(random, self._ranges, negatives),
            self._clusters.tokens[chosen].astype(np.int64),
            self._clusters.tokens[negatives].astype(np.int64),
        )

    def _draw_centroids(self, random: np.random.Generator, chosen: Ids) -> tuple[Ids, Ids]:
        return chosen, self._draw_member(random, self._ranges, chosen)

    def _draw_members(self, random: np.random.Generator, chosen: Ids) -> tuple[Ids, Ids]:
        starts, sizes = self._ranges.starts[chosen], self._ranges.sizes[chosen]
        pivots = random.integers(0, sizes)
        positives = (pivots + random.integers(1, sizes)) % sizes
        return self._clusters.members[starts + pivots], self._clusters.members[starts + positives]

    def _draw_held(self, random: np.random.Generator, chosen: Ids) -> tuple[Ids, Ids]:
        pivots = self._draw_member(random, self._clusters.training, chosen)
        return pivots, self._draw_member(random, self._clusters.held, chosen)

    def _draw_member(self, random: np.random.Generator, ranges: Ranges, clusters: Ids) -> Ids:
        """Draw a member of each cluster's range."""
        members: Ids = self._clusters.members[ranges.starts[clusters] + random.integers(0, ranges.sizes[clusters])]
        return members


def _exclude_family(tokens: NDArray[np.int32], places: Ids) -> Ranges:
    """Return the range of each place's family among the clusters of these tokens, ascending."""
    first = np.searchsorted(tokens, tokens[places], side="left")
    return Ranges(first, np.searchsorted(tokens, tokens[places], side="right") - first)


def _exclude_cluster(_tokens: NDArray[np.int32], places: Ids) -> Ranges:
    """Return each place itself as a range."""
    return Ranges(places, np.ones(len(places), np.int64))


class TripletBatch(NamedTuple):
    """Hold the keys of a batch of triplets.

    Attributes:
        pivots: [B, d].
        others: [2B, d], the positives, then the negatives.
        tokens: [2, B] int64, of the positives and of the negatives.
    """

    pivots: Tensor
    others: Tensor
    tokens: Tensor


class BatchLoader:
    """Read the keys of triplet batches by number.

    Args:
        sampler: Draws the triplets.
        keys: Source of positives and negatives.
        pivots: Source of pivots: the same, or the centroids.
        device: Device of the batches.
    """

    def __init__(self, sampler: TripletSampler, keys: KeySource, pivots: KeySource, device: torch.device) -> None:
        self._sampler, self._keys, self._pivots, self._device = sampler, keys, pivots, device

    def prepare(self, number: int) -> TripletBatch:
        """Draw and read the batch of this number, without using the device.

        Args:
            number: The number of the batch, at least 0; the same number gives the same batch.
        """
        drawn = self._sampler.draw(number)
        return TripletBatch(
            self._pivots.prepare(drawn.pivots),
            self._keys.prepare(np.concatenate([drawn.positives, drawn.negatives])),
            torch.from_numpy(np.stack([drawn.tokens, drawn.negative_tokens])),
        )

    def place(self, batch: TripletBatch) -> TripletBatch:
        """Copy a prepared batch to the device.

        Args:
            batch: The result of `prepare`.
        """
        tokens = batch.tokens.to(self._device, non_blocking=True)
        return TripletBatch(self._pivots.place(batch.pivots), self._keys.place(batch.others), tokens)
