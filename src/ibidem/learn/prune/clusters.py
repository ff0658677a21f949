"""Clusters of similar cost inside groups: step 1 of the paper's Algorithm 1."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ibidem.learn.prune.birch import grow_trees
from ibidem.learn.prune.dbscan import connect_densely
from ibidem.learn.prune.greedy import cover_greedily
from ibidem.learn.prune.parts import EntryGroups, refine

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ibidem.learn.prune.settings import PruneSettings

    Splitter = Callable[..., EntryGroups]

SPLITTERS: dict[str, Callable[[PruneSettings], Splitter]] = {
    "greedy": lambda _: cover_greedily,
    "dbscan": lambda settings: partial(connect_densely, min_samples=settings.min_samples),
    "birch": lambda _: grow_trees,
}

# Costs are log-perplexities; one above 80 is beyond any doubt, and its perplexity would leave float32.
SCALES: dict[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = {
    "log": lambda costs: costs,
    "perplexity": lambda costs: np.exp(np.minimum(costs, np.float32(80))),
}


# What is tried where no epsilon is given, and how many more entries than asked for the clusters must be able to give
# up: at the very limit every cluster is down to one entry.
EPSILONS = tuple(10.0 ** (half / 2) for half in range(-4, 11))
_SPARE = 0.05


def cluster_costs(
    costs: NDArray[np.float32], groups: EntryGroups, settings: PruneSettings, epsilon: float
) -> EntryGroups:
    """Cut groups into clusters of entries with similar costs [entries]; a group's clusters stay together."""
    split = partial(SPLITTERS[settings.method](settings), epsilon=epsilon)
    return refine(groups, SCALES[settings.scale](costs), split)


def cluster_finely(
    costs: NDArray[np.float32], groups: EntryGroups, settings: PruneSettings
) -> tuple[EntryGroups, float]:
    """The clusters of the smallest epsilon tried that can give up the rate and a little more, and that epsilon.

    By bisection: the larger epsilon, the fewer clusters. Where none suffices it is the largest.
    """
    low, high = 0, len(EPSILONS) - 1
    found: dict[int, EntryGroups] = {}
    while low < high:
        middle = (low + high) // 2
        found = {middle: cluster_costs(costs, groups, settings, EPSILONS[middle])}
        if can_give_up(found[middle], len(costs), settings.rate):
            high = middle
        else:
            low = middle + 1
    clusters = found[high] if high in found else cluster_costs(costs, groups, settings, EPSILONS[high])
    return clusters, EPSILONS[high]


def can_give_up(parts: EntryGroups, entries: int, rate: float) -> bool:
    """Whether parts of so many entries, one of each kept, can give up the rate and a little more."""
    return len(parts) <= entries * (1 - (1 + _SPARE) * rate)
