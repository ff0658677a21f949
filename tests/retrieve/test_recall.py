"""Recall@k, for which any of several duplicates counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ibidem.retrieve import ArrayKeys, ExactIndex, Neighbours, measure_recall

if TYPE_CHECKING:
    import torch


class FirstHalf:
    """An index that finds only neighbours among the first half of the keys."""

    description = "half"

    def __init__(self, keys: ArrayKeys) -> None:
        self.size, self.dimension = keys.size, keys.dimension
        self._exact = ExactIndex(ArrayKeys(keys.gather(np.arange(keys.size // 2))))

    def search(self, queries: torch.Tensor, k: int) -> Neighbours:
        return self._exact.search(queries, k)


def test_exact_search_has_recall_one(clustered: ArrayKeys) -> None:
    assert measure_recall(ExactIndex(clustered), clustered, seed=0) == 1.0


def test_half_of_the_keys_give_half_the_recall(clustered: ArrayKeys) -> None:
    recall = measure_recall(FirstHalf(clustered), clustered, samples=500, seed=0)
    assert recall == pytest.approx(0.5, abs=0.05)
    assert recall == measure_recall(FirstHalf(clustered), clustered, samples=500, seed=0)
    assert recall != measure_recall(FirstHalf(clustered), clustered, samples=500, seed=1)


def test_any_of_several_duplicates_counts() -> None:
    distinct = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float16)
    keys = ArrayKeys(np.concatenate([distinct, distinct]))
    assert measure_recall(FirstHalf(keys), keys, k=1, seed=0) == 1.0


def test_few_keys() -> None:
    one = ArrayKeys(np.ones((1, 3), dtype=np.float16))
    assert measure_recall(ExactIndex(one), one, seed=0) == 1.0
    none = ArrayKeys(np.ones((0, 3), dtype=np.float16))
    assert measure_recall(ExactIndex(none), none, seed=0) == 1.0
