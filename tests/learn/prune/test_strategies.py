"""The entries that each strategy keeps."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ibidem.errors import UsageError
from ibidem.learn.prune import (
    PAPER_SETTINGS,
    PruneEntries,
    PruneSettings,
    cluster_costs,
    group_entries,
    prune_entries,
)
from ibidem.learn.prune import groups as groups_module
from ibidem.learn.prune.cost_clusters import EPSILONS
from ibidem.learn.prune.pruning import METHODS, STRATEGIES
from ibidem.learn.prune.strategies import STRATEGIES as FUNCTIONS

from .samples import as_lists, zipf_entries

# The strategy redundant needs neighbours: see test_redundancy.py.
WITHOUT_NEIGHBOURS = tuple(strategy for strategy in STRATEGIES if strategy != "redundant")


def with_clusters(entries: PruneEntries, seed: int = 0) -> PruneEntries:
    """Add clusters of keys, numbered inside the family, a tenth of them noise, and distances, some of them equal."""
    generator = np.random.default_rng(seed)
    clusters = generator.integers(0, 3, size=len(entries))
    clusters[generator.random(len(entries)) < 0.1] = -1
    distances = generator.integers(0, 50, size=len(entries)).astype(np.float32)
    return replace(entries, clusters=clusters, distances=distances)


def one_family(costs: list[float]) -> PruneEntries:
    size = len(costs)
    return PruneEntries(
        np.array(costs, dtype=np.float32), np.zeros(size, dtype=np.int32), np.array([0, size]), np.arange(size)
    )


@pytest.mark.parametrize("strategy", WITHOUT_NEIGHBOURS)
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.4, 0.7])
def test_the_requested_rate_is_achieved(strategy: str, rate: float) -> None:
    entries = with_clusters(zipf_entries(held=0.8))
    pruned = prune_entries(entries, PruneSettings(strategy=strategy, rate=rate))
    assert pruned.kept.shape == (len(entries),)
    assert pruned.kept.dtype == np.bool_
    assert pruned.rate == pytest.approx(1 - np.mean(pruned.kept), abs=1e-12)
    assert pruned.requested == rate
    assert abs(pruned.rate - rate) < 0.005
    families = np.unique(entries.values[entries.rows])
    assert pruned.groups == len(families) or (strategy == "cost-clusters" and pruned.groups > len(families))
    kept_families = np.unique(entries.values[entries.rows[pruned.kept]])
    assert len(kept_families) == len(families)


@pytest.mark.parametrize("method", METHODS)
def test_every_cost_cluster_keeps_its_share(method: str) -> None:
    entries = zipf_entries(tokens=5000, families=80)
    settings = replace(PAPER_SETTINGS, rate=0.3, method=method, epsilon=0.5)
    pruned = prune_entries(entries, settings)
    groups = group_entries(entries.values, entries.offsets, entries.rows)
    clusters = cluster_costs(entries.costs, groups, settings, 0.5)
    assert pruned.clusters == len(clusters)
    small = [cluster for cluster in as_lists(clusters) if len(cluster) < 100]
    assert all(pruned.kept[cluster].any() for cluster in small)
    large = [cluster for cluster in as_lists(clusters) if len(cluster) >= 100]
    assert large
    for cluster in large:
        assert pruned.kept[cluster].mean() == pytest.approx(0.7, abs=0.05)


def test_bigram_groups_are_finer() -> None:
    entries = zipf_entries(tokens=5000, families=80)
    token, bigram = (
        prune_entries(entries, PAPER_SETTINGS),
        prune_entries(entries, replace(PAPER_SETTINGS, groups="ngram")),
    )
    assert bigram.groups > 10 * token.groups
    assert bigram.rate == token.rate


def test_the_authors_rule_keeps_clusters_of_two() -> None:
    entries = zipf_entries(tokens=5000, families=80)
    settings = replace(PAPER_SETTINGS, rate=0.7, groups="ngram", rule="floor")
    pruned = prune_entries(entries, settings)
    groups = group_entries(entries.values, entries.offsets, entries.rows, 2)
    assert pruned.rate < 0.6
    for cluster in as_lists(cluster_costs(entries.costs, groups, settings, 1.5)):
        assert np.count_nonzero(pruned.kept[cluster]) == max(min(2, len(cluster)), len(cluster) * 3 // 10)


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.3, 0.6, 0.9])
def test_groups_are_as_long_and_epsilon_as_small_as_the_rate_allows(rate: float) -> None:
    entries = zipf_entries(tokens=5000, families=30)
    found = prune_entries(entries, PruneSettings(rate=rate))
    assert found.rate == pytest.approx(rate, abs=0.005)
    enough = len(entries) * (1 - 1.05 * rate)
    settings = PruneSettings(rate=rate, groups="ngram")
    for n in range(found.grouped_tokens + 1, 4):
        assert len(group_entries(entries.values, entries.offsets, entries.rows, n)) > enough
    groups = group_entries(entries.values, entries.offsets, entries.rows, found.grouped_tokens)
    sizes = [len(cluster_costs(entries.costs, groups, settings, epsilon)) for epsilon in EPSILONS]
    fitting = [epsilon for epsilon, clusters in zip(EPSILONS, sizes, strict=True) if clusters <= enough]
    assert found.epsilon == (fitting[0] if fitting else EPSILONS[-1])
    again = prune_entries(
        entries, PruneSettings(rate=rate, groups="ngram", group_n=found.grouped_tokens, epsilon=found.epsilon)
    )
    assert np.array_equal(again.kept, found.kept)


@pytest.mark.parametrize("strategy", WITHOUT_NEIGHBOURS)
def test_the_same_seed_gives_the_same_mask(strategy: str) -> None:
    entries = with_clusters(zipf_entries(tokens=3000))
    first, again, other = (
        prune_entries(entries, PruneSettings(strategy=strategy, seed=seed)).kept for seed in (5, 5, 6)
    )
    assert first.tolist() == again.tolist()
    assert (first.tolist() != other.tolist()) == (strategy in ("cost-clusters", "random"))


@pytest.mark.parametrize("strategy", ["cost-clusters", "random"])
def test_samples_are_uniform(strategy: str) -> None:
    """All choices of three entries of six are equally likely: chi-squared of 19 degrees, one in a thousand."""
    entries = one_family([1.0, 1.1, 1.2, 1.3, 1.4, 1.5])
    draws = [
        prune_entries(entries, replace(PAPER_SETTINGS, strategy=strategy, rate=0.5, seed=seed)).kept
        for seed in range(1000)
    ]
    triples = Counter(tuple(np.flatnonzero(kept).tolist()) for kept in draws)
    assert len(triples) == 20
    assert sum((count - 50) ** 2 / 50 for count in triples.values()) < 43.8


def test_cost_clusters_keep_the_rare_costs() -> None:
    """Cost clusters keep the one entry of another cost, which random pruning may remove."""
    entries = one_family([0.1] * 9 + [8.0])
    settings = replace(PAPER_SETTINGS, rate=0.5)
    assert all(prune_entries(entries, replace(settings, seed=seed)).kept[9] for seed in range(20))
    assert not all(
        prune_entries(entries, replace(settings, strategy="random", seed=seed)).kept[9] for seed in range(20)
    )


def test_low_probabilities_cost_most_and_high_ones_least() -> None:
    entries = one_family([3, 1, 4, 1, 5, 9, 2, 6])
    low = prune_entries(entries, PruneSettings(strategy="low-probability", rate=0.25))
    high = prune_entries(entries, PruneSettings(strategy="high-probability", rate=0.25))
    assert np.flatnonzero(~low.kept).tolist() == [5, 7]
    assert np.flatnonzero(~high.kept).tolist() == [1, 3]
    assert (low.clusters, low.groups) == (1, 1)


@pytest.mark.parametrize("strategy", ["low-probability", "high-probability"])
def test_of_equal_costs_the_earlier_entries_are_kept(strategy: str) -> None:
    kept = prune_entries(one_family([2.0] * 8), PruneSettings(strategy=strategy, rate=0.25)).kept
    assert np.flatnonzero(~kept).tolist() == [6, 7]


def test_low_and_high_drop_inside_every_family() -> None:
    entries = zipf_entries(tokens=4000, families=60)
    for strategy, sign in (("low-probability", 1), ("high-probability", -1)):
        kept = prune_entries(entries, PruneSettings(strategy=strategy, rate=0.3)).kept
        for family in as_lists(group_entries(entries.values, entries.offsets, entries.rows)):
            costs, held = sign * entries.costs[family], kept[family]
            assert held.any()
            assert held.all() or costs[held].max() <= costs[~held].min()


def test_spatial_pruning_drops_the_far_entries_of_each_cluster() -> None:
    size = 9
    entries = PruneEntries(
        np.zeros(size, dtype=np.float32),
        np.array([7, 7, 7, 7, 7, 7, 7, 8, 8]),
        np.array([0, size]),
        np.arange(size),
        distances=np.array([1, 9, 2, 5, 99, 3, 5, 8, 4], dtype=np.float32),
        clusters=np.array([0, 0, 0, 1, -1, 1, 1, 0, 0]),
    )
    pruned = prune_entries(entries, PruneSettings(strategy="spatial", rate=0.3))
    assert np.flatnonzero(~pruned.kept).tolist() == [1, 6, 7]
    assert (pruned.clusters, pruned.groups) == (4, 2)


def test_missing_clusters_or_neighbours_are_refused() -> None:
    with pytest.raises(UsageError, match=r"cluster the keys first, or use the strategy cost-clusters"):
        prune_entries(one_family([1.0]), PruneSettings(strategy="spatial"))
    with pytest.raises(UsageError, match="neighbours of every entry"):
        prune_entries(one_family([1.0]), PruneSettings(strategy="redundant"))


@pytest.mark.parametrize("strategy", WITHOUT_NEIGHBOURS)
def test_the_size_of_blocks_does_not_matter(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In many blocks each group keeps as many entries as in one; only random choices may differ."""
    entries, settings = with_clusters(zipf_entries(tokens=3000)), PruneSettings(strategy=strategy, rate=0.3)
    whole, cut = prune_entries(entries, settings), groups_module.cut_blocks
    monkeypatch.setattr(groups_module, "cut_blocks", lambda bounds: cut(bounds, size=100))
    pruned = prune_entries(entries, settings)
    assert (pruned.clusters, pruned.groups, pruned.rate) == (whole.clusters, whole.groups, whole.rate)
    families = entries.values[entries.rows]
    assert np.bincount(families[pruned.kept]).tolist() == np.bincount(families[whole.kept]).tolist()
    if strategy not in ("cost-clusters", "random"):
        assert pruned.kept.tolist() == whole.kept.tolist()


@pytest.mark.parametrize("strategy", WITHOUT_NEIGHBOURS)
def test_an_empty_memory_stays_empty(strategy: str) -> None:
    entries = with_clusters(one_family([]))
    groups = None if strategy == "spatial" else "ngram"
    pruned = prune_entries(entries, PruneSettings(strategy=strategy, groups=groups))
    assert (pruned.kept.tolist(), pruned.clusters, pruned.groups, pruned.rate) == ([], 0, 0, 0.0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"costs": np.zeros(2, dtype=np.float32)}, "costs must have one number for each of 3 entries"),
        ({"costs": np.array([0, np.nan, 0], dtype=np.float32)}, "costs must be finite, but entry 1 has nan"),
        ({"distances": np.array([0, 0, np.inf])}, "distances must be finite, but entry 2 has inf"),
        ({"clusters": np.zeros(4, dtype=np.int64)}, "clusters must have one number for each of 3 entries"),
        ({"rows": np.array([0, 2, 2])}, "rows must increase"),
        ({"rows": np.array([0, 2, 4])}, "rows must be tokens, from 0 to 3"),
        ({"rows": np.array([-1, 2, 3])}, "rows must be tokens, from 0 to 3"),
        ({"offsets": np.array([0, 3])}, "number of tokens, which is 4"),
    ],
)
def test_arrays_that_do_not_match_are_refused(wrong: dict[str, Any], message: str) -> None:
    right: dict[str, Any] = {
        "costs": np.zeros(3, dtype=np.float32),
        "values": np.zeros(4, dtype=np.int32),
        "offsets": np.array([0, 4]),
        "rows": np.array([0, 1, 3]),
    }
    PruneEntries(**right)
    with pytest.raises(UsageError, match=re.escape(message)):
        PruneEntries(**{**right, **wrong})


def test_every_strategy_has_its_function() -> None:
    assert tuple(FUNCTIONS) == STRATEGIES
