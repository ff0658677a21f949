"""Clusters of similar cost inside groups: step 1 of the paper's Algorithm 1."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ibidem.learn.prune.birch import grow_trees
from ibidem.learn.prune.dbscan import connect_densely
from ibidem.learn.prune.greedy import cover_greedily
from ibidem.learn.prune.parts import Parts, refine

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ibidem.learn.prune.settings import PruneSettings

    Splitter = Callable[[NDArray[np.float32], NDArray[np.int64]], Parts]

SPLITTERS: dict[str, Callable[[PruneSettings], Splitter]] = {
    "greedy": lambda settings: partial(cover_greedily, epsilon=settings.epsilon),
    "dbscan": lambda settings: partial(connect_densely, epsilon=settings.epsilon, min_samples=settings.min_samples),
    "birch": lambda settings: partial(grow_trees, epsilon=settings.epsilon),
}

# Costs are log-perplexities; one above 80 is beyond any doubt, and its perplexity would leave float32.
SCALES: dict[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = {
    "log": lambda costs: costs,
    "perplexity": lambda costs: np.exp(np.minimum(costs, np.float32(80))),
}


def cluster_costs(costs: NDArray[np.float32], groups: Parts, settings: PruneSettings) -> Parts:
    """Cut groups into clusters of entries with similar costs [entries]; a group's clusters stay together."""
    return refine(groups, SCALES[settings.scale](costs), SPLITTERS[settings.method](settings))
