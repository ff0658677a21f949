"""Scorers over small memories, and how several are combined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ibidem.combine import EntryTable, FixedCombiner, mix
from ibidem.decode import BaseScorer, EnsembleScorer, MemoryScorer, beam_search, combine_scorers
from ibidem.retrieve import ArrayKeys, ExactIndex

from .oracle import limited

if TYPE_CHECKING:
    from ibidem.model import BaseModel

LIMIT = 10


def test_an_empty_memory_is_the_base_model(tiny: BaseModel, short: list[Any]) -> None:
    nothing = ExactIndex(ArrayKeys(np.empty((0, tiny.dimension), np.float16)))
    scorer = MemoryScorer(nothing, EntryTable(torch.empty(0, dtype=torch.long)), FixedCombiner(4, 0.9, 1.0))
    sources = tiny.tokens.encode_sources(s.german for s in short)
    assert beam_search(tiny, sources, limited(LIMIT), scorer) == beam_search(
        tiny, sources, limited(LIMIT), BaseScorer()
    )


def test_k_may_be_larger_than_the_memory(tiny: BaseModel, short: list[Any]) -> None:
    """Three entries and k = 64 is three entries and k = 3."""
    pair = next(s for s in short if len(tiny.tokens.encode_targets([s.english])[0]) >= 3)
    states = tiny.states(tiny.tokens.encode_sources([pair.german]), tiny.tokens.encode_targets([pair.english]))
    index = ExactIndex(ArrayKeys(states.keys[:3].numpy()))
    base = tiny.project(states.keys).log_softmax(dim=1)
    retrieved = [
        MemoryScorer(index, EntryTable(states.values[:3]), FixedCombiner(k, 0.8, 5.0)).retrieve(states.keys)
        for k in (64, 3)
    ]
    many, three = (mix(base, found.weights, found.values) for found in retrieved)
    torch.testing.assert_close(many, three)
    sources = tiny.tokens.encode_sources(s.german for s in short)
    scorer = MemoryScorer(index, EntryTable(states.values[:3]), FixedCombiner(64, 0.8, 5.0))
    assert all(best[0].score > -1e3 for best in beam_search(tiny, sources, limited(LIMIT), scorer))


def test_scorers_are_combined_only_where_there_are_several(tiny: BaseModel, short: list[Any]) -> None:
    states = tiny.states(
        tiny.tokens.encode_sources(s.german for s in short), tiny.tokens.encode_targets(s.english for s in short)
    )
    index = ExactIndex(ArrayKeys(states.keys.numpy()))
    scorer = MemoryScorer(index, EntryTable(states.values), FixedCombiner(4, 0.5, 10.0))
    assert isinstance(combine_scorers([], []), BaseScorer)
    assert combine_scorers([scorer], [3.0]) is scorer
    both = combine_scorers([scorer, BaseScorer()], [3.0, 1.0])
    assert isinstance(both, EnsembleScorer)
    alone, together = scorer.retrieve(states.keys), both.retrieve(states.keys)
    assert torch.equal(together.entries, alone.entries)
    torch.testing.assert_close(together.weights.neighbours, alone.weights.neighbours)
