"""Entries that the rest of a memory covers: against a naive reading, and in a real memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.combine import FixedCombiner
from ibidem.learn.prune import PruneSettings
from ibidem.learn.prune.covering import Cover, remove_covered
from ibidem.learn.prune.neighbourhood import NeighbourGraph, Neighbourhood, _leave_out


@dataclass
class Line:
    """Entries on a line; the nearest kept one within reach speaks for an entry, the better the nearer."""

    places: np.ndarray
    tokens: np.ndarray

    def look(self, entries: np.ndarray, kept: np.ndarray) -> Cover:
        away = np.abs(self.places[entries][:, None] - self.places[None, :])
        away[np.arange(len(entries)), entries] = np.inf
        away[:, ~kept] = np.inf
        away[self.tokens[entries][:, None] != self.tokens[None, :]] = np.inf
        nearest = away.argmin(1)
        reach = away[np.arange(len(entries)), nearest]
        return Cover(np.exp(-reach).astype(np.float32), np.where(reach < 2, nearest, -1))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.integers(0, 95), st.integers(0, 99))
def test_the_share_is_exact_and_who_speaks_for_others_stays(size: int, percent: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    line = Line(generator.uniform(0, 30, size), generator.integers(3, size=size))
    rate = percent / 100
    left = remove_covered(line, size, PruneSettings(strategy="covered", rate=rate, seed=seed))
    assert np.count_nonzero(left.kept) == int(np.floor((1 - rate) * size + 0.5 + 1e-9))
    if rate <= 0.1:
        assert left.kept[left.supporting].all()
    again = remove_covered(line, size, PruneSettings(strategy="covered", rate=rate, seed=seed))
    assert np.array_equal(left.kept, again.kept)


def test_twins_go_first_and_one_of_them_stays() -> None:
    line = Line(np.array([0.0, 0.0, 10.0, 20.0, 20.001, 30.0]), np.zeros(6, np.int64))
    left = remove_covered(line, 6, PruneSettings(strategy="covered", rate=1 / 3))
    assert np.count_nonzero(left.kept[:2]) == 1
    assert np.count_nonzero(left.kept[3:5]) == 1
    assert left.kept[[2, 5]].all()


def test_the_same_place_with_another_token_speaks_for_nobody() -> None:
    line = Line(np.zeros(4), np.array([0, 1, 2, 2]))
    left = remove_covered(line, 4, PruneSettings(strategy="covered", rate=0.25))
    assert left.kept[:2].all()


def test_what_is_said_without_an_entry_is_the_mixture() -> None:
    """Against the formula, written out for one entry whose second neighbour is gone."""
    near = np.array([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, -1]], np.int32)
    distances = np.array([[1.0, 2.0, 4.0], [1.0, 3.0, 5.0], [2.0, 3.0, 6.0], [4.0, 5.0, np.inf]], np.float32)
    values = torch.tensor([7, 7, 8, 7])
    log_probs = torch.tensor([0.2, 0.5, 0.1, 0.9]).log()
    combiner = FixedCombiner(2, 0.6, 2.0)
    found = Neighbourhood(NeighbourGraph(near, distances), values, log_probs, combiner, torch.device("cpu"))
    kept = np.array([True, False, True, True])
    said = found.look(np.array([0, 1]), kept)
    votes = np.exp(-np.array([2.0, 4.0]) / 2)
    assert said.probabilities[0] == pytest.approx(0.4 * 0.2 + 0.6 * votes[1] / votes.sum(), abs=1e-6)
    votes = np.exp(-np.array([1.0, 3.0]) / 2)
    assert said.probabilities[1] == pytest.approx(0.4 * 0.5 + 0.6 * votes[0] / votes.sum(), abs=1e-6)
    assert said.supporters.tolist() == [3, 0]
    alone = found.look(np.array([3]), np.array([False, False, True, True]))
    assert alone.probabilities[0] == pytest.approx(0.9, abs=1e-6)
    assert alone.supporters.tolist() == [-1]


def test_an_entry_is_not_its_own_neighbour() -> None:
    entries = torch.tensor([[4, 9, 2], [5, 6, 7]])
    distances = torch.tensor([[0.0, 1.0, 2.0], [0.0, 0.0, 3.0]])
    near, away = _leave_out(entries, distances, torch.tensor([9, 1]))
    assert near.tolist() == [[4, 2], [5, 6]]
    assert away.tolist() == [[0.0, 2.0], [0.0, 0.0]]
