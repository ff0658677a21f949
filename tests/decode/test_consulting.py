"""A memory asked in one native go against the same parts asked one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from ibidem.combine import AdaptiveCombiner, FixedCombiner, MetaK
from ibidem.combine.native import speed_up
from ibidem.compact import NetworkCompactor, place_compactor
from ibidem.decode.consulting import SwiftScorer, make_scorer
from ibidem.decode.scoring import MemoryScorer, Votes
from ibidem.native import native
from ibidem.retrieve import ArrayKeys, CompactedIndex, NativeIndex, build_index

pytestmark = pytest.mark.skipif(native() is None, reason="needs the native library")

ENTRIES = 3000


@pytest.fixture(scope="module")
def parts() -> tuple[CompactedIndex, torch.Tensor, AdaptiveCombiner]:
    torch.manual_seed(0)
    network = NetworkCompactor(48, 64, 16, "sigmoid").requires_grad_(False)
    network.outer.weight.mul_(20)
    keys = network(torch.randn(ENTRIES, 48)).half().numpy()
    index = build_index(ArrayKeys(keys), "native", seed=0)
    assert isinstance(index, NativeIndex)
    meta = MetaK(4, scale=3.0).requires_grad_(False)
    values = torch.randint(0, 40, (ENTRIES,))
    return CompactedIndex(index, place_compactor(network, "cpu")), values, AdaptiveCombiner(meta, 2.0)


def assert_same(one: Votes, other: Votes) -> None:
    for name in ("distances", "entries", "values", "sources"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert torch.equal(one.weights.base, other.weights.base)
    assert torch.equal(one.weights.neighbours, other.weights.neighbours)


@pytest.mark.parametrize("rows", [1, 5, 70])
def test_asked_as_one_they_say_the_same(parts, rows: int) -> None:
    index, values, combiner = parts
    states = torch.randn(rows, 48)
    states[0] = torch.nan  # has no neighbours
    scorer = make_scorer(index, values, speed_up(combiner))
    assert isinstance(scorer, SwiftScorer)
    expected = MemoryScorer(index, values, speed_up(combiner)).consult(states)
    assert (expected.entries[0] == -1).all()
    assert_same(scorer.consult(states), expected)
    assert_same(scorer.consult(states.double()), expected)


def test_hidden_entries_stay_hidden(parts) -> None:
    index, values, combiner = parts
    states = torch.randn(5, 48)
    found = make_scorer(index, values, speed_up(combiner)).consult(states).entries
    inner = index.index.without(np.unique(found.numpy()))
    scorer = make_scorer(replace(index, index=inner), values, speed_up(combiner))
    assert isinstance(scorer, SwiftScorer)
    assert not torch.isin(scorer.consult(states).entries, found).any()


def test_exchanged_parts_are_asked(parts) -> None:
    index, values, combiner = parts
    states = torch.randn(5, 48)
    scorer = make_scorer(index, values, speed_up(combiner))
    scorer.combiner = FixedCombiner(2, 0.5, 1.0)
    assert_same(scorer.consult(states), MemoryScorer(index, values, FixedCombiner(2, 0.5, 1.0)).consult(states))


def test_other_parts_are_asked_one_by_one(parts) -> None:
    index, values, combiner = parts
    swift = speed_up(combiner)
    for scorer in (
        make_scorer(index, values, FixedCombiner(4, 0.5, 1.0)),
        make_scorer(index.index, values, swift),
        make_scorer(index, values[:0], swift),
    ):
        assert type(scorer) is MemoryScorer


def test_what_does_not_fit_is_refused(parts) -> None:
    index, values, combiner = parts
    with pytest.raises(ValueError, match="47 numbers"):
        make_scorer(index, values, speed_up(combiner)).consult(torch.randn(5, 47))
    with pytest.raises(IndexError, match="10 whose values are known"):
        make_scorer(index, values[:10], speed_up(combiner)).consult(torch.randn(5, 48))
