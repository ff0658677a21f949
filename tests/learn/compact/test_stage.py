"""A compactor is trained by the method of the settings, from the data that the method needs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ibidem.errors import UsageError
from ibidem.learn.compact import TrainingData, train_compactor

from .samples import clustered, quick


def test_the_method_of_the_settings_trains() -> None:
    sample = clustered()
    data = TrainingData(sample.keys, sample.values, sample.labels, 24, torch.randn(24, 40))
    kinds = []
    for method in ("network", "pca", "svd"):
        trained = train_compactor(data, quick(method=method))
        assert trained is not None
        assert trained.compactor.dimension == 6
        kinds.append(trained.compactor.summary()["kind"])
    assert kinds == ["network", "pca", "svd"]
    assert train_compactor(data, quick(method="none")) is None
    with pytest.raises(UsageError, match="needs the base model's output matrix"):
        train_compactor(replace(data, output_matrix=None), quick(method="svd"))
