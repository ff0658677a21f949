"""Groups by token and n-gram against a dictionary, consistent groups against a naive implementation."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.errors import UsageError
from ibidem.learn.prune import EntryGroups, PruneSettings, group_entries, prune_entries
from ibidem.learn.prune import groups as module
from ibidem.learn.prune.groups import MAX_NEIGHBOURS, group_consistent, refine, split_by_number

from .samples import as_lists, bounds_of, zipf_entries


def groups_by_dictionary(values: list[int], offsets: list[int], rows: list[int], n: int) -> list[list[int]]:
    """Group by n-grams read backwards, in their order; -1 stands before every sentence."""
    found: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for entry, row in enumerate(rows):
        start = max(offset for offset in offsets if offset <= row)
        ngram = tuple(values[row - back] if row - back >= start else -1 for back in range(n))
        found[ngram].append(entry)
    return [found[ngram] for ngram in sorted(found)]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_groups_equal_the_dictionary(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(0, 6), max_size=10))
    offsets = bounds_of(lengths)
    tokens = int(offsets[-1])
    widest = data.draw(st.sampled_from([2, 5, 2**31 - 1]))
    values = data.draw(st.lists(st.integers(0, widest), min_size=tokens, max_size=tokens))
    held = data.draw(st.lists(st.booleans(), min_size=tokens, max_size=tokens))
    n = data.draw(st.integers(1, 5))
    rows = np.flatnonzero(np.array(held, dtype=bool))
    groups = group_entries(np.array(values, dtype=np.int32), offsets, rows, n)
    assert as_lists(groups) == groups_by_dictionary(values, offsets.tolist(), rows.tolist(), n)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_groups_of_a_pruned_memory_use_the_tokens_before(n: int) -> None:
    entries = zipf_entries(tokens=4000, families=40, held=0.3)
    groups = group_entries(entries.values, entries.offsets, entries.rows, n)
    expected = groups_by_dictionary(entries.values.tolist(), entries.offsets.tolist(), entries.rows.tolist(), n)
    assert as_lists(groups) == expected


def test_the_start_of_a_sentence_is_no_token() -> None:
    """Token 0 after the start and token 0 after token 0 are two bigrams."""
    groups = group_entries(np.array([0, 0, 0]), np.array([0, 2, 3]), np.arange(3), 2)
    assert as_lists(groups) == [[0, 2], [1]]


def test_numbers_split_groups_and_each_noise_point_is_a_group() -> None:
    groups = EntryGroups(np.array([4, 1, 5, 0, 2, 3]), bounds_of([4, 2]))
    split = refine(groups, np.array([1, 0, 0, -1, 1, -1]), split_by_number)
    assert as_lists(split) == [[5], [1], [4, 0], [3], [2]]


def test_blocks_leave_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = module.cut_blocks
    entries = zipf_entries(tokens=500, families=20)
    groups = group_entries(entries.values, entries.offsets, entries.rows)
    numbers = entries.rows % 3
    whole = refine(groups, numbers, split_by_number)
    monkeypatch.setattr(module, "cut_blocks", lambda bounds: cut(bounds, size=60))
    assert len(list(groups.blocks())) > 5
    assert as_lists(refine(groups, numbers, split_by_number)) == as_lists(whole)


def on_a_line(size: int, tokens: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Make tokens of entries on a line, in stretches of one token each, and the nearest others of each entry."""
    generator = np.random.default_rng(seed)
    places = np.sort(generator.uniform(0, 100, size))
    values = generator.integers(tokens, size=12)[(places // 9).astype(np.int64)]
    away = np.abs(places[:, None] - places[None, :])
    np.fill_diagonal(away, np.inf)
    near = np.argsort(away, axis=1, kind="stable")[:, : MAX_NEIGHBOURS + 2].astype(np.int32)
    near[np.take_along_axis(away, near.astype(np.int64), 1) > 20] = -1
    return values, near


def naive_centres(values: np.ndarray, near: np.ndarray, consistent_neighbours: int, ranks: np.ndarray) -> list[int]:
    """Find the centre of each entry, one entry at a time."""
    size = len(values)

    def same(entry: int, other: int) -> bool:
        return other >= 0 and values[entry] == values[other]

    consistent = [all(same(entry, other) for other in near[entry, :consistent_neighbours]) for entry in range(size)]
    links = [
        [
            other
            for other in near[entry, :MAX_NEIGHBOURS].tolist()
            if same(entry, other) and consistent[entry] and consistent[other]
        ]
        for entry in range(size)
    ]
    centres = [-1] * size
    while -1 in centres:
        free = [entry for entry in range(size) if centres[entry] < 0]
        new = [e for e in free if all(ranks[e] < ranks[o] for o in links[e] if centres[o] < 0)]
        for entry in free:
            centres[entry] = entry if entry in new else next((o for o in links[entry] if o in new), -1)
    return centres


@given(st.integers(MAX_NEIGHBOURS + 3, 120), st.integers(1, 5), st.integers(1, 4), st.integers(0, 99))
def test_consistent_groups_equal_a_naive_implementation(
    size: int, tokens: int, consistent_neighbours: int, seed: int
) -> None:
    values, near = on_a_line(size, tokens, seed)
    groups = group_consistent(values, near, consistent_neighbours, seed)
    found = {frozenset(group) for group in as_lists(groups)}
    incoming = np.zeros(size, np.int64)
    same = (near[:, :MAX_NEIGHBOURS] >= 0) & (values[near[:, :MAX_NEIGHBOURS]] == values[:, None])
    consistent = same[:, :consistent_neighbours].sum(1) == consistent_neighbours
    for entry, column in zip(*np.nonzero(same), strict=True):
        other = near[entry, column]
        incoming[other] += consistent[entry] and consistent[other]
    order = np.lexsort((np.random.default_rng(seed).random(size), -incoming))
    ranks = np.empty(size, np.int64)
    ranks[order] = np.arange(size)
    centres = np.array(naive_centres(values, near, consistent_neighbours, ranks))
    assert found == {frozenset(np.flatnonzero(centres == centre).tolist()) for centre in set(centres.tolist())}
    for group in as_lists(groups):
        assert len(set(values[group].tolist())) == 1
        assert len(group) == 1 or consistent[group].all()


def test_an_entry_at_a_border_is_a_group() -> None:
    places = np.arange(40.0)
    values = (places >= 20).astype(np.int64)
    near = np.argsort(np.abs(places[:, None] - places[None, :]) + np.eye(40) * 1e9, axis=1, kind="stable")
    groups = group_consistent(values, near[:, :MAX_NEIGHBOURS].astype(np.int32), 3, 0)
    alone = {group[0] for group in as_lists(groups) if len(group) == 1}
    assert {19, 20} <= alone
    assert len(groups) < 20


def test_groups_grow_until_the_rate_can_be_removed() -> None:
    entries = zipf_entries(tokens=4000, families=20)
    generator = np.random.default_rng(0)
    near = generator.integers(len(entries), size=(len(entries), MAX_NEIGHBOURS)).astype(np.int32)
    values = entries.values[entries.rows]
    same = np.argsort(values[near] != values[:, None], axis=1, kind="stable")  # those of the same token first
    entries = replace(entries, neighbours=np.take_along_axis(near, same, 1))
    found = [prune_entries(entries, PruneSettings(groups="consistent", rate=rate)) for rate in (0.1, 0.5, 0.9)]
    assert [pruned.rate for pruned in found] == pytest.approx([0.1, 0.5, 0.9], abs=0.005)
    assert found[0].consistent_neighbours == 3
    assert found[0].consistent_neighbours >= found[1].consistent_neighbours >= found[2].consistent_neighbours == 0
    assert found[2].grouped_tokens >= 1


def test_consistent_groups_without_neighbours_are_refused() -> None:
    with pytest.raises(UsageError, match="call prune_memory"):
        prune_entries(zipf_entries(tokens=100), PruneSettings(groups="consistent"))
