"""Training a compactor by whichever method the settings name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ibidem.errors import UsageError
from ibidem.learn.compact.pca import train_pca
from ibidem.learn.compact.svd import train_svd
from ibidem.learn.compact.training import train_network
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from ibidem.learn.compact.settings import CompactSettings
    from ibidem.learn.compact.trained import TrainedCompactor
    from ibidem.retrieve import Keys


@dataclass(frozen=True)
class TrainingData:
    """What compactors are trained on; each method takes what it needs.

    values, labels: [entries], for the network; labels None where nothing was clustered.
    output_matrix: [V, d], for the SVD only.
    """

    keys: Keys
    values: NDArray[np.int32]
    labels: NDArray[np.int32] | None
    vocabulary_size: int
    output_matrix: torch.Tensor | None = None


Trainer = Callable[
    ["TrainingData", "CompactSettings", torch.device, "Path | None", Progress], "TrainedCompactor | None"
]


def train_compactor(
    material: TrainingData,
    settings: CompactSettings,
    *,
    device: torch.device | str = "cpu",
    workspace: Path | None = None,
    progress: Progress = silent,
) -> TrainedCompactor | None:
    """Train by the settings' method; None for the method "none", which leaves the keys as they are."""
    return _METHODS[settings.method](material, settings, torch.device(device), workspace, progress)


def _network(
    material: TrainingData, settings: CompactSettings, device: torch.device, workspace: Path | None, progress: Progress
) -> TrainedCompactor:
    return train_network(
        material.keys,
        material.values,
        material.labels,
        material.vocabulary_size,
        settings,
        device=device,
        workspace=workspace,
        progress=progress,
    )


def _pca(
    material: TrainingData, settings: CompactSettings, device: torch.device, _workspace: Path | None, progress: Progress
) -> TrainedCompactor:
    return train_pca(
        material.keys,
        settings.dimension,
        share=settings.share,
        seed=settings.seed,
        device=device,
        progress=progress,
    )


def _svd(
    material: TrainingData,
    settings: CompactSettings,
    device: torch.device,
    _workspace: Path | None,
    _progress: Progress,
) -> TrainedCompactor:
    if material.output_matrix is None:
        raise UsageError("The method svd needs the base model's output matrix: give the model, or choose pca.")
    return train_svd(material.output_matrix.to(device), settings.dimension, settings.svd_rows)


def _none(
    _material: TrainingData,
    _settings: CompactSettings,
    _device: torch.device,
    _workspace: Path | None,
    _progress: Progress,
) -> None:
    return None


_METHODS: dict[str, Trainer] = {"network": _network, "pca": _pca, "svd": _svd, "none": _none}
