"""Running and finished hypotheses of a batch: who goes on with which token, and who is done.

Hypotheses are chains of (parent, token): a step writes one of each for every hypothesis, and only what was finished is
ever put together.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ibidem.combine import Candidates

if TYPE_CHECKING:
    from collections.abc import Sequence

NEVER = -1.0e9


class Hypothesis(NamedTuple):
    """A translation: its tokens without prompt and end of sentence, and its length-normalised log-probability.

    cut: the limit on its length ended it. Its end of sentence was then certain, or is missing, as the model has it.
    unasked: the tokens, by number, its end counted, about which no memory was asked (see `SearchSettings`).
    """

    tokens: list[int]
    score: float
    cut: bool = False
    skipped: tuple[int, ...] = ()


class Rules(NamedTuple):
    """What a search is told: see `SearchSettings`.

    eos: the token that ends a translation; force_end: whether it is certain at the limit; given: how many tokens
    before the translation count in its length; retrieval_margin: how far behind a hypothesis asks the memories.
    """

    beam: int
    n_best: int
    length_penalty: float
    eos: int
    force_end: bool
    given: int
    retrieval_margin: float = math.inf


class Beams:
    """The hypotheses of the sentences that are still open; closed ones leave the batch."""

    def __init__(self, rules: Rules, limits: Sequence[int], device: torch.device) -> None:
        """limits: the most tokens of each sentence's translation, its end included."""
        count, beam = len(limits), rules.beam
        self._rules = rules
        self._limits = torch.tensor(limits, device=device)
        self._soonest = min(limits)
        self._sentences = torch.arange(count, device=device)
        self._rows = torch.arange(count, device=device)[:, None] * beam
        self._scores = torch.full((count, beam), NEVER, device=device)
        self._scores[:, 0] = 0.0
        self._ended_scores = torch.full((count, beam), NEVER, device=device)
        # Where a finished hypothesis ended: its last step, the hypothesis it went on from, and its last token.
        self._ends = torch.zeros(count, beam, 3, dtype=torch.long, device=device)
        self._parents = torch.zeros(max(limits), count, beam, dtype=torch.long, device=device)
        self._tokens = torch.zeros(max(limits), count, beam, dtype=torch.long, device=device)
        self._silent = torch.zeros(max(limits), count, beam, dtype=torch.bool, device=device)
        self._last = torch.empty(0, dtype=torch.long, device=device)
        self._results: list[list[Hypothesis]] = [[] for _ in limits]
        self.length = 1

    @property
    def sentences(self) -> Tensor:
        """The numbers of the open sentences [open]."""
        return self._sentences

    @property
    def last_tokens(self) -> Tensor:
        """The newest token of each running hypothesis [rows, 1]."""
        return self._last.view(-1, 1)

    @property
    def results(self) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence that is done, best first."""
        return self._results

    def at_limit(self) -> Tensor | None:
        """Which sentences [open] take their last token now; None where none does."""
        return None if self.length < self._soonest else self.length >= self._limits

    def silence(self, states: Tensor) -> Tensor:
        """The states [rows, d], NaN where nobody is to be asked about them: a hypothesis too far behind."""
        if self._rules.retrieval_margin == math.inf:
            return states
        far = behind(self._scores, self._rules)
        self._silent[self.length - 1, self._sentences] = far
        return states.masked_fill(far.view(-1, 1), torch.nan)

    def advance(self, candidates: Candidates) -> Tensor | None:
        """Extend all hypotheses by one of their candidates; the rows to go on with, None when all are done."""
        last = self.at_limit()
        grown = extend(candidates, self._scores, self._rules, last)
        self._ended_scores, self._ends = finish(
            grown, self._ended_scores, self._ends, self._rules, self.length - 1, self._normalise(grown.scores)
        )
        going = go_on(grown, self._rules)
        self._scores, self._last = going.scores, going.tokens
        self._parents[self.length - 1, self._sentences] = going.parents
        self._tokens[self.length - 1, self._sentences] = going.tokens
        done = hopeless(self._ended_scores, self._normalise(self._scores), self._rules)
        if last is not None:
            done = done | last
        rows = self._rows[: len(done)] + going.parents
        self.length += 1
        if not bool(done.any()):
            return rows.view(-1)
        self._close(done)
        return self._keep(~done, rows)

    def _normalise(self, scores: Tensor) -> Tensor:
        counted: float = (self.length + self._rules.given) ** self._rules.length_penalty
        return scores / counted

    def _close(self, done: Tensor) -> None:
        """Put the finished hypotheses of some sentences together."""
        sentences = self._sentences[done]
        chain = Chain(*(part[: self.length - 1, sentences] for part in (self._parents, self._tokens, self._silent)))
        found = collect(
            chain,
            self._ended_scores[done],
            self._ends[done],
            self._limits[done],
            self._rules,
        )
        for sentence, hypotheses in zip(sentences.tolist(), found, strict=True):
            self._results[sentence] = hypotheses

    def _keep(self, open_: Tensor, rows: Tensor) -> Tensor | None:
        """Let closed sentences leave the batch."""
        if not bool(open_.any()):
            return None
        self._sentences, self._limits = self._sentences[open_], self._limits[open_]
        self._soonest = int(self._limits.min())
        self._scores, self._last = self._scores[open_], self._last[open_]
        self._ended_scores, self._ends = self._ended_scores[open_], self._ends[open_]
        return rows[open_].view(-1)


def behind(scores: Tensor, rules: Rules) -> Tensor:
    """Which hypotheses with scores [n, beam], best first, are too far behind the best to ask the memories."""
    return scores < scores[:, :1] - rules.retrieval_margin


class Grown(NamedTuple):
    """The best extensions of each sentence [n, m], best first, and which of them end there."""

    scores: Tensor
    parents: Tensor
    tokens: Tensor
    ends: Tensor


def extend(candidates: Candidates, scores: Tensor, rules: Rules, last: Tensor | None) -> Grown:
    """The 2 x beam best extensions of hypotheses with scores [n, beam]; last: sentences [n] at their limit."""
    count, beam = scores.shape
    width = candidates.tokens.shape[1]
    total = (scores.view(-1, 1) + candidates.log_probs).view(count, beam * width)
    best, places = total.topk(min(2 * beam, beam * width), dim=1)
    tokens = candidates.tokens.view(count, beam * width).gather(1, places)
    ends = tokens.eq(rules.eos)
    return Grown(
        best,
        places.div(width, rounding_mode="floor"),
        tokens,
        ends if last is None else ends | last[:, None],
    )


def finish(
    grown: Grown, ended_scores: Tensor, ends: Tensor, rules: Rules, step: Tensor | int, normalised: Tensor
) -> tuple[Tensor, Tensor]:
    """Merge the extensions that end, among the best `beam` ones, into the best finished hypotheses.

    ended_scores: [n, beam]; ends: [n, beam, 3], last step, parent and last token of each; both are given anew.
    """
    beam = rules.beam
    # What grew from a placeholder is no hypothesis, however its length scales the score.
    allowed = grown.ends[:, :beam] & (grown.scores[:, :beam] > NEVER / 2)
    pool = torch.cat([ended_scores, normalised[:, :beam] + ~allowed * NEVER], dim=1)
    now = torch.zeros_like(grown.tokens) + step
    places = torch.stack([now, grown.parents, grown.tokens], dim=2)[:, :beam]
    best, order = pool.topk(beam, dim=1)
    return best, torch.cat([ends, places], dim=1).gather(1, order[:, :, None].expand(-1, -1, 3))


def go_on(grown: Grown, rules: Rules) -> Grown:
    """The `beam` best extensions that do not end."""
    scores, order = (grown.scores + grown.ends * NEVER).topk(rules.beam, dim=1)
    return Grown(*(scores if column is grown.scores else column.gather(1, order) for column in grown))


def hopeless(ended_scores: Tensor, normalised: Tensor, rules: Rules) -> Tensor:
    """Sentences [n] whose running hypotheses cannot get among the finished ones any more."""
    worst = ended_scores[:, -1]
    full = worst > NEVER / 2
    return full if rules.beam == 1 else full & (normalised[:, 0] <= worst)


class Chain(NamedTuple):
    """What hypotheses are put together from: [steps, n, beam], or as lists [steps][beam] of one sentence.

    parents: whom each went on from, by place; tokens: with what; silent: about which places no memory was asked.
    """

    parents: Any
    tokens: Any
    silent: Any


def collect(chain: Chain, scores: Tensor, ends: Tensor, limits: Tensor, rules: Rules) -> list[list[Hypothesis]]:
    """The n best finished hypotheses of each sentence, best first.

    scores: [n, beam]; ends: [n, beam, 3], last step, parent and last token of each; limits: [n].
    """
    chains = zip(*(part.transpose(0, 1).tolist() for part in chain), strict=True)
    rows = zip(chains, scores.tolist(), ends.tolist(), limits.tolist(), strict=True)
    results = []
    for of_sentence, scores_of, ends_of, limit in rows:
        links = Chain(*of_sentence)
        finished = zip(scores_of[: rules.n_best], ends_of[: rules.n_best], strict=True)
        found = [follow(links, end, score, limit, rules) for score, end in finished if score > NEVER / 2]
        # Where nothing was possible at all, the translation is empty.
        results.append(found or [Hypothesis([], scores_of[0])])
    return results


def follow(chain: Chain, end: list[int], score: float, limit: int, rules: Rules) -> Hypothesis:
    """A hypothesis of a sentence from its end to its beginning."""
    step, place, last = end
    words = [] if last == rules.eos else [last]
    skipped = [step] if chain.silent[step][place] else []
    for earlier in range(step - 1, -1, -1):
        words.append(chain.tokens[earlier][place])
        place = chain.parents[earlier][place]
        if chain.silent[earlier][place]:
            skipped.append(earlier)
    cut = last != rules.eos or (rules.force_end and step + 1 >= limit)
    return Hypothesis(words[::-1], score, cut, tuple(skipped[::-1]))


def force(candidates: Candidates, rows: Tensor, tokens: Tensor, log_probs: Tensor) -> Candidates:
    """In the given rows [r] only the given token [r] is possible, at the given log-probability [r]."""
    only = torch.full_like(candidates.log_probs, -torch.inf)
    only[:, 0] = log_probs
    forced = torch.where(rows[:, None], only, candidates.log_probs)
    return Candidates(forced, torch.where(rows[:, None], tokens[:, None], candidates.tokens))
