"""Compaction of a memory, and its settings."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from ibidem.errors import UsageError
from ibidem.learn.compact import CompactSettings, TrainingData, parse_objectives, train_compactor

from .samples import clustered, quick


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nce", (("nce", 1.0),)),
        ("nce+ranking", (("nce", 1.0), ("ranking", 1.0))),
        ("nce:1,prediction:0.5", (("nce", 1.0), ("prediction", 0.5))),
        (" ranking : 2e-1 + nce ", (("ranking", 0.2), ("nce", 1.0))),
    ],
)
def test_objectives_are_parsed(text: str, expected: tuple[tuple[str, float], ...]) -> None:
    assert parse_objectives(text) == expected
    assert CompactSettings(objectives=expected).objectives == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "Unknown objective '': use nce, ranking, prediction"),
        ("nce+", "Unknown objective ''"),
        ("infonce", "Unknown objective 'infonce': use nce"),
        ("nce+nce", "name each once"),
        ("nce:zero", "'nce:zero' is not a number"),
        ("nce:0", "Invalid weight 0.0 of the objective nce: give a weight above 0"),
        ("nce:-1", "above 0"),
        ("nce:nan", "above 0"),
        ("nce:inf", "above 0"),
    ],
)
def test_invalid_objectives_are_rejected(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_objectives(text)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"method": "umap"}, "use one of general, network, pca, svd, none"),
        ({"activation": "relu"}, "use one of sigmoid, tanh"),
        ({"nce": "triplet"}, "use one of in_batch, binary"),
        ({"ranking": "code"}, "use one of paper, clipped"),
        ({"pivots": "centroid"}, "use one of static, dynamic"),
        ({"negatives": "token"}, "use one of family, cluster"),
        ({"hidden": "wide"}, "4x-output, quarter-input, or a number"),
        ({"hidden": 0}, "Invalid hidden 0: it must be at least 1"),
        ({"dimension": 0}, "Invalid dimension 0"),
        ({"batch": 1}, "Invalid batch 1"),
        ({"share": 0.0}, "Invalid share 0.0"),
        ({"share": 1.1}, "Invalid share 1.1"),
        ({"held_out": 1.0}, "Invalid held_out 1.0"),
        ({"learning_rate": float("nan")}, "Invalid learning_rate nan"),
        ({"clip": 0.0}, "Invalid clip 0.0"),
        ({"label_smoothing": 1.0}, "Invalid label_smoothing 1.0"),
        ({"svd_rows": 0}, "Invalid svd_rows 0"),
        ({"seed": -1}, "Invalid seed -1"),
        ({"objectives": ()}, "name each once"),
    ],
)
def test_invalid_settings_are_rejected(changes: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        CompactSettings(**changes)  # type: ignore[arg-type]


def test_hidden_sizes_of_both_readings_agree_where_the_authors_used_them() -> None:
    assert CompactSettings().hidden_size(1024) == 256
    assert CompactSettings(hidden="quarter-input").hidden_size(1024) == 256
    assert CompactSettings().hidden_size(512) == 256
    assert CompactSettings(hidden="quarter-input").hidden_size(512) == 128
    assert CompactSettings(hidden=100).hidden_size(512) == 100


def test_the_summary_survives_json() -> None:
    summary = CompactSettings(objectives=(("nce", 1.0), ("prediction", 0.5))).summary()
    assert json.loads(json.dumps(summary)) == summary
    assert summary["objectives"] == [["nce", 1.0], ["prediction", 0.5]]
    assert summary != CompactSettings().summary()


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
