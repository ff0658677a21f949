"""Removal of redundant entries, and the prediction of a token without its entry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.combine import FixedCombiner
from ibidem.learn.prune import NeighbourGraph, PruneSettings
from ibidem.learn.prune.redundancy import MixturePredictor, Prediction, remove_redundant


@dataclass
class Line:
    """Entries on a line; the nearest kept entry of the same token predicts an entry, the better the nearer it is."""

    places: np.ndarray
    tokens: np.ndarray

    def predict(self, entries: np.ndarray, kept: np.ndarray) -> Prediction:
        away = np.abs(self.places[entries][:, None] - self.places[None, :])
        away[np.arange(len(entries)), entries] = np.inf
        away[:, ~kept] = np.inf
        away[self.tokens[entries][:, None] != self.tokens[None, :]] = np.inf
        nearest = away.argmin(1)
        distance = away[np.arange(len(entries)), nearest]
        return Prediction(np.exp(-distance).astype(np.float32), np.where(distance < 2, nearest, -1))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.integers(0, 95), st.integers(0, 99))
def test_the_share_is_exact_and_supporters_stay(size: int, percent: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    line = Line(generator.uniform(0, 30, size), generator.integers(3, size=size))
    rate = percent / 100
    remaining = remove_redundant(line, size, PruneSettings(strategy="redundant", rate=rate, seed=seed))
    assert np.count_nonzero(remaining.kept) == int(np.floor((1 - rate) * size + 0.5 + 1e-9))
    if rate <= 0.1:
        assert remaining.kept[remaining.supporting].all()
    again = remove_redundant(line, size, PruneSettings(strategy="redundant", rate=rate, seed=seed))
    assert np.array_equal(remaining.kept, again.kept)


def test_duplicates_are_removed_first_and_one_of_them_stays() -> None:
    line = Line(np.array([0.0, 0.0, 10.0, 20.0, 20.001, 30.0]), np.zeros(6, np.int64))
    remaining = remove_redundant(line, 6, PruneSettings(strategy="redundant", rate=1 / 3))
    assert np.count_nonzero(remaining.kept[:2]) == 1
    assert np.count_nonzero(remaining.kept[3:5]) == 1
    assert remaining.kept[[2, 5]].all()


def test_an_entry_with_another_token_supports_none() -> None:
    line = Line(np.zeros(4), np.array([0, 1, 2, 2]))
    remaining = remove_redundant(line, 4, PruneSettings(strategy="redundant", rate=0.25))
    assert remaining.kept[:2].all()


def test_the_prediction_without_an_entry_is_the_mixture() -> None:
    """Compared with the formula, written out for an entry whose nearest neighbour was removed."""
    near = np.array([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, -1]], np.int32)
    distances = np.array([[1.0, 2.0, 4.0], [1.0, 3.0, 5.0], [2.0, 3.0, 6.0], [4.0, 5.0, np.inf]], np.float32)
    values = torch.tensor([7, 7, 8, 7])
    log_probs = torch.tensor([0.2, 0.5, 0.1, 0.9]).log()
    combiner = FixedCombiner(2, 0.6, 2.0)
    found = MixturePredictor(NeighbourGraph(near, distances), values, log_probs, combiner, torch.device("cpu"))
    kept = np.array([True, False, True, True])
    predicted = found.predict(np.array([0, 1]), kept)
    kernel = np.exp(-np.array([2.0, 4.0]) / 2)
    assert predicted.probabilities[0] == pytest.approx(0.4 * 0.2 + 0.6 * kernel[1] / kernel.sum(), abs=1e-6)
    kernel = np.exp(-np.array([1.0, 3.0]) / 2)
    assert predicted.probabilities[1] == pytest.approx(0.4 * 0.5 + 0.6 * kernel[0] / kernel.sum(), abs=1e-6)
    assert predicted.supporters.tolist() == [3, 0]
    alone = found.predict(np.array([3]), np.array([False, False, True, True]))
    assert alone.probabilities[0] == pytest.approx(0.9, abs=1e-6)
    assert alone.supporters.tolist() == [-1]
