"""The native retrieval step with every compactor, dimension and combiner, against the parts in torch."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from ibidem.combine import Weights, mix, to_native
from ibidem.compact import place_compactor
from ibidem.decode.scorer import MemoryScorer, NativeScorer, Retrieved, make_scorer
from ibidem.native import NativeBeams, RetrievalPolicy
from ibidem.retrieve import ArrayKeys, CompactedIndex, ExactIndex, NativeIndex, build_index

from .samples import COMPACTORS, ENTRIES, INPUTS, VOCABULARY, make_combiners, make_compactor, make_context, make_table

if TYPE_CHECKING:
    from ibidem.retrieve import Index

pytestmark = pytest.mark.usefixtures("native_build")

EVERYWHERE = 1_000_000
IN_FULL = RetrievalPolicy(math.inf, math.inf, math.inf)


def search_everything(index: Index) -> Index:
    """The index with settings that read every list, so that its neighbours are exact."""
    assert isinstance(index, NativeIndex)
    settings = replace(index.settings, nprobe=EVERYWHERE, prune_ratio=float(EVERYWHERE), rerank=4 * ENTRIES)
    return replace(index, settings=settings)


class Case:
    """A memory twice: as one native step, and as exact search with the compactor and the combiner in torch."""

    def __init__(self, kind: str, dimension: int, combiner: str) -> None:
        torch.manual_seed(1)
        compactor = make_compactor(kind, dimension)
        self.inputs = dimension if compactor is None else INPUTS
        self.states = torch.randn(ENTRIES, self.inputs)
        keys = (self.states if compactor is None else compactor(self.states)).half().numpy()
        table = make_table()
        typical = float(torch.cdist(torch.tensor(keys[:50]).float(), torch.tensor(keys[50:]).float()).square().mean())
        native = search_everything(build_index(ArrayKeys(keys), "native", seed=0))
        exact: Index = ExactIndex(ArrayKeys(keys))
        if compactor is not None:
            native = CompactedIndex(native, place_compactor(compactor, "cpu", int16=kind.endswith("int16")))
            exact = CompactedIndex(exact, compactor)
        chosen = make_combiners(typical / 4)[combiner]
        scorer = make_scorer(native, table, chosen)
        assert isinstance(scorer, NativeScorer)
        assert scorer.step is not None
        self.step, self.scorer = scorer.step, scorer
        self.oracle = MemoryScorer(exact, table, chosen)
        # int16 moves a compact state by about as much as rounding to float16 does.
        self.tolerance = 2e-2 if kind.endswith("int16") else 1e-3

    def draw_states(self, rows: int) -> torch.Tensor:
        """States near those of entries, and some anywhere."""
        near = self.states[torch.randint(0, ENTRIES, (rows,))] + 0.3 * torch.randn(rows, self.inputs)
        near[::4] = torch.randn(len(near[::4]), self.inputs)
        return near

    def compare(self, found: Retrieved, expected: Retrieved) -> None:
        close = {"rtol": self.tolerance, "atol": self.tolerance}
        torch.testing.assert_close(found.distances, expected.distances, **close)
        # Neighbours at nearly the same distance may change places.
        assert (found.entries == expected.entries).float().mean() > 1 - 5 * self.tolerance
        same = (found.values == expected.values).all(dim=1)
        assert same.float().mean() > 1 - 10 * self.tolerance
        torch.testing.assert_close(found.weights.base[same], expected.weights.base[same], **close)
        torch.testing.assert_close(found.weights.neighbours[same], expected.weights.neighbours[same], **close)


@pytest.mark.parametrize("combiner", ["fixed", "adaptive", "distance decay", "contextual"])
@pytest.mark.parametrize("kind", COMPACTORS)
def test_step_equals_parts_in_torch(kind: str, combiner: str) -> None:
    case = Case(kind, 20, combiner)
    states = case.draw_states(120)
    states[3] = torch.nan
    context = make_context(3 * torch.randn(120, VOCABULARY), 30)
    found, expected = case.scorer.retrieve(states, 4, context), case.oracle.retrieve(states, context=context)
    assert (found.entries[3] == -1).all()
    assert found.weights.base[3] == 1
    case.compare(found, expected)


@pytest.mark.parametrize("dimension", [4, 64, 96, 128])
@pytest.mark.parametrize("kind", ["none", "linear", "network"])
def test_step_takes_every_dimension(kind: str, dimension: int) -> None:
    case = Case(kind, dimension, "adaptive")
    states = case.draw_states(60)
    case.compare(case.scorer.retrieve(states), case.oracle.retrieve(states))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", COMPACTORS)
@pytest.mark.parametrize("combiner", ["distance decay", "contextual"])
def test_best_tokens_are_those_of_the_mixture(kind: str, threads: int, combiner: str) -> None:
    case = Case(kind, 64, combiner)
    beams = NativeBeams([9] * 8, beam=5, eos=0, force_end=True)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        for _ in range(3):
            states, logits = case.draw_states(beams.rows), 3 * torch.randn(beams.rows, VOCABULARY)
            context = make_context(logits, 8)
            vectors = case.scorer.source_vectors(context.sources)
            found = case.step.best_tokens(states, logits, beams, IN_FULL, 6, (), vectors)
            retrieved = case.scorer.retrieve(states, 5, context)
            mixed = mix(logits.log_softmax(1), Weights(*retrieved.weights), retrieved.values)
            expected = mixed.topk(6, dim=1)
            torch.testing.assert_close(found.scores, expected.values, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(mixed.gather(1, found.tokens), found.scores, rtol=1e-4, atol=1e-4)
            beams.advance(found.scores, found.tokens, 1.0)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", ["none", "linear", "network"])
def test_step_equals_native_parts_exactly(kind: str) -> None:
    """Called one after another for single states, the native parts give the same numbers."""
    case = Case(kind, 64, "fixed")
    states = case.draw_states(30)
    scorer = case.scorer
    expected = MemoryScorer(scorer.index, scorer.table, to_native(scorer.combiner)).retrieve(states)
    found = scorer.retrieve(states)
    for name in ("distances", "entries", "values"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    assert torch.equal(found.weights.base, expected.weights.base)
    assert torch.equal(found.weights.neighbours, expected.weights.neighbours)


def test_skipped_hypotheses_get_the_base_model_alone() -> None:
    case = Case("none", 64, "fixed")
    beams = NativeBeams([9] * 4, beam=3, eos=0, force_end=True)
    start = torch.tensor([[0.0, -1.0, -3.0], [-9.0, -9.0, -9.0], [-9.0, -9.0, -9.0]]).repeat(4, 1)
    beams.advance(start, torch.tensor([[1, 2, 3]]).repeat(12, 1), 1.0)
    states, logits = case.draw_states(12), torch.randn(12, VOCABULARY)
    found = case.step.best_tokens(states, logits, beams, RetrievalPolicy(2.0, math.inf, math.inf), 4, ())
    alone = logits.log_softmax(1).topk(4, dim=1).values
    for row in range(12):
        same = torch.allclose(found.scores[row], alone[row], atol=1e-5)
        assert same == (row % 3 == 2)
