"""The native scorer against its parts called one by one."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ibidem.combine import (
    AdaptiveCombiner,
    Candidates,
    EntryTable,
    FixedCombiner,
    MetaK,
    Sources,
    best_candidates,
    to_native,
)
from ibidem.compact import NetworkCompactor, place_compactor
from ibidem.decode.beam_search import CandidateSelector
from ibidem.decode.beams import NativeBeamState, Rules
from ibidem.decode.scorer import MemoryScorer, NativeScorer, Retrieved, make_scorer
from ibidem.model import Step
from ibidem.native import Best, NativeBeams, RetrievalPolicy, best_of_mixture, native
from ibidem.retrieve import ArrayKeys, CompactedIndex, ExactIndex, NativeIndex, build_index

pytestmark = pytest.mark.skipif(native() is None, reason="needs the native library")

ENTRIES = 3000
POLICY = RetrievalPolicy(1.0, math.inf, math.inf)


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


def limited_scorer(parts: tuple[CompactedIndex, torch.Tensor, AdaptiveCombiner]) -> NativeScorer:
    """A scorer that searches so little that a reduced search finds other neighbours."""
    index, values, combiner = parts
    inner = index.index
    assert isinstance(inner, NativeIndex)
    inner = replace(inner, settings=replace(inner.settings, nprobe=4, prune_ratio=1.0, rerank=1))
    scorer = make_scorer(replace(index, index=inner), EntryTable(values), to_native(combiner))
    assert isinstance(scorer, NativeScorer)
    return scorer


def assert_same(one: Retrieved, other: Retrieved) -> None:
    for name in ("distances", "entries", "values", "sources"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert torch.equal(one.weights.base, other.weights.base)
    assert torch.equal(one.weights.neighbours, other.weights.neighbours)


@pytest.mark.parametrize("rows", [1, 5, 70])
def test_the_step_equals_its_parts(parts, rows: int) -> None:
    index, values, combiner = parts
    states = torch.randn(rows, 48)
    states[0] = torch.nan  # has no neighbours
    scorer = make_scorer(index, EntryTable(values), to_native(combiner))
    assert isinstance(scorer, NativeScorer)
    expected = MemoryScorer(index, EntryTable(values), to_native(combiner)).retrieve(states)
    assert (expected.entries[0] == -1).all()
    assert_same(scorer.retrieve(states), expected)
    assert_same(scorer.retrieve(states.double()), expected)


def test_another_default_dtype_changes_nothing(parts) -> None:
    """Another thread may have set it, as transformers does while it loads a model."""
    index, values, combiner = parts
    scorer = make_scorer(index, EntryTable(values), to_native(combiner))
    states, logits = torch.randn(5, 48), torch.randn(5, 40)

    def compute() -> tuple[Retrieved, Best, Retrieved]:
        by_parts = MemoryScorer(index, EntryTable(values), to_native(combiner)).retrieve(states)
        return scorer.retrieve(states), best_of_mixture(logits, 4), by_parts

    before = compute()
    torch.set_default_dtype(torch.float16)
    try:
        after = compute()
    finally:
        torch.set_default_dtype(torch.float32)
    assert_same(after[0], before[0])
    assert_same(after[2], before[2])
    assert torch.equal(after[1].scores, before[1].scores)


def test_hidden_entries_stay_hidden(parts) -> None:
    index, values, combiner = parts
    states = torch.randn(5, 48)
    found = make_scorer(index, EntryTable(values), to_native(combiner)).retrieve(states).entries
    inner = index.index.without(np.unique(found.numpy()))
    scorer = make_scorer(replace(index, index=inner), EntryTable(values), to_native(combiner))
    assert isinstance(scorer, NativeScorer)
    assert not torch.isin(scorer.retrieve(states).entries, found).any()


def test_exchanged_parts_are_used(parts) -> None:
    index, values, combiner = parts
    states = torch.randn(5, 48)
    scorer = make_scorer(index, EntryTable(values), to_native(combiner))
    scorer.combiner = FixedCombiner(2, 0.5, 1.0)
    expected = MemoryScorer(index, EntryTable(values), FixedCombiner(2, 0.5, 1.0)).retrieve(states)
    assert_same(scorer.retrieve(states), expected)


def test_parts_without_native_code_are_called_one_by_one(parts) -> None:
    index, values, combiner = parts
    exact = ExactIndex(ArrayKeys(np.zeros((5, 16), np.float16)))
    for scorer in (
        make_scorer(exact, EntryTable(values), combiner),
        make_scorer(replace(index, index=exact), EntryTable(values), combiner),
        make_scorer(index, EntryTable(values[:0]), combiner),
    ):
        assert type(scorer) is MemoryScorer


def test_wrong_dimensions_and_values_are_refused(parts) -> None:
    index, values, combiner = parts
    with pytest.raises(ValueError, match="47 numbers"):
        make_scorer(index, EntryTable(values), to_native(combiner)).retrieve(torch.randn(5, 47))
    with pytest.raises(IndexError, match="10 whose values are known"):
        make_scorer(index, EntryTable(values[:10]), to_native(combiner)).retrieve(torch.randn(5, 48))


@pytest.mark.parametrize("margin", [0.5, math.inf])
def test_best_tokens_equal_those_of_the_parts(parts, margin: float) -> None:
    index, values, combiner = parts
    scorer = make_scorer(index, EntryTable(values), to_native(combiner))
    assert isinstance(scorer, NativeScorer)
    assert scorer.step is not None
    torch.manual_seed(1)
    first, second = (NativeBeams([9] * 6, beam=3, eos=0, force_end=True) for _ in range(2))
    for _ in range(4):
        states, logits = torch.randn(first.rows, 48), 3 * torch.randn(first.rows, 40)
        given = states.clone()
        found = scorer.step.best_tokens(given, logits, first, RetrievalPolicy(margin, math.inf, math.inf), 6, (5, 7))
        assert torch.equal(given, states)
        if margin < math.inf:
            states = states.masked_fill(second.mask_lagging(margin)[:, None], math.nan)
        retrieved = scorer.retrieve(states, 3)
        normalisers = torch.empty(len(logits))
        expected = best_of_mixture(
            logits,
            6,
            normalisers=normalisers,
            base=retrieved.weights.base,
            weights=retrieved.weights.neighbours,
            values=retrieved.values,
            banned=(5, 7),
        )
        assert torch.equal(found.scores, expected.scores)
        assert torch.equal(found.tokens, expected.tokens)
        nearest = retrieved.distances.argmin(dim=1, keepdim=True)
        second.record(
            retrieved.weights.base,
            retrieved.distances.gather(1, nearest).squeeze(1),
            retrieved.entries.gather(1, nearest).squeeze(1),
            expected.tokens,
            logits.gather(1, expected.tokens) - normalisers[:, None],
        )
        for beams, best in ((first, found), (second, expected)):
            beams.advance(best.scores, best.tokens, 1.0)
    while first.open:
        for beams in (first, second):
            rows = beams.rows
            beams.advance(torch.zeros(rows, 1), torch.zeros(rows, 1, dtype=torch.long), 1.0)
    own, others = ([one for best in beams.results(3) for one in best] for beams in (first, second))
    assert [one[:4] for one in own] == [one[:4] for one in others]
    for one, other in zip(own, others, strict=True):
        assert one.evidence is not None
        assert other.evidence is not None
        assert one.evidence.entries.tolist() == other.evidence.entries.tolist()
        for name in ("log_probs", "base_log_probs", "weights", "distances"):
            np.testing.assert_allclose(getattr(one.evidence, name), getattr(other.evidence, name), atol=1e-5)
    skipped = [one.skipped for one in own]
    assert any(skipped) == (margin < math.inf)


def test_confident_or_lagging_hypotheses_search_less(parts) -> None:
    index, values, combiner = parts
    # A reduced search finds other neighbours: it reads one list of few keys.
    inner = replace(index.index, settings=replace(index.index.settings, nprobe=4, prune_ratio=1.0, rerank=1))
    scorer = make_scorer(replace(index, index=inner), EntryTable(values), to_native(combiner))
    assert isinstance(scorer, NativeScorer)
    assert scorer.step is not None
    brief = make_scorer(
        replace(index, index=replace(inner, settings=inner.settings.reduced)), EntryTable(values), to_native(combiner)
    )
    torch.manual_seed(2)
    beams = NativeBeams([9] * 20, beam=1, eos=0, force_end=True)
    states, logits = torch.randn(20, 48), torch.randn(20, 40)
    logits[:7, 3] = 12.0  # above 0.99
    logits[7:14, 3] = logits[7:14].logsumexp(1) - 0.2  # less than half

    def choose(policy: RetrievalPolicy) -> Best:
        assert isinstance(scorer, NativeScorer)
        assert scorer.step is not None
        return scorer.step.best_tokens(states, logits, beams, policy, 2, ())

    def mixed(scorer: MemoryScorer, rows: slice) -> Best:
        retrieved = scorer.retrieve(states[rows])
        weights = retrieved.weights
        return best_of_mixture(logits[rows], 2, base=weights.base, weights=weights.neighbours, values=retrieved.values)

    full, reduced = mixed(scorer, slice(None)), mixed(brief, slice(None))
    assert not torch.equal(full.scores[:7], reduced.scores[:7])
    assert not torch.equal(full.scores[7:], reduced.scores[7:])
    found = choose(RetrievalPolicy(2.0, math.inf, 0.9))
    assert torch.equal(found.scores, torch.cat([reduced.scores[:7], full.scores[7:]]))
    assert torch.equal(found.tokens, torch.cat([reduced.tokens[:7], full.tokens[7:]]))
    assert torch.equal(
        choose(RetrievalPolicy(2.0, -1.0, 0.9)).scores, reduced.scores
    )  # the gaps of all are larger than that
    assert torch.equal(choose(RetrievalPolicy(math.inf, math.inf, math.inf)).scores, full.scores)


def test_threads_do_not_change_best_tokens(parts) -> None:
    scorer = limited_scorer(parts)
    assert scorer.step is not None
    torch.manual_seed(5)
    beams = NativeBeams([9] * 12, beam=5, eos=0, force_end=True)
    states, logits = torch.randn(60, 48), 4 * torch.randn(60, 40)  # the largest probabilities lie on both sides of 0.6
    found = []
    before = torch.get_num_threads()
    try:
        for threads in (1, *[3] * 20):
            torch.set_num_threads(threads)
            found.append(
                scorer.step.best_tokens(states, logits, beams, RetrievalPolicy(math.inf, math.inf, 0.6), 10, ())
            )
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert torch.equal(other.scores, found[0].scores)
        assert torch.equal(other.tokens, found[0].tokens)


def test_a_prefix_of_another_sentence_changes_nothing(parts) -> None:
    scorer = limited_scorer(parts)
    rules = Rules(beam=2, n_best=1, length_penalty=1.0, eos=0, force_end=True, given=0, retrieval_margin=2.0)
    torch.manual_seed(4)
    step = Step(5 * torch.randn(8, 48), torch.randn(8, 40))
    step.logits[:, 3] = 12.0  # above the limit, so that all searches are reduced

    def choose(prefixes: torch.Tensor | None) -> Candidates:
        choice = CandidateSelector(
            SimpleNamespace(banned=[], device=torch.device("cpu")),
            scorer,
            rules,
            Sources(torch.zeros(1, 1)),
            prefixes,
            best_candidates,
        )
        return choice(Step(step.states.clone(), step.logits.clone()), NativeBeamState(rules, [9] * 4))

    alone, forced = choose(None), choose(torch.tensor([[7], [-1], [-1], [-1]]))
    assert torch.equal(forced.tokens[2:], alone.tokens[2:])
    assert torch.equal(forced.log_probs[2:], alone.log_probs[2:])
    assert forced.tokens[0, 0] == 7
    full = scorer.retrieve(step.states)
    best = best_candidates(step.logits, full.weights, full.values, 4)
    assert not torch.equal(best.log_probs[2:], alone.log_probs[2:])  # or the test could not fail


def test_the_score_gap_of_reduced_searches(parts) -> None:
    scorer = limited_scorer(parts)
    assert scorer.step is not None
    beams = NativeBeams([9] * 8, beam=3, eos=0, force_end=True)
    torch.manual_seed(3)
    start = torch.tensor([[0.0, -1.0, -3.0], [-9.0, -9.0, -9.0], [-9.0, -9.0, -9.0]]).repeat(8, 1)
    beams.advance(start, torch.tensor([[1, 2, 3]]).repeat(24, 1), 1.0)  # the hypotheses are 0, 1 and 3 below the best
    # So far from each other that none shares a search.
    states, logits = 5 * torch.randn(24, 48), torch.randn(24, 40)
    found = [
        scorer.step.best_tokens(states, logits, beams, RetrievalPolicy(math.inf, behind, math.inf), 2, ()).scores
        for behind in (5.0, 2.0, 0.5, -1.0)
    ]
    for lag, (farther, nearer) in zip((3, 1, 0), pairwise(found), strict=True):
        rows = [hypothesis for hypothesis in range(24) if (0, 1, 3)[hypothesis % 3] == lag]
        others = [hypothesis for hypothesis in range(24) if hypothesis not in rows]
        assert torch.equal(farther[others], nearer[others])
        assert not torch.equal(farther[rows], nearer[rows])


def test_invalid_arguments_are_refused(parts) -> None:
    index, values, combiner = parts
    scorer = make_scorer(index, EntryTable(values), to_native(combiner))
    assert isinstance(scorer, NativeScorer)
    assert scorer.step is not None
    beams = NativeBeams([9], beam=3, eos=0, force_end=True)
    with pytest.raises(ValueError, match="2 rows of logits were given of 3 hypotheses"):
        scorer.step.best_tokens(torch.randn(3, 48), torch.randn(2, 40), beams, POLICY, 6, ())
    with pytest.raises(ValueError, match="47 numbers"):
        scorer.step.best_tokens(torch.randn(3, 47), torch.randn(3, 40), beams, POLICY, 6, ())
    with pytest.raises(ValueError, match="41 tokens were requested"):
        scorer.step.best_tokens(torch.randn(3, 48), torch.randn(3, 40), beams, POLICY, 41, ())
    scorer.combiner = FixedCombiner(2, 0.5, 1.0)
    assert scorer.step is None
