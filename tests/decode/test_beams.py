"""The native beams against those in torch, and ties against a plain implementation of the rules."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.combine import Candidates
from ibidem.decode.beams import NEVER, Beams, Hypothesis, NativeBeamState, Rules, begin_beams, force_tokens

if TYPE_CHECKING:
    from torch import Tensor

pytestmark = pytest.mark.usefixtures("native_build")

EOS = 0
CPU = torch.device("cpu")


class Scenes:
    """Candidates of every sentence, step and hypothesis; rounded, many of them have equal scores."""

    def __init__(self, rules: Rules, limits: list[int], width: int, seed: int, *, rounded: bool, spoilt: bool) -> None:
        generator = torch.Generator().manual_seed(seed)
        shape = (max(limits), len(limits), rules.beam, width)
        log_probs = -torch.rand(shape, generator=generator) * 4
        self._log_probs = (log_probs * 2).round() / 2 if rounded else log_probs
        if spoilt:
            self._log_probs[torch.rand(shape, generator=generator) < 0.2] = -torch.inf
        self._tokens = torch.randint(0, 12, shape, generator=generator)
        self._rules = rules

    def show(self, length: int, sentences: Tensor, last: Tensor | None) -> Candidates:
        width = self._tokens.shape[-1]
        shown = Candidates(
            self._log_probs[length - 1, sentences].view(-1, width), self._tokens[length - 1, sentences].view(-1, width)
        )
        if last is None or not self._rules.force_end:
            return shown
        rows = last.repeat_interleave(self._rules.beam)
        return force_tokens(shown, rows, torch.full_like(shown.tokens[:, 0], EOS), torch.zeros(len(rows)))


def run(beams: Beams | NativeBeamState, scenes: Scenes) -> list[list[Hypothesis]]:
    """Advance to the end, as `beam_search` does."""
    while True:
        states = torch.zeros(len(beams.sentences) * scenes._rules.beam, 3)
        masked = beams.mask_lagging(states).isnan()
        assert (masked.all(1) == masked.any(1)).all()
        assert not masked[:: scenes._rules.beam].any()  # the best of a sentence is never skipped
        rows = beams.advance(scenes.show(beams.length, beams.sentences, beams.at_limit()))
        if rows is None:
            return beams.results
        assert len(rows) == len(beams.last_tokens) == len(beams.sentences) * scenes._rules.beam


def run_plainly(rules: Rules, limits: list[int], scenes: Scenes) -> list[list[Hypothesis]]:
    """The rules sentence by sentence, with sorting that keeps equals in order."""
    results = []
    for sentence, limit in enumerate(limits):
        running = [(np.float32(NEVER if place else 0.0), (), ()) for place in range(rules.beam)]
        ended: list[tuple[np.float32, tuple[int, ...], bool, tuple[int, ...]]] = []
        for length in range(1, limit + 1):
            last = torch.tensor([length >= limit])
            shown = scenes.show(length, torch.tensor([sentence]), last)
            counted = np.float32((length + rules.given) ** rules.length_penalty)
            least = running[0][0] - np.float32(rules.retrieval_margin)
            running = [
                (score, tokens, (*skipped, length - 1) if score < least else skipped)
                for score, tokens, skipped in running
            ]
            grown = [
                (score + np.float32(log_prob), (*tokens, token), skipped)
                for (score, tokens, skipped), log_probs, ids in zip(
                    running, shown.log_probs.tolist(), shown.tokens.tolist(), strict=True
                )
                for log_prob, token in zip(log_probs, ids, strict=True)
            ]
            grown = sorted(grown, key=lambda one: -one[0])[: 2 * rules.beam]
            done = [length >= limit or tokens[-1] == EOS for _, tokens, _ in grown]
            new = [
                (score / counted, tokens, tokens[-1] != EOS or (rules.force_end and length >= limit), skipped)
                for (score, tokens, skipped), ends in list(zip(grown, done, strict=True))[: rules.beam]
                if ends and score > NEVER / 2
            ]
            ended = sorted([*ended, *new], key=lambda one: -one[0])[: rules.beam]
            going = [
                (score + np.float32(NEVER if ends else 0.0), tokens, skipped)
                for (score, tokens, skipped), ends in zip(grown, done, strict=True)
            ]
            running = sorted(going, key=lambda one: -one[0])[: rules.beam]
            full = len(ended) == rules.beam and ended[-1][0] > NEVER / 2
            if full and (rules.beam == 1 or running[0][0] / counted <= ended[-1][0]):
                break
        results.append(
            [
                Hypothesis([token for token in tokens if token != EOS], float(score), bool(cut), skipped)
                for score, tokens, cut, skipped in ended[: rules.n_best]
            ]
            or [Hypothesis([], NEVER)]
        )
    return results


@st.composite
def searches(draw: st.DrawFn) -> tuple[Rules, list[int], int, int]:
    beam = draw(st.integers(1, 6))
    rules = Rules(
        beam=beam,
        n_best=draw(st.integers(1, beam)),
        length_penalty=draw(st.sampled_from([0.0, 0.6, 1.0, 2.0, -1.0])),
        eos=EOS,
        force_end=draw(st.booleans()),
        given=draw(st.integers(0, 1)),
        retrieval_margin=draw(st.sampled_from([math.inf, 0.0, 0.5, 2.0])),
    )
    limits = draw(st.lists(st.integers(1, 12), min_size=1, max_size=6))
    return rules, limits, draw(st.sampled_from([2 * beam, 2 * beam, beam, 1])), draw(st.integers(0, 9999))


def flat(found: list[list[Hypothesis]]) -> list[tuple[list[int], float, bool, tuple[int, ...]]]:
    return [tuple(one[:4]) for best in found for one in best if not math.isnan(one.score)]


@given(searches())
@settings(max_examples=150, deadline=None)
def test_native_beams_find_what_torch_finds(search: tuple[Rules, list[int], int, int]) -> None:
    rules, limits, width, seed = search
    scenes = Scenes(rules, limits, width, seed, rounded=False, spoilt=seed % 2 == 0)
    assert flat(run(NativeBeamState(rules, limits), scenes)) == flat(run(Beams(rules, limits, CPU), scenes))


@given(searches())
@settings(max_examples=150, deadline=None)
def test_ties_keep_the_order_of_the_candidates(search: tuple[Rules, list[int], int, int]) -> None:
    rules, limits, width, seed = search
    scenes = Scenes(rules, limits, width, seed, rounded=True, spoilt=seed % 2 == 0)
    assert flat(run(NativeBeamState(rules, limits), scenes)) == flat(run_plainly(rules, limits, scenes))


def test_a_sentence_does_not_depend_on_its_batch() -> None:
    rules = Rules(beam=4, n_best=2, length_penalty=1.0, eos=EOS, force_end=True, given=0)
    limits = [3, 9, 9, 5, 1, 7]
    scenes = Scenes(rules, limits, 8, 7, rounded=True, spoilt=False)
    batched = run(NativeBeamState(rules, limits), scenes)
    for number, limit in enumerate(limits):
        alone = Scenes(rules, limits, 8, 7, rounded=True, spoilt=False)
        alone._log_probs, alone._tokens = (part[:, number : number + 1] for part in (alone._log_probs, alone._tokens))
        assert run(NativeBeamState(rules, [limit]), alone) == [batched[number]]


def test_candidates_of_nan_end_at_the_limit() -> None:
    rules = Rules(beam=2, n_best=2, length_penalty=1.0, eos=EOS, force_end=False, given=0)
    candidates = Candidates(torch.full((2, 4), torch.nan), torch.ones(2, 4, dtype=torch.long))
    for beams in (NativeBeamState(rules, [2]), Beams(rules, [2], CPU)):
        assert beams.advance(candidates) is not None
        assert beams.advance(candidates) is None
        assert [best.tokens for best in beams.results[0]] == [[]]


def test_the_device_decides_which_beams_are_used() -> None:
    rules = Rules(beam=2, n_best=1, length_penalty=1.0, eos=EOS, force_end=False, given=0)
    assert isinstance(begin_beams(rules, [3], CPU), NativeBeamState)
    assert isinstance(begin_beams(rules, [3], torch.device("meta")), Beams)


def test_wrong_candidates_are_refused() -> None:
    rules = Rules(beam=2, n_best=1, length_penalty=1.0, eos=EOS, force_end=False, given=0)
    beams = NativeBeamState(rules, [3, 3])
    for shape in ((2, 4), (4, 0), (4,)):
        with pytest.raises(ValueError, match="candidates of shape"):
            beams.advance(Candidates(torch.zeros(shape), torch.zeros(shape, dtype=torch.long)))
    with pytest.raises(ValueError, match="2 sentences are open"):
        _ = beams.results
