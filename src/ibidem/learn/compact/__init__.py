"""Training of compactors: the Compact Network with each of the paper's objectives, PCA and SVD."""

from ibidem.learn.compact.pca_svd import train_pca, train_svd
from ibidem.learn.compact.settings import CompactSettings, parse_objectives
from ibidem.learn.compact.stage import (
    TrainingData,
    compact_digest,
    compact_memory,
    drop_keys,
    train_compactor,
    uncompact_memory,
)
from ibidem.learn.compact.trained import GivenCompactor, TrainedCompactor, read_given
from ibidem.learn.compact.trainer import train_network

__all__ = [
    "CompactSettings",
    "GivenCompactor",
    "TrainedCompactor",
    "TrainingData",
    "compact_digest",
    "compact_memory",
    "drop_keys",
    "parse_objectives",
    "read_given",
    "train_compactor",
    "train_network",
    "train_pca",
    "train_svd",
    "uncompact_memory",
]
