"""Triplets are valid and uniformly drawn for clusters of every shape."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.errors import UsageError
from ibidem.learn.compact.triplets import Clusters, TripletIds, TripletSampler, join_families, sample_entries


@st.composite
def labelled(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Values and labels of at least two families, the first two with a cluster of two or more; in any order."""
    values, labels, number = [], [], 0
    for family in range(draw(st.integers(2, 6))):
        sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
        if family < 2:
            sizes[0] = max(2, sizes[0])
        for size in sizes:
            values += [3 * family + 1] * size
            # Labels need be neither dense nor in the order of the families.
            labels += [1000 - 7 * number] * size
            number += 1
        outside = draw(st.lists(st.sampled_from([-1, -2, -3]), max_size=3))
        values += [3 * family + 1] * len(outside)
        labels += outside
    order = draw(st.permutations(range(len(values))))
    return np.array(values, np.int32)[list(order)], np.array(labels, np.int32)[list(order)]


def make(clusters: Clusters, pivots: str, negatives: str, *, batch: int = 4, held: bool = False) -> TripletSampler:
    return TripletSampler(clusters, batch=batch, pivots=pivots, negatives=negatives, seed=(5,), held=held)


@settings(deadline=None, max_examples=150)
@given(
    labelled(),
    st.sampled_from(["static", "dynamic"]),
    st.sampled_from(["family", "cluster"]),
    st.sampled_from([0.0, 0.4]),
    st.integers(0, 2**40),
)
def test_every_triplet_is_valid(
    sample: tuple[np.ndarray, np.ndarray], pivots: str, negatives: str, held_out: float, number: int
) -> None:
    values, labels = sample
    clusters = Clusters.of(values, labels, held_out=held_out, seed=3)
    numbers, sizes = clusters.training_labels(), Counter(labels[labels >= 0].tolist())
    held = {int(e) for e in np.flatnonzero(clusters.clustered() & (numbers < 0))}
    assert clusters.clustered().tolist() == (labels >= 0).tolist()
    assert all(
        sizes[int(label)] - Counter(labels[list(held)].tolist())[label] >= min(2, sizes[label]) for label in sizes
    )
    kinds = [False] if len({int(values[e]) for e in held}) < 2 else [False, True]
    for judging in kinds:
        draw = make(clusters, pivots, negatives, held=judging).draw(number)
        assert len(set(draw.clusters.tolist())) == len(draw.clusters)
        for cluster, pivot, positive, negative, word, other in zip(*draw, strict=True):
            members = {int(labels[e]) for e in np.flatnonzero(numbers == cluster)}
            assert len(members) == 1
            label = members.pop()
            assert labels[positive] == label
            assert labels[negative] >= 0
            assert labels[negative] != label
            assert (values[positive], values[negative]) == (word, other)
            assert negatives == "cluster" or word != other
            assert sizes[label] >= 2
            assert {positive in held, negative in held} == {judging}
            if pivots == "static":
                assert pivot == cluster
            else:
                assert labels[pivot] == label
                assert pivot != positive
                assert pivot not in held


def small() -> Clusters:
    """Three families: one of clusters {0, 1, 2} and {3}, one of {4, 5}, one of {6}; entry 7 is noise."""
    values = np.array([5, 5, 5, 5, 2, 2, 9, 5], np.int32)
    labels = np.array([0, 0, 0, 1, 2, 2, 3, -1], np.int32)
    return Clusters.of(values, labels)


@pytest.mark.parametrize(
    ("negatives", "of_first"),
    [
        ("family", {4: 1 / 4, 5: 1 / 4, 6: 1 / 2}),
        ("cluster", {3: 1 / 3, 4: 1 / 6, 5: 1 / 6, 6: 1 / 3}),
    ],
)
def test_clusters_are_drawn_uniformly_and_then_their_members(negatives: str, of_first: dict[int, float]) -> None:
    """Every eligible cluster, every member, and for the negatives every cluster that is allowed."""
    triplets = make(small(), "dynamic", negatives, batch=1)
    draws = [triplets.draw(number) for number in range(6000)]
    pivots = Counter(int(draw.pivots[0]) for draw in draws)
    expected = {0: 1 / 6, 1: 1 / 6, 2: 1 / 6, 4: 1 / 4, 5: 1 / 4}
    assert set(pivots) == set(expected)
    for entry, share in expected.items():
        assert pivots[entry] / 6000 == pytest.approx(share, abs=0.03)
    first = [draw for draw in draws if draw.tokens[0] == 5]
    found = Counter(int(draw.negatives[0]) for draw in first)
    assert set(found) == set(of_first)
    for entry, share in of_first.items():
        assert found[entry] / len(first) == pytest.approx(share, abs=0.04)
    pairs = {(int(draw.pivots[0]), int(draw.positives[0])) for draw in first}
    assert pairs == {(a, b) for a in range(3) for b in range(3) if a != b}


def test_a_batch_depends_on_its_number_and_the_seed_only() -> None:
    clusters = small()
    triplets = make(clusters, "static", "family", batch=2)
    later = [triplets.draw(number) for number in (7, 3)]
    assert same(later[0], make(clusters, "static", "family", batch=2).draw(7))
    assert not all(same(triplets.draw(number), triplets.draw(number + 1)) for number in range(10))
    other = TripletSampler(clusters, batch=2, pivots="static", negatives="family", seed=(6,))
    assert not all(same(triplets.draw(number), other.draw(number)) for number in range(10))


def same(one: TripletIds, other: TripletIds) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_batch_is_as_large_as_the_clusters_allow() -> None:
    assert make(small(), "static", "family", batch=1024).batch == 2
    assert sorted(make(small(), "static", "family", batch=1024).draw(0).tokens.tolist()) == [2, 5]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([1, 1, 1], [0, 0, 1]),
        ([1, 2, 3], [0, 1, 2]),
        ([1, 2], [-1, -1]),
        ([], []),
    ],
    ids=["one family", "no pair", "noise", "nothing"],
)
def test_clusters_that_give_no_triplets(values: list[int], labels: list[int]) -> None:
    clusters = Clusters.of(np.array(values, np.int32), np.array(labels, np.int32))
    with pytest.raises(UsageError, match=r"give no triplets.*larger corpus"):
        make(clusters, "static", "family")


def test_labels_of_other_values_are_rejected() -> None:
    with pytest.raises(UsageError, match="Cluster 4 holds entries of more than one token: cluster the memory again"):
        Clusters.of(np.array([1, 1, 2], np.int32), np.array([0, 4, 4], np.int32))
    with pytest.raises(UsageError, match="3 values and 2 cluster labels"):
        Clusters.of(np.array([1, 1, 2], np.int32), np.array([0, 4], np.int32))


def test_without_clusters_a_family_is_one_cluster_of_all_but_excluded_entries() -> None:
    values = np.array([7, 7, 7, 4, 4, 9], np.int32)
    labels = np.array([0, 1, -1, -2, -3, -3], np.int32)
    clusters = Clusters.of(values, join_families(values, labels))
    assert clusters.tokens.tolist() == [4, 7]
    assert clusters.training_labels().tolist() == [1, 1, 1, 0, -1, -1]
    assert Clusters.of(values, join_families(values, None)).training_labels().tolist() == [1, 1, 1, 0, 0, 2]


def test_a_share_is_random_and_seeded_and_covers_all_clusters() -> None:
    labels = np.repeat(np.arange(20, dtype=np.int32), 500)
    labels[::10] = -1
    third = sample_entries(labels, 0.3, seed=1)
    kept = third >= 0
    assert kept.sum() / (labels >= 0).sum() == pytest.approx(0.3, abs=0.02)
    assert (third[kept] == labels[kept]).all()
    assert set(third[~kept & (labels >= 0)].tolist()) == {-2}
    assert (third[labels == -1] == -1).all()
    # Not the first share of the corpus, as in the authors' code: every cluster gives about as much.
    assert min(Counter(third[kept].tolist()).values()) > 90
    assert np.array_equal(third, sample_entries(labels, 0.3, seed=1))
    assert not np.array_equal(third, sample_entries(labels, 0.3, seed=2))
    assert np.array_equal(labels, sample_entries(labels, 1.0, seed=1))


def test_about_the_given_share_is_held_out() -> None:
    labels = np.repeat(np.arange(400, dtype=np.int32), 5)
    clusters = Clusters.of(labels, labels, held_out=0.1, seed=0)
    assert clusters.held.sizes.sum() / len(labels) == pytest.approx(0.1, abs=0.02)
    assert clusters.training.sizes.min() >= 4
    other = Clusters.of(labels, labels, held_out=0.1, seed=1)
    assert not np.array_equal(clusters.training_labels(), other.training_labels())
