"""Pruning: which entries of a memory say what others say as well (the paper's Algorithm 1, and its baselines)."""

from ibidem.learn.prune.clusters import cluster_costs
from ibidem.learn.prune.groups import group_entries
from ibidem.learn.prune.parts import Parts
from ibidem.learn.prune.settings import AS_PRINTED, PruneSettings
from ibidem.learn.prune.strategies import Entries, Pruned, prune

__all__ = [
    "AS_PRINTED",
    "Entries",
    "Parts",
    "PruneSettings",
    "Pruned",
    "cluster_costs",
    "group_entries",
    "prune",
]
