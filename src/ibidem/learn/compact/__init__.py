"""Training of compactors: the Compact Network with each of the paper's objectives, PCA and SVD."""

from ibidem.learn.compact.pca import train_pca
from ibidem.learn.compact.reduction import TrainingData, train_compactor
from ibidem.learn.compact.settings import CompactSettings, parse_objectives
from ibidem.learn.compact.svd import train_svd
from ibidem.learn.compact.trained import TrainedCompactor
from ibidem.learn.compact.training import train_network

__all__ = [
    "CompactSettings",
    "TrainedCompactor",
    "TrainingData",
    "parse_objectives",
    "train_compactor",
    "train_network",
    "train_pca",
    "train_svd",
]
