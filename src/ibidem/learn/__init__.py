"""From a corpus to a memory: every stage of the paper's recipe, and the recipe that runs them all."""

from ibidem.learn.card import describe_memory, write_card
from ibidem.learn.chunks import make_batches
from ibidem.learn.cluster import ClusterSettings, cluster_memory
from ibidem.learn.compact import CompactSettings, TrainingData, compact_memory, parse_objectives, train_compactor
from ibidem.learn.cost import translation_costs
from ibidem.learn.examples import Examples, gather_examples
from ibidem.learn.extraction import ExtractSettings, extract
from ibidem.learn.grid import tune_fixed
from ibidem.learn.indexing import index_memory
from ibidem.learn.maintenance import maintain
from ibidem.learn.metak import MetaKSettings, train_adaptive
from ibidem.learn.prune import (
    PAPER_SETTINGS,
    EntryGroups,
    NeighbourGraph,
    PruneEntries,
    PruneSettings,
    build_neighbour_graph,
    cluster_costs,
    count_needed,
    group_entries,
    label_densely,
    prune_entries,
    prune_memory,
    restore_memory,
)
from ibidem.learn.recipe import LearnSettings, learn
from ibidem.learn.scribe import Added, Correction, MemoryWriter, create_memory
from ibidem.learn.tuning import TuneSettings, tune

__all__ = [
    "PAPER_SETTINGS",
    "Added",
    "ClusterSettings",
    "CompactSettings",
    "Correction",
    "EntryGroups",
    "Examples",
    "ExtractSettings",
    "LearnSettings",
    "MemoryWriter",
    "MetaKSettings",
    "NeighbourGraph",
    "PruneEntries",
    "PruneSettings",
    "TrainingData",
    "TuneSettings",
    "build_neighbour_graph",
    "cluster_costs",
    "cluster_memory",
    "compact_memory",
    "count_needed",
    "create_memory",
    "describe_memory",
    "extract",
    "gather_examples",
    "group_entries",
    "index_memory",
    "label_densely",
    "learn",
    "maintain",
    "make_batches",
    "parse_objectives",
    "prune_entries",
    "prune_memory",
    "restore_memory",
    "train_adaptive",
    "train_compactor",
    "translation_costs",
    "tune",
    "tune_fixed",
    "write_card",
]
