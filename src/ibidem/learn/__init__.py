"""Learning a memory from a corpus: the stages (extract, cluster, compact, tune, prune, index) and the whole recipe."""

from ibidem.learn.adapt import (
    Adaptation,
    AdaptSettings,
    EncodedText,
    Measurement,
    adapt_model,
    check_target,
    fine_tune,
    measure_loss,
    measure_text,
)
from ibidem.learn.cluster import ClusterSettings, cluster_memory
from ibidem.learn.combiner_training import ContextualSettings, MetaKSettings, train_adaptive, tune_fixed
from ibidem.learn.compact import (
    CompactSettings,
    TrainingData,
    compact_memory,
    fit_key_coding,
    parse_objectives,
    train_compactor,
)
from ibidem.learn.cost import translation_costs
from ibidem.learn.distribution import Distribution, open_distribution
from ibidem.learn.examples import Examples, gather_examples
from ibidem.learn.extraction import ExtractSettings, cut_chunks, extract, make_batches
from ibidem.learn.maintenance import index_memory, maintain, repair_memory
from ibidem.learn.memory_writer import Added, Correction, MemoryWriter, create_memory
from ibidem.learn.provenance import describe_memory, write_card
from ibidem.learn.prune import (
    PAPER_SETTINGS,
    EntryGroups,
    NeighbourGraph,
    PruneEntries,
    PruneSettings,
    build_neighbour_graph,
    cluster_costs,
    count_graph_neighbours,
    default_strategy,
    group_entries,
    label_dbscan,
    prune_entries,
    prune_memory,
    restore_memory,
)
from ibidem.learn.recipe import LearnSettings, learn
from ibidem.learn.tuning import TuneSettings, tune

__all__ = [
    "PAPER_SETTINGS",
    "AdaptSettings",
    "Adaptation",
    "Added",
    "ClusterSettings",
    "CompactSettings",
    "ContextualSettings",
    "Correction",
    "Distribution",
    "EncodedText",
    "EntryGroups",
    "Examples",
    "ExtractSettings",
    "LearnSettings",
    "Measurement",
    "MemoryWriter",
    "MetaKSettings",
    "NeighbourGraph",
    "PruneEntries",
    "PruneSettings",
    "TrainingData",
    "TuneSettings",
    "adapt_model",
    "build_neighbour_graph",
    "check_target",
    "cluster_costs",
    "cluster_memory",
    "compact_memory",
    "count_graph_neighbours",
    "create_memory",
    "cut_chunks",
    "default_strategy",
    "describe_memory",
    "extract",
    "fine_tune",
    "fit_key_coding",
    "gather_examples",
    "group_entries",
    "index_memory",
    "label_dbscan",
    "learn",
    "maintain",
    "make_batches",
    "measure_loss",
    "measure_text",
    "open_distribution",
    "parse_objectives",
    "prune_entries",
    "prune_memory",
    "repair_memory",
    "restore_memory",
    "train_adaptive",
    "train_compactor",
    "translation_costs",
    "tune",
    "tune_fixed",
    "write_card",
]
