"""Clusters of costs: the greedy clustering against its definition, DBSCAN and BIRCH against scikit-learn."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import DBSCAN, Birch

from ibidem.errors import UsageError
from ibidem.learn.prune import EntryGroups, PruneSettings, cluster_costs, group_entries, label_dbscan, pruning
from ibidem.learn.prune import cost_clusters as module
from ibidem.learn.prune.cost_clusters import (
    SCALES,
    SPLITTERS,
    cluster_greedily,
    cluster_with_birch,
    cluster_with_dbscan,
    find_windows,
)
from ibidem.learn.prune.pruning import METHODS

from .samples import as_sets, bounds_of, zipf_entries

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Quarters are exact in binary, so that differences can equal epsilon exactly, and duplicates are many.
QUARTERS = st.integers(0, 40).map(lambda quarters: quarters / 4)
AWKWARD = st.sampled_from([0.0, -0.0, 1e-45, 1e-38, 1e-30, 1e-17, 1.5, 1.5000001, 3.0, 3.0000002, -1.5, -1e-20, 1e30])
COSTS = st.lists(QUARTERS, max_size=40) | st.lists(AWKWARD, max_size=12) | st.lists(st.floats(0, 30, width=32))


def cluster_by_definition(costs: NDArray[np.float32], epsilon: float) -> set[frozenset[int]]:
    """Run the authors' loop over the whole matrix of near pairs; of equals, take the entry of lowest cost."""
    wide = costs.astype(np.float64)
    near = np.abs(wide[:, None] - wide[None, :]) <= epsilon
    free = np.ones(len(costs), dtype=bool)
    clusters = set()
    while free.any():
        counts = (near & free).sum(axis=1)
        centre = min(np.flatnonzero(free).tolist(), key=lambda i: (-counts[i], wide[i]))
        members = near[centre] & free
        clusters.add(frozenset(np.flatnonzero(members).tolist()))
        free &= ~members
    return clusters


def several_groups(costs: list[float], cuts: list[int]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    inner = sorted({cut for cut in cuts if 0 < cut < len(costs)})
    bounds = [0, *inner, len(costs)] if costs else [0]
    return np.array(costs, dtype=np.float32), np.array(bounds, dtype=np.int64)


def group_slices(bounds: NDArray[np.int64]) -> list[slice]:
    return [slice(start, end) for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]


@settings(max_examples=200, deadline=None)
@given(COSTS, st.lists(st.integers(0, 40), max_size=3), st.sampled_from([0.25, 1.0, 1.5, 1.3]))
def test_windows_hold_what_is_near(costs: list[float], cuts: list[int], epsilon: float) -> None:
    array, bounds = several_groups(costs, cuts)
    windows = find_windows(array, bounds, epsilon)
    groups = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    assert windows.order.tolist() == np.lexsort((array, groups)).tolist()
    wide = array.astype(np.float64)[windows.order]
    near = (np.abs(wide[:, None] - wide[None, :]) <= epsilon) & (groups[:, None] == groups[None, :])
    for place in range(len(array)):
        assert np.flatnonzero(near[place]).tolist() == list(range(windows.left[place], windows.right[place]))


@settings(max_examples=200, deadline=None)
@given(
    COSTS, st.lists(st.integers(0, 40), max_size=3), st.sampled_from([0.25, 1.0, 1.5, 1.3]), st.sampled_from([0, 1, 9])
)
def test_greedy_clusters_equal_the_definition(costs: list[float], cuts: list[int], epsilon: float, rounds: int) -> None:
    """Processed in rounds, or one by one with the heap, which does all the work after 0 rounds."""
    array, bounds = several_groups(costs, cuts)
    expected = {
        frozenset(entry + members.start for entry in cluster)
        for members in group_slices(bounds)
        for cluster in cluster_by_definition(array[members], epsilon)
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_ROUNDS", rounds)
        assert as_sets(cluster_greedily(array, bounds, epsilon)) == expected


def test_greedy_clusters_of_many_equal_counts() -> None:
    """Evenly spread costs need a round for every cluster, more than there are rounds."""
    costs = (np.random.default_rng(0).permutation(1200) / 4).astype(np.float32)
    clusters = cluster_greedily(costs, bounds_of([1200]), 0.5)
    assert len(clusters) > module._ROUNDS
    assert as_sets(clusters) == cluster_by_definition(costs, 0.5)


def test_of_equal_counts_the_lowest_cost_is_the_centre() -> None:
    """Costs 0, 1, 2, 3: both inner entries have three in their window; the lower one takes 0, 1, 2."""
    clusters = cluster_greedily(np.array([3, 2, 1, 0], dtype=np.float32), bounds_of([4]), 1.0)
    assert as_sets(clusters) == {frozenset({1, 2, 3}), frozenset({0})}


@settings(max_examples=200, deadline=None)
@given(
    st.lists(QUARTERS, min_size=1, max_size=60) | st.lists(st.floats(0, 30, width=16), min_size=1, max_size=60),
    st.lists(st.integers(0, 60), max_size=3),
    st.sampled_from([0.25, 0.5, 1.0, 1.5]),
    st.integers(1, 5),
)
def test_dbscan_labels_equal_those_of_scikit_learn(
    costs: list[float], cuts: list[int], epsilon: float, min_samples: int
) -> None:
    array, bounds = several_groups(costs, cuts)
    labels = label_dbscan(array, bounds, epsilon, min_samples)
    for members in group_slices(bounds):
        reference = DBSCAN(eps=epsilon, min_samples=min_samples, algorithm="kd_tree")
        assert labels[members].tolist() == reference.fit_predict(array[members, None].astype(np.float64)).tolist()


@pytest.mark.parametrize("seed", range(6))
def test_dbscan_of_larger_groups_equals_that_of_scikit_learn(seed: int) -> None:
    """Sparse enough for noise, and for border points between two clusters."""
    generator = np.random.default_rng(seed)
    sizes = [700, 1, 2, 400, 3]
    costs, bounds = (generator.exponential(4, sum(sizes)) ** 1.5).astype(np.float32), bounds_of(sizes)
    for epsilon, min_samples in ((0.02, 2), (0.05, 4), (0.1, 5), (1.5, 4)):
        labels = label_dbscan(costs, bounds, epsilon, min_samples)
        for members in group_slices(bounds):
            reference = DBSCAN(eps=epsilon, min_samples=min_samples).fit_predict(costs[members, None].astype(float))
            assert labels[members].tolist() == reference.tolist()
    clusters = cluster_with_dbscan(costs, bounds, 0.05, 4)
    labels = label_dbscan(costs, bounds, 0.05, 4)
    assert (labels == -1).any()
    for cluster in as_sets(clusters):
        assert len({labels[entry] for entry in cluster}) == 1
        assert len(cluster) == 1 or labels[min(cluster)] >= 0


@pytest.mark.parametrize("seed", range(3))
def test_birch_equals_that_of_scikit_learn(seed: int) -> None:
    """Also where no tree is built, because all costs are within the threshold."""
    generator = np.random.default_rng(seed)
    sizes = [300, 1, 2, 40, 5, 17]
    costs, bounds = generator.exponential(2, sum(sizes)).astype(np.float32), bounds_of(sizes)
    for epsilon in (0.2, 1.5):
        expected = set()
        for members in group_slices(bounds):
            labels = Birch(threshold=epsilon, n_clusters=None).fit_predict(costs[members, None].astype(np.float64))
            expected |= {
                frozenset((np.flatnonzero(labels == label) + members.start).tolist()) for label in np.unique(labels)
            }
        assert as_sets(cluster_with_birch(costs, bounds, epsilon)) == expected


def test_birch_without_scikit_learn_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def without_sklearn(name: str, *rest: Any) -> Any:
        if name.startswith("sklearn"):
            raise ImportError(name)
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_sklearn)
    with pytest.raises(UsageError, match="pip install scikit-learn`, or use greedy"):
        cluster_with_birch(np.zeros(1, dtype=np.float32), bounds_of([1]), 1.5)


@pytest.mark.parametrize("method", METHODS)
def test_clusters_lie_inside_groups_and_are_narrow(method: str) -> None:
    entries = zipf_entries(tokens=3000, families=50)
    groups = group_entries(entries.values, entries.offsets, entries.rows)
    clusters = cluster_costs(entries.costs, groups, PruneSettings(method=method, scale="log"), 0.5)
    assert len(clusters) > len(groups)
    for cluster in as_sets(clusters):
        assert len({int(entries.values[entry]) for entry in cluster}) == 1
        costs = entries.costs[sorted(cluster)]
        assert method != "greedy" or np.ptp(costs) <= 1.0


def test_on_the_perplexity_scale_easy_tokens_are_similar_and_hard_ones_are_not() -> None:
    costs = np.array([0.01, 0.2, 0.6, 4.0, 4.1, 4.5, 200.0, 300.0], dtype=np.float32)
    everything = EntryGroups(np.arange(8), np.array([0, 8]))
    apart = cluster_costs(costs, everything, PruneSettings(scale="perplexity"), 1.5)
    assert as_sets(apart) == {frozenset(s) for s in ({0, 1, 2}, {3}, {4}, {5}, {6, 7})}
    together = cluster_costs(costs, everything, PruneSettings(scale="log"), 1.5)
    assert frozenset({3, 4, 5}) in as_sets(together)


def test_every_scale_has_its_function() -> None:
    assert tuple(SCALES) == pruning.SCALES


def test_every_method_has_its_function() -> None:
    assert tuple(SPLITTERS) == METHODS
