"""Groups of entries whose surroundings agree: against a naive reading, and in a memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.errors import UsageError
from ibidem.learn.prune import PruneSettings, prune_entries
from ibidem.learn.prune.agreement import REACH, group_agreeing

from .samples import as_lists, zipf_entries


def on_a_line(size: int, tokens: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of entries on a line, in stretches of one token each, and the nearest others of each entry."""
    generator = np.random.default_rng(seed)
    places = np.sort(generator.uniform(0, 100, size))
    values = generator.integers(tokens, size=12)[(places // 9).astype(np.int64)]
    away = np.abs(places[:, None] - places[None, :])
    np.fill_diagonal(away, np.inf)
    near = np.argsort(away, axis=1, kind="stable")[:, : REACH + 2].astype(np.int32)
    near[np.take_along_axis(away, near.astype(np.int64), 1) > 20] = -1
    return values, near


def naive_groups(values: np.ndarray, near: np.ndarray, agreeing: int, ranks: np.ndarray) -> list[int]:
    """The centre of each entry, one entry at a time."""
    size = len(values)

    def same(entry: int, other: int) -> bool:
        return other >= 0 and values[entry] == values[other]

    agrees = [all(same(entry, other) for other in near[entry, :agreeing]) for entry in range(size)]
    looks = [
        [other for other in near[entry, :REACH].tolist() if same(entry, other) and agrees[entry] and agrees[other]]
        for entry in range(size)
    ]
    centres = [-1] * size
    while -1 in centres:
        free = [entry for entry in range(size) if centres[entry] < 0]
        new = [e for e in free if all(ranks[e] < ranks[o] for o in looks[e] if centres[o] < 0)]
        for entry in free:
            centres[entry] = entry if entry in new else next((o for o in looks[entry] if o in new), -1)
    return centres


@given(st.integers(REACH + 3, 120), st.integers(1, 5), st.integers(1, 4), st.integers(0, 99))
def test_groups_are_those_of_a_naive_reading(size: int, tokens: int, agreeing: int, seed: int) -> None:
    values, near = on_a_line(size, tokens, seed)
    groups = group_agreeing(values, near, agreeing, seed)
    found = {frozenset(group) for group in as_lists(groups)}
    popular = np.zeros(size, np.int64)
    same = (near[:, :REACH] >= 0) & (values[near[:, :REACH]] == values[:, None])
    agrees = same[:, :agreeing].sum(1) == agreeing
    for entry, column in zip(*np.nonzero(same), strict=True):
        other = near[entry, column]
        popular[other] += agrees[entry] and agrees[other]
    order = np.lexsort((np.random.default_rng(seed).random(size), -popular))
    ranks = np.empty(size, np.int64)
    ranks[order] = np.arange(size)
    centres = np.array(naive_groups(values, near, agreeing, ranks))
    assert found == {frozenset(np.flatnonzero(centres == centre).tolist()) for centre in set(centres.tolist())}
    for group in as_lists(groups):
        assert len(set(values[group].tolist())) == 1
        assert len(group) == 1 or agrees[group].all()


def test_an_entry_at_a_border_is_never_given_up() -> None:
    places = np.arange(40.0)
    values = (places >= 20).astype(np.int64)
    near = np.argsort(np.abs(places[:, None] - places[None, :]) + np.eye(40) * 1e9, axis=1, kind="stable")
    groups = group_agreeing(values, near[:, :REACH].astype(np.int32), 3, 0)
    alone = {group[0] for group in as_lists(groups) if len(group) == 1}
    assert {19, 20} <= alone
    assert len(groups) < 20


def test_groups_grow_until_the_rate_can_be_reached() -> None:
    entries = zipf_entries(tokens=4000, families=20)
    generator = np.random.default_rng(0)
    near = generator.integers(len(entries), size=(len(entries), REACH)).astype(np.int32)
    values = entries.values[entries.rows]
    same = np.argsort(values[near] != values[:, None], axis=1, kind="stable")  # those of the same token first
    entries = replace(entries, near=np.take_along_axis(near, same, 1))
    found = [prune_entries(entries, PruneSettings(groups="agreeing", rate=rate)) for rate in (0.1, 0.5, 0.9)]
    assert [pruned.rate for pruned in found] == pytest.approx([0.1, 0.5, 0.9], abs=0.005)
    assert found[0].agreeing == 3
    assert found[0].agreeing >= found[1].agreeing >= found[2].agreeing == 0
    assert found[2].grouped_tokens >= 1


def test_bare_entries_have_no_surroundings() -> None:
    with pytest.raises(UsageError, match="prune a memory"):
        prune_entries(zipf_entries(tokens=100), PruneSettings(groups="agreeing"))
