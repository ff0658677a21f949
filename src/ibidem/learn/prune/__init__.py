"""Pruning of redundant entries: Algorithm 1 (the paper's section 3.2), its baselines, and two strategies of ours."""

from ibidem.learn.prune.cost_clusters import cluster_costs, label_dbscan
from ibidem.learn.prune.groups import EntryGroups, group_entries
from ibidem.learn.prune.neighbour_graph import NeighbourGraph, build_neighbour_graph, count_graph_neighbours
from ibidem.learn.prune.pruning import (
    PAPER_SETTINGS,
    PruneSettings,
    default_strategy,
    prune_digest,
    prune_memory,
    restore_memory,
)
from ibidem.learn.prune.strategies import PruneEntries, PruneResult, prune_entries

__all__ = [
    "PAPER_SETTINGS",
    "EntryGroups",
    "NeighbourGraph",
    "PruneEntries",
    "PruneResult",
    "PruneSettings",
    "build_neighbour_graph",
    "cluster_costs",
    "count_graph_neighbours",
    "default_strategy",
    "group_entries",
    "label_dbscan",
    "prune_digest",
    "prune_entries",
    "prune_memory",
    "restore_memory",
]
