"""From a corpus to a memory: every stage of the paper's recipe, and the recipe that runs them all."""

from ibidem.learn.card import describe_memory, write_card
from ibidem.learn.cluster import ClusterSettings
from ibidem.learn.cluster.stage import cluster_memory
from ibidem.learn.compact import CompactSettings
from ibidem.learn.compact.stage import compact_memory
from ibidem.learn.examples import Examples, gather_examples
from ibidem.learn.extraction import ExtractSettings, extract
from ibidem.learn.grid import tune_fixed
from ibidem.learn.indexing import index_memory
from ibidem.learn.maintenance import maintain
from ibidem.learn.metak import MetaKSettings, train_adaptive
from ibidem.learn.prune import PruneSettings
from ibidem.learn.prune.stage import prune_memory, restore_memory
from ibidem.learn.recipe import LearnSettings, learn
from ibidem.learn.scribe import Added, Correction, Scribe, create_memory
from ibidem.learn.tuning import TuneSettings, tune

__all__ = [
    "Added",
    "ClusterSettings",
    "CompactSettings",
    "Correction",
    "Examples",
    "ExtractSettings",
    "LearnSettings",
    "MetaKSettings",
    "PruneSettings",
    "Scribe",
    "TuneSettings",
    "cluster_memory",
    "compact_memory",
    "create_memory",
    "describe_memory",
    "extract",
    "gather_examples",
    "index_memory",
    "learn",
    "maintain",
    "prune_memory",
    "restore_memory",
    "train_adaptive",
    "tune",
    "tune_fixed",
    "write_card",
]
