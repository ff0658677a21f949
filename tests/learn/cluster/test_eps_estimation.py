"""The derived eps is a quantile of core distances, on any scale of the keys."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ibidem.learn.cluster import ClusterSettings, cluster_keys, derive_eps, eps_estimation, group_by_value
from ibidem.learn.cluster.eps_estimation import core_distances
from ibidem.retrieve import ArrayKeys

from .samples import Sample, draw_families

CPU = torch.device("cpu")


def true_core_distances(sample: Sample, value: int, min_samples: int) -> np.ndarray:
    points = sample.keys.gather(np.flatnonzero(sample.values == value)).astype(np.float64)
    distances = np.sqrt(np.square(points[:, None] - points).sum(2))
    return np.sort(distances, 1)[:, min_samples - 1]


@pytest.mark.parametrize("min_samples", [1, 4, 9])
def test_core_distances_equal_brute_force(min_samples: int) -> None:
    sample = draw_families({0: 300})
    points = torch.from_numpy(sample.keys.gather(np.arange(300)))
    found = core_distances(points, torch.arange(0, 300, 2), min_samples)
    np.testing.assert_allclose(found, true_core_distances(sample, 0, min_samples)[::2], rtol=1e-12)


def test_core_distances_are_exact_where_rough_distances_change_order() -> None:
    line = np.sort(np.random.default_rng(0).random(2000)).astype(np.float32)[:, None]
    found = core_distances(torch.from_numpy(line), torch.arange(2000), 4)
    sample = Sample(ArrayKeys(line), np.zeros(2000, np.int32))
    np.testing.assert_allclose(found, true_core_distances(sample, 0, 4), rtol=1e-12)


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_small_memories_are_measured_completely(quantile: float) -> None:
    """With fewer entries than would be drawn, the quantile is exact, and each family weighs as its entries."""
    sample = draw_families({1: 60, 2: 200, 4: 3, 7: 90})
    settings = ClusterSettings(eps_quantile=quantile)
    eps, report = derive_eps(sample.keys, group_by_value(sample.values), settings, device=CPU)
    every = np.concatenate([true_core_distances(sample, value, 4) for value in (1, 2, 7)])
    assert report["sampled"] == 350
    assert (every <= eps).mean() == pytest.approx(quantile, abs=0.01)
    assert report["core_distances"]["0.5"] == pytest.approx(np.quantile(every, 0.5, method="inverted_cdf"), rel=0.02)


def test_a_sample_of_a_large_memory_gives_nearly_the_same_eps(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = draw_families({value: 40 + 30 * value for value in range(40)}, seed=3)
    families = group_by_value(sample.values)
    whole, _ = derive_eps(sample.keys, families, ClusterSettings(), device=CPU)
    monkeypatch.setattr(eps_estimation, "_DRAWS", 60)
    monkeypatch.setattr(eps_estimation, "_ENTRIES_A_DRAW", 20)
    eps, report = derive_eps(sample.keys, families, ClusterSettings(), device=CPU)
    assert report["sampled"] == 1200
    assert eps == pytest.approx(whole, rel=0.05)
    again, _ = derive_eps(sample.keys, families, ClusterSettings(), device=CPU)
    other, _ = derive_eps(sample.keys, families, ClusterSettings(seed=1), device=CPU)
    assert again == eps != other


def test_an_entry_of_a_small_family_weighs_as_many_entries_as_it_represents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half the entries lie close together, in families smaller than a draw, and half far apart, in a large one."""
    monkeypatch.setattr(eps_estimation, "_DRAWS", 60)
    random = np.random.default_rng(0)
    keys = random.standard_normal((4800, 12)) * np.repeat([0.01, 1.0], 2400)[:, None]
    values = np.concatenate([np.repeat(np.arange(300), 8), np.full(2400, 300)]).astype(np.int32)
    for quantile, close in ((0.45, True), (0.55, False)):
        settings = ClusterSettings(eps_quantile=quantile)
        families = group_by_value(values)
        eps, report = derive_eps(ArrayKeys(keys.astype(np.float32)), families, settings, device=CPU)
        assert report["sampled"] == pytest.approx(30 * 8 + 30 * 32, abs=30)
        assert (eps < 0.1) is close


@pytest.mark.parametrize("factor", [0.01, 2.0, 10.0])
def test_scaled_keys_give_a_scaled_eps_and_the_same_clusters(factor: float) -> None:
    sizes = {1: 60, 2: 200, 7: 90}
    plain, scaled = (cluster_keys(*draw_families(sizes, scale=scale)) for scale in (1.0, factor))
    assert plain.eps is not None
    assert scaled.eps == pytest.approx(factor * plain.eps, rel=1e-5)
    if factor == 2.0:  # no rounding at all
        assert scaled.eps == factor * plain.eps
        assert scaled.labels.tolist() == plain.labels.tolist()


def test_only_clustered_entries_are_measured() -> None:
    """Excluded and tiny families do not count, and neither do keys that are not finite."""
    sample = draw_families({1: 60, 2: 200})
    expected = derive_eps(sample.keys, group_by_value(sample.values), ClusterSettings(), device=CPU)
    noisy = 1000 * np.random.default_rng(0).standard_normal((44, 12)).astype(np.float32)
    noisy[40:] = np.nan
    keys = ArrayKeys(np.concatenate([sample.keys.gather(np.arange(260)), noisy]))
    values = np.concatenate([sample.values, np.repeat(np.array([5, 6, 2], np.int32), [36, 4, 4])])
    eps, report = derive_eps(keys, group_by_value(values, [5]), ClusterSettings(), device=CPU)
    assert report["sampled"] == expected[1]["sampled"]
    assert eps == pytest.approx(expected[0], rel=0.02)


def test_eps_is_zero_if_no_family_is_large_enough() -> None:
    sample = draw_families({1: 4, 2: 3})
    assert derive_eps(sample.keys, group_by_value(sample.values), ClusterSettings(), device=CPU) == (
        0.0,
        {"sampled": 0},
    )
