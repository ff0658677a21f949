"""Groups by token and by n-gram, against a dictionary."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.learn.prune import group_entries
from ibidem.learn.prune import parts as module
from ibidem.learn.prune.parts import EntryGroups, refine, split_by_number

from .samples import as_lists, bounds_of, zipf_entries


def groups_by_dictionary(values: list[int], offsets: list[int], rows: list[int], n: int) -> list[list[int]]:
    """Groups in the order of their n-grams read backwards; None stands before every sentence."""
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
def test_groups_of_a_pruned_memory_still_know_the_tokens_before(n: int) -> None:
    entries = zipf_entries(tokens=4000, families=40, held=0.3)
    groups = group_entries(entries.values, entries.offsets, entries.rows, n)
    expected = groups_by_dictionary(entries.values.tolist(), entries.offsets.tolist(), entries.rows.tolist(), n)
    assert as_lists(groups) == expected


def test_the_start_of_a_sentence_is_no_token() -> None:
    """Token 0 after the start and token 0 after token 0 are two bigrams."""
    groups = group_entries(np.array([0, 0, 0]), np.array([0, 2, 3]), np.arange(3), 2)
    assert as_lists(groups) == [[0, 2], [1]]


def test_numbers_split_parts_and_noise_stands_alone() -> None:
    parts = EntryGroups(np.array([4, 1, 5, 0, 2, 3]), bounds_of([4, 2]))
    split = refine(parts, np.array([1, 0, 0, -1, 1, -1]), split_by_number)
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
