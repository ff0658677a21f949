"""Clusters as training sees them: which entries each holds, and to which family it belongs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ibidem.errors import UsageError
from ibidem.learn.cluster import EXCLUDED, UNSAMPLED

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHARE_STREAM, _HELD_STREAM = 1, 2
# A cluster keeps this many members to train on, whatever is held out.
_LEAST = 2


class Runs(NamedTuple):
    """Where each cluster's entries lie among the members: from starts [C], sizes [C] of them, int64."""

    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]


@dataclass(frozen=True)
class Clusters:
    """Clusters numbered from 0, those of one family next to each other.

    members: [m] entries, cluster by cluster, in random order within one; training, held: the runs of members to
    train on and to validate on; words: [C] int32, the value of each cluster's family, ascending.
    """

    members: NDArray[np.int64]
    training: Runs
    held: Runs
    words: NDArray[np.int32]
    entries: int

    @classmethod
    def of(
        cls, values: NDArray[np.int32], labels: NDArray[np.int32], *, held_out: float = 0.0, seed: int = 0
    ) -> Clusters:
        """Clusters of values and labels [entries]; labels >= 0 count, each for one cluster of the whole memory.

        About a share held_out of each cluster's members is held out, but two are always left to train on.
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
        words = values[members[starts]]
        mixed = values[members] != np.repeat(words, sizes)
        if mixed.any():
            raise UsageError(
                f"Cluster {labels[members[int(np.argmax(mixed))]]} holds entries of more than one token: "
                "cluster the memory again."
            )
        held = np.floor(held_out * sizes + random.random(len(found))).astype(np.int64)
        held = np.minimum(held, np.maximum(sizes - _LEAST, 0))
        order = np.argsort(words, kind="stable")
        training = Runs(starts[order], (sizes - held)[order])
        return cls(members, training, Runs(training.starts + training.sizes, held[order]), words[order], len(labels))

    def __len__(self) -> int:
        return len(self.words)

    @property
    def families(self) -> int:
        """The number of families."""
        return len(np.unique(self.words))

    def taking_part(self) -> NDArray[np.bool_]:
        """Which entries [entries] belong to a cluster, held out or not."""
        part = np.zeros(self.entries, bool)
        part[self.members] = True
        return part

    def list_training(self) -> NDArray[np.int64]:
        """The entries to train on, cluster by cluster."""
        starts, sizes = self.training
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        listed: NDArray[np.int64] = self.members[np.repeat(starts, sizes) + within]
        return listed

    def numbers(self) -> NDArray[np.int32]:
        """The cluster of every entry [entries] to train on, -1 for all others."""
        numbers = np.full(self.entries, -1, np.int32)
        numbers[self.list_training()] = np.repeat(np.arange(len(self)), self.training.sizes)
        return numbers


def join_families(values: NDArray[np.int32], labels: NDArray[np.int32] | None) -> NDArray[np.int32]:
    """Labels that make one cluster of each family: all of its entries but the excluded."""
    return values if labels is None else np.where(labels == EXCLUDED, np.int32(EXCLUDED), values)


def thin(labels: NDArray[np.int32], share: float, seed: int) -> NDArray[np.int32]:
    """Labels in which only a random share of the entries takes part."""
    if share == 1:
        return labels
    drawn = np.random.default_rng([seed, _SHARE_STREAM]).random(len(labels), np.float32) < share
    return np.where(drawn | (labels < 0), labels, np.int32(UNSAMPLED))
