"""Pruning: which entries of a memory say what others say as well (the paper's Algorithm 1, and its baselines)."""

from ibidem.learn.prune.clusters import cluster_costs
from ibidem.learn.prune.groups import group_entries
from ibidem.learn.prune.parts import EntryGroups
from ibidem.learn.prune.settings import PAPER_SETTINGS, PruneSettings
from ibidem.learn.prune.strategies import Pruned, PruneEntries, prune_entries

__all__ = [
    "PAPER_SETTINGS",
    "EntryGroups",
    "PruneEntries",
    "PruneSettings",
    "Pruned",
    "cluster_costs",
    "group_entries",
    "prune_entries",
]
