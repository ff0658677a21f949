"""Batched beam search. Without a memory it gives token for token what `generate()` gives in transformers, for the
beam, length penalty, limits and prefix set here and with early stopping off; other generation settings are not read.

Like there, a hypothesis scores its log-probability divided by length ** length_penalty, and a sentence is done
when its best running hypothesis, scored at its present length, cannot replace the worst of `beam` finished ones.
With beam 1 the search is greedy: it ends at the first end of sentence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ibidem.combine import Candidates, Weights, best_candidates, score_tokens
from ibidem.decode.beams import Beams, Hypothesis, Rules, force
from ibidem.decode.consulting import NativeScorer
from ibidem.decode.native import NativeBeamState, begin_beams
from ibidem.errors import UsageError
from ibidem.native import RetrievalPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.decode.scoring import Scorer
    from ibidem.model import BaseModel, Step


# Leaves a fifth of the questions out, and costs no BLEU that can be measured; 1.75 does (docs/results/speed.md).
RETRIEVAL_MARGIN = 3.0
# Beyond this score gap, or above this probability of the best token, a reduced search costs little in quality.
_REDUCED_GAP, _REDUCED_ABOVE = 0.25, 0.85

# Called before every decoding step; the search ends with whatever it raises.
Check = Callable[[], None]

# (logits [r, V], weights, values [r, K], how many, banned tokens) -> the best tokens of the mixture
BestTokens = Callable[[Tensor, Weights, Tensor, int, Tensor | None], Candidates]


def never_stop() -> None:
    """Let a search go on, whatever happens: the check of a search that nothing stops."""


@dataclass(frozen=True)
class SearchSettings:
    """How to search; a translation has at most ratio * source tokens + extra tokens, its end included.

    retrieval_margin: a hypothesis whose log-probability is more than this below the best of its sentence skips the
    search in the memories. Native indexes probe fewer lists for hypotheses a little below the best, and for those
    whose next token the model predicts with a high probability. None: RETRIEVAL_MARGIN on a CPU, inf (search for every
    hypothesis in full) on a GPU.
    """

    beam: int = 4
    length_penalty: float = 1.0
    max_length_ratio: float = 2.0
    max_length_extra: int = 30
    n_best: int = 1
    retrieval_margin: float | None = None

    def __post_init__(self) -> None:
        if self.beam < 1 or not 1 <= self.n_best <= self.beam:
            raise UsageError(
                f"beam = {self.beam} with n-best = {self.n_best} cannot be searched: "
                "the beam is at least 1, and n-best lies between 1 and the beam."
            )
        if self.retrieval_margin is not None and not self.retrieval_margin >= 0:
            raise UsageError(f"Invalid retrieval_margin {self.retrieval_margin}: give 0 or more, or inf for no limit.")

    def limit(self, source_length: int, longest: int) -> int:
        """The most tokens a translation may have, the end of sentence included."""
        return max(1, min(int(self.max_length_ratio * source_length) + self.max_length_extra, longest))


@torch.inference_mode()
def beam_search(
    model: BaseModel,
    sources: Sequence[Sequence[int]],
    settings: SearchSettings,
    scorer: Scorer,
    prefixes: Sequence[Sequence[int]] | None = None,
    best: BestTokens = best_candidates,
    check: Check = never_stop,
) -> list[list[Hypothesis]]:
    """The n best translations of each source, best first; a prefix's tokens are forced at the start.

    best: how the best tokens of the mixture are found; another way than ours is for comparing the two. check: is called
    before the sources are encoded and before every step.
    """
    if not sources:
        return []
    limits = limits_of(model, sources, settings)
    if prefixes is not None:
        longest = model.tokens.longest_target
        if any(len(prefix) >= longest for prefix in prefixes):
            raise UsageError(f"A prefix is too long for the model: give at most {longest - 1} tokens.")
        limits = [min(limit + len(prefix), longest) for limit, prefix in zip(limits, prefixes, strict=True)]
    rules = rules_of(model, settings)
    beams = begin_beams(rules, limits, model.device)
    choose = Choice(model, scorer, rules, _pad_prefixes(prefixes, model.device), best)
    check()
    decoding = model.start(sources, settings.beam)
    tokens = torch.tensor(model.tokens.start, device=model.device).expand(len(sources) * settings.beam, -1)
    while True:
        check()
        rows = beams.advance(choose(decoding.step(tokens), beams))
        if rows is None:
            return beams.results
        decoding.reorder(rows)
        tokens = beams.last_tokens


def limits_of(model: BaseModel, sources: Sequence[Sequence[int]], settings: SearchSettings) -> list[int]:
    """The most tokens of each source's translation, its end included."""
    return [settings.limit(len(ids), model.tokens.longest_target) for ids in sources]


def rules_of(model: BaseModel, settings: SearchSettings) -> Rules:
    """What a search with this model is told."""
    return Rules(
        beam=settings.beam,
        n_best=settings.n_best,
        length_penalty=settings.length_penalty,
        eos=model.tokens.eos,
        force_end=model.forces_eos,
        # Tokens forced after the decoder's start token count as part of the translation, as in `generate()`.
        given=len(model.tokens.start) - 1,
        retrieval_margin=_default_margin(model.device)
        if settings.retrieval_margin is None
        else settings.retrieval_margin,
    )


def _make_policy(margin: float) -> RetrievalPolicy:
    """Reduce searches only where a margin skips some of them: without one, all hypotheses search in full."""
    if margin == math.inf:
        return RetrievalPolicy(math.inf, math.inf, math.inf)
    return RetrievalPolicy(margin, _REDUCED_GAP, _REDUCED_ABOVE)


def _default_margin(device: torch.device) -> float:
    return RETRIEVAL_MARGIN if device.type == "cpu" else math.inf


class Choice:
    """The candidates for the next token of every row, as model, memories, limits and prefixes allow."""

    def __init__(
        self, model: BaseModel, scorer: Scorer, rules: Rules, prefixes: Tensor | None, best: BestTokens
    ) -> None:
        """prefixes: [sentences, longest], -1 behind each."""
        self._scorer = scorer
        self._best = best
        self._rules = rules
        self._prefixes = prefixes
        self._policy = _make_policy(rules.retrieval_margin)
        self._left_out = tuple(model.banned)
        self._banned = torch.tensor(model.banned, device=model.device) if model.banned else None

    def __call__(self, step: Step, beams: Beams | NativeBeamState) -> Candidates:
        forced = None
        if self._prefixes is not None and beams.length <= self._prefixes.shape[1]:
            forced = self._prefixes[beams.sentences, beams.length - 1].repeat_interleave(self._rules.beam)
        candidates = self._choose_at_once(step, beams)
        if candidates is not None and forced is None:
            return self._end(candidates, beams)
        beam, logits = self._rules.beam, step.logits
        votes = self._scorer.retrieve(beams.silence(step.states) if self._scorer.memories else step.states, beam)
        if candidates is None:
            candidates = self._best(logits, votes.weights, votes.values, 2 * beam, self._banned)
        candidates = self._end(candidates, beams)
        if forced is None:
            return candidates
        # Sentences without a prefix go on as they would in a batch of their own.
        tokens = forced.clamp_min(0)
        return force(candidates, forced >= 0, tokens, score_tokens(logits, votes.weights, votes.values, tokens))

    def _choose_at_once(self, step: Step, beams: Beams | NativeBeamState) -> Candidates | None:
        """The candidates where one native call can find them, from who asks to the mixture; else None."""
        if not isinstance(self._scorer, NativeScorer) or not isinstance(beams, NativeBeamState):
            return None
        native_step = self._scorer.step
        if native_step is None or self._best is not best_candidates:
            return None
        count = min(2 * self._rules.beam, step.logits.shape[1] - len(self._left_out))
        best = native_step.best_tokens(step.states, step.logits, beams.native, self._policy, count, self._left_out)
        return Candidates(*best)

    def _end(self, candidates: Candidates, beams: Beams | NativeBeamState) -> Candidates:
        """The candidates, but for sentences at their limit, which end where the model wants it."""
        last = beams.at_limit() if self._rules.force_end else None
        if last is None:
            return candidates
        rows = last.repeat_interleave(self._rules.beam)
        end = torch.full_like(rows, self._rules.eos, dtype=torch.long)
        return force(candidates, rows, end, torch.zeros_like(candidates.log_probs[:, 0]))


def _pad_prefixes(prefixes: Sequence[Sequence[int]] | None, device: torch.device) -> Tensor | None:
    """Prefixes as [n, longest] with -1 behind each."""
    if prefixes is None or not any(prefixes):
        return None
    longest = max(len(prefix) for prefix in prefixes)
    return torch.tensor([[*prefix, *[-1] * (longest - len(prefix))] for prefix in prefixes], device=device)
