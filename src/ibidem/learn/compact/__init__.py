"""Training of compactors: the Compact Network with each of the paper's objectives, PCA and SVD."""

from ibidem.learn.compact.compaction import (
    CompactSettings,
    GivenCompactor,
    TrainingData,
    compact_digest,
    compact_memory,
    drop_keys,
    fit_key_coding,
    parse_objectives,
    read_given,
    read_stored,
    train_compactor,
    uncompact_memory,
)
from ibidem.learn.compact.pca_svd import train_pca, train_svd
from ibidem.learn.compact.trainer import TrainedCompactor, train_network

__all__ = [
    "CompactSettings",
    "GivenCompactor",
    "TrainedCompactor",
    "TrainingData",
    "compact_digest",
    "compact_memory",
    "drop_keys",
    "fit_key_coding",
    "parse_objectives",
    "read_given",
    "read_stored",
    "train_compactor",
    "train_network",
    "train_pca",
    "train_svd",
    "uncompact_memory",
]
