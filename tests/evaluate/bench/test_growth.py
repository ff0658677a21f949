"""Grown keys keep the memory's own, searches in them are timed, and the growth is an exponent."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ibidem.evaluate.bench import SearchTime, fit_growth, grow_keys, time_search
from ibidem.retrieve import ArrayKeys


def test_own_keys_come_first_and_perturbed_copies_after_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ibidem.evaluate.bench.growth._BLOCK", 100)
    own = np.random.default_rng(0).standard_normal((250, 8)).astype(np.float16)
    grown = grow_keys(ArrayKeys(own), 1000, seed=1)
    everything = grown.gather(np.arange(1000))
    assert np.array_equal(everything[:200], own[:200])
    assert len(np.unique(everything, axis=0)) == 1000
    assert np.array_equal(everything, grow_keys(ArrayKeys(own), 1000, seed=1).gather(np.arange(1000)))
    timed = time_search(grown, torch.randn(20, 8), "exact", batches=[1, 4], k=3, rounds=2, seed=0)
    assert timed.keys == 1000
    assert set(timed.microseconds) == {1, 4}
    assert all(time > 0 for time in timed.microseconds.values())


def test_growth_is_an_exponent() -> None:
    times = [SearchTime(keys, "any", 1.0, {5: 3 * keys**0.5, 40: 7.0}) for keys in (1000, 4000, 20000)]
    assert fit_growth(times) == {5: pytest.approx(0.5), 40: pytest.approx(0.0)}
    assert fit_growth(times[:1]) == fit_growth([]) == {}
