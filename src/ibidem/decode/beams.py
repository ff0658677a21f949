"""The hypotheses of a batch in beam search: how they are extended, finished and collected.

`Beams` works in torch, `NativeBeamState` in native code on the CPU; `begin_beams` selects one. A hypothesis is a chain
of (parent, token): a step stores one of each for every hypothesis, and the tokens are collected only for finished
hypotheses.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ibidem.combine import Candidates
from ibidem.decode.retrieval_policy import find_lagging
from ibidem.native import NativeBeams, native

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from ibidem.glossary import TermUse
    from ibidem.native import Evidence


NEVER = -1.0e9


class Hypothesis(NamedTuple):
    """A translation that the search found.

    Attributes:
        tokens: Its token ids, without prompt and end of sentence.
        score: Its length-normalised log-probability.
        cut: Whether the limit on its length ended it. Its end of sentence is then forced (probability 1) or missing,
            depending on the model.
        skipped: The steps, counted from 0, at which no neighbours were retrieved (see `SearchSettings`).
        evidence: The probabilities and nearest neighbours of its tokens, its end included; None where the search did
            not record them.
        terms: The terms of the glossary that the source has, and where the translation has them.
        missing_shards: The shards of a memory, from 1, that some step of the search had no answer of.
    """

    tokens: list[int]
    score: float
    cut: bool = False
    skipped: tuple[int, ...] = ()
    evidence: Evidence | None = None
    terms: tuple[TermUse, ...] = ()
    missing_shards: tuple[int, ...] = ()


def mark_missing(hypotheses: list[Hypothesis], missing: Collection[int]) -> list[Hypothesis]:
    """Flag hypotheses that were found without the answers of some shards.

    Args:
        hypotheses: The hypotheses of a sentence.
        missing: The numbers of the shards.

    Returns:
        The flagged hypotheses; the list itself where all shards answered.
    """
    if not missing:
        return hypotheses
    return [one._replace(missing_shards=tuple(sorted(missing))) for one in hypotheses]


def missing_shards(parts: Iterable[Sequence[Hypothesis]]) -> tuple[int, ...]:
    """Return the shards that the translation of a text was made without at some step.

    Args:
        parts: The hypotheses of each piece of the text.
    """
    return tuple(sorted({number for hypotheses in parts for number in hypotheses[0].missing_shards}))


class Rules(NamedTuple):
    """The settings of a search with a given model; see `SearchSettings`.

    Attributes:
        beam: The number of hypotheses of a sentence.
        n_best: The number of translations to return for a sentence.
        length_penalty: The exponent of the length by which scores are divided.
        eos: The token that ends a translation.
        force_end: Whether the end of sentence is forced at the limit.
        given: How many tokens before the translation count in its length.
        retrieval_margin: How far below the best one's the score of a hypothesis may be for retrieval.
    """

    beam: int
    n_best: int
    length_penalty: float
    eos: int
    force_end: bool
    given: int
    retrieval_margin: float = math.inf


class Beams:
    """The hypotheses of the sentences that are not finished; finished sentences leave the batch.

    Args:
        rules: The settings of the search.
        limits: The most tokens of each sentence's translation, its end included.
        device: The device of all tensors.
    """

    def __init__(self, rules: Rules, limits: Sequence[int], device: torch.device) -> None:
        count, beam = len(limits), rules.beam
        self._rules = rules
        self._limits = torch.tensor(limits, device=device)
        self._soonest = min(limits)
        self._sentences = torch.arange(count, device=device)
        self._rows = torch.arange(count, device=device)[:, None] * beam
        self._scores = torch.full((count, beam), NEVER, device=device)
        self._scores[:, 0] = 0.0
        self._ended_scores = torch.full((count, beam), NEVER, device=device)
        # Of each finished hypothesis: its last step, the hypothesis that it extends, and its last token.
        self._ends = torch.zeros(count, beam, 3, dtype=torch.long, device=device)
        self._parents = torch.zeros(max(limits), count, beam, dtype=torch.long, device=device)
        self._tokens = torch.zeros(max(limits), count, beam, dtype=torch.long, device=device)
        self._skipped = torch.zeros(max(limits), count, beam, dtype=torch.bool, device=device)
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
        """The best hypotheses of each finished sentence, best first."""
        return self._results

    def at_limit(self) -> Tensor | None:
        """Return which sentences [open] take their last token in this step; None where none does."""
        return None if self.length < self._soonest else self.length >= self._limits

    def mask_lagging(self, states: Tensor) -> Tensor:
        """Set the states [rows, d] of hypotheses beyond the retrieval margin to NaN, and note them as skipped.

        Args:
            states: Decoder states [rows, d] of the running hypotheses.

        Returns:
            The masked states; the given tensor itself where there is no limit.
        """
        if self._rules.retrieval_margin == math.inf:
            return states
        lagging = find_lagging(self._scores, self._rules.retrieval_margin)
        self._skipped[self.length - 1, self._sentences] = lagging
        return states.masked_fill(lagging.view(-1, 1), torch.nan)

    def advance(self, candidates: Candidates) -> Tensor | None:
        """Extend all hypotheses by their best candidates.

        Args:
            candidates: The candidates of every hypothesis, [open * beam, m].

        Returns:
            The row that each new hypothesis extends, [open * beam]; None when all sentences are finished.
        """
        last = self.at_limit()
        extensions = extend(candidates, self._scores, self._rules, last)
        self._ended_scores, self._ends = finish(
            extensions, self._ended_scores, self._ends, self._rules, self.length - 1, self._normalise(extensions.scores)
        )
        running = select_running(extensions, self._rules)
        self._scores, self._last = running.scores, running.tokens
        self._parents[self.length - 1, self._sentences] = running.parents
        self._tokens[self.length - 1, self._sentences] = running.tokens
        done = cannot_improve(self._ended_scores, self._normalise(self._scores), self._rules)
        if last is not None:
            done = done | last
        rows = self._rows[: len(done)] + running.parents
        self.length += 1
        if not bool(done.any()):
            return rows.view(-1)
        self._close(done)
        return self._keep(~done, rows)

    def _normalise(self, scores: Tensor) -> Tensor:
        divisor: float = (self.length + self._rules.given) ** self._rules.length_penalty
        return scores / divisor

    def _close(self, done: Tensor) -> None:
        """Collect the finished hypotheses of some sentences."""
        sentences = self._sentences[done]
        chain = Chain(*(part[: self.length - 1, sentences] for part in (self._parents, self._tokens, self._skipped)))
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
        """Remove finished sentences from the batch."""
        if not bool(open_.any()):
            return None
        self._sentences, self._limits = self._sentences[open_], self._limits[open_]
        self._soonest = int(self._limits.min())
        self._scores, self._last = self._scores[open_], self._last[open_]
        self._ended_scores, self._ends = self._ended_scores[open_], self._ends[open_]
        return rows[open_].view(-1)


class Extensions(NamedTuple):
    """The best extensions of the hypotheses of each sentence, best first; all fields [n, m].

    Attributes:
        scores: Sums of log-probabilities.
        parents: The place in the beam of the hypothesis that is extended.
        tokens: The token that extends it.
        ends: Whether the hypothesis ends with this token.
    """

    scores: Tensor
    parents: Tensor
    tokens: Tensor
    ends: Tensor


def extend(candidates: Candidates, scores: Tensor, rules: Rules, last: Tensor | None) -> Extensions:
    """Find the 2 * beam best extensions of the hypotheses of each sentence.

    Args:
        candidates: The candidates of every hypothesis, [n * beam, m].
        scores: The log-probabilities of the hypotheses, [n, beam].
        rules: The settings of the search.
        last: Which sentences are at their limit, [n]; None for none.
    """
    count, beam = scores.shape
    width = candidates.tokens.shape[1]
    total = (scores.view(-1, 1) + candidates.log_probs).view(count, beam * width)
    best, places = total.topk(min(2 * beam, beam * width), dim=1)
    tokens = candidates.tokens.view(count, beam * width).gather(1, places)
    ends = tokens.eq(rules.eos)
    return Extensions(
        best,
        places.div(width, rounding_mode="floor"),
        tokens,
        ends if last is None else ends | last[:, None],
    )


def finish(
    extensions: Extensions, ended_scores: Tensor, ends: Tensor, rules: Rules, step: Tensor | int, normalised: Tensor
) -> tuple[Tensor, Tensor]:
    """Merge the extensions that end, among the best `beam` ones, into the best finished hypotheses.

    Args:
        extensions: The extensions.
        ended_scores: Normalised scores of the finished hypotheses, [n, beam].
        ends: Last step, parent and last token of the finished hypotheses, [n, beam, 3].
        rules: The settings of the search.
        step: The number of this step.
        normalised: Normalised scores of the extensions, [n, m].

    Returns:
        New `ended_scores` and `ends`.
    """
    beam = rules.beam
    # An extension of a placeholder is no hypothesis, however the length scales its score.
    allowed = extensions.ends[:, :beam] & (extensions.scores[:, :beam] > NEVER / 2)
    pool = torch.cat([ended_scores, normalised[:, :beam] + ~allowed * NEVER], dim=1)
    now = torch.zeros_like(extensions.tokens) + step
    places = torch.stack([now, extensions.parents, extensions.tokens], dim=2)[:, :beam]
    best, order = pool.topk(beam, dim=1)
    return best, torch.cat([ends, places], dim=1).gather(1, order[:, :, None].expand(-1, -1, 3))


def select_running(extensions: Extensions, rules: Rules) -> Extensions:
    """Return the `beam` best extensions that do not end.

    Args:
        extensions: The best extensions [n, m]; those that end get the lowest scores.
        rules: The rules of the search.

    Returns:
        Extensions [n, beam], best first.
    """
    scores, order = (extensions.scores + extensions.ends * NEVER).topk(rules.beam, dim=1)
    return Extensions(*(scores if column is extensions.scores else column.gather(1, order) for column in extensions))


def cannot_improve(ended_scores: Tensor, normalised: Tensor, rules: Rules) -> Tensor:
    """Return the sentences [n] whose running hypotheses can no longer replace a finished one.

    Args:
        ended_scores: [n, beam] length-normalised scores of the finished hypotheses, best first.
        normalised: [n, beam] length-normalised scores of the running hypotheses, best first.
        rules: The rules of the search.
    """
    worst = ended_scores[:, -1]
    full = worst > NEVER / 2
    return full if rules.beam == 1 else full & (normalised[:, 0] <= worst)


class Chain(NamedTuple):
    """The steps of all hypotheses: tensors [steps, n, beam], or lists [steps][beam] for one sentence.

    Attributes:
        parents: The place in the beam of the hypothesis that each one extends.
        tokens: The token by which it extends that hypothesis.
        skipped: Whether retrieval was skipped for the hypothesis at this place, before it was extended.
    """

    parents: Any
    tokens: Any
    skipped: Any


def collect(chain: Chain, scores: Tensor, ends: Tensor, limits: Tensor, rules: Rules) -> list[list[Hypothesis]]:
    """Collect the n best finished hypotheses of each sentence, best first.

    Args:
        chain: The steps of all hypotheses.
        scores: Normalised scores of the finished hypotheses, [n, beam].
        ends: Last step, parent and last token of the finished hypotheses, [n, beam, 3].
        limits: The limits of the sentences, [n].
        rules: The settings of the search.
    """
    chains = zip(*(part.transpose(0, 1).tolist() for part in chain), strict=True)
    rows = zip(chains, scores.tolist(), ends.tolist(), limits.tolist(), strict=True)
    results = []
    for of_sentence, scores_of, ends_of, limit in rows:
        links = Chain(*of_sentence)
        finished = zip(scores_of[: rules.n_best], ends_of[: rules.n_best], strict=True)
        found = [_trace_back(links, end, score, limit, rules) for score, end in finished if score > NEVER / 2]
        # Without a finished hypothesis the translation is empty.
        results.append(found or [Hypothesis([], scores_of[0])])
    return results


def _trace_back(chain: Chain, end: list[int], score: float, limit: int, rules: Rules) -> Hypothesis:
    """Collect a hypothesis of one sentence from its end to its beginning."""
    step, place, last = end
    tokens = [] if last == rules.eos else [last]
    skipped = [step] if chain.skipped[step][place] else []
    for earlier in range(step - 1, -1, -1):
        tokens.append(chain.tokens[earlier][place])
        place = chain.parents[earlier][place]
        if chain.skipped[earlier][place]:
            skipped.append(earlier)
    cut = last != rules.eos or (rules.force_end and step + 1 >= limit)
    return Hypothesis(tokens[::-1], score, cut, tuple(skipped[::-1]))


def force_tokens(candidates: Candidates, rows: Tensor, tokens: Tensor, log_probs: Tensor) -> Candidates:
    """Replace the candidates of some rows by one token.

    Args:
        candidates: The candidates, [r, m].
        rows: The rows to change, bool [r].
        tokens: The token of each row, [r].
        log_probs: Its log-probability, [r].
    """
    only = torch.full_like(candidates.log_probs, -torch.inf)
    only[:, 0] = log_probs
    forced = torch.where(rows[:, None], only, candidates.log_probs)
    chosen = torch.where(rows[:, None], tokens[:, None], candidates.tokens)
    return Candidates(forced, chosen, candidates.normalisers)


class NativeBeamState:
    """The hypotheses of the open sentences; see `Beams`.

    Args:
        rules: The rules of the search.
        limits: The most tokens of each sentence's translation, its end included.
    """

    def __init__(self, rules: Rules, limits: Sequence[int]) -> None:
        self._rules = rules
        self._limits = torch.tensor(limits)
        self._soonest = min(limits)
        self.native = NativeBeams(limits, beam=rules.beam, eos=rules.eos, force_end=rules.force_end)
        self._last = torch.empty(0, dtype=torch.long)
        self.length = 1

    @property
    def sentences(self) -> Tensor:
        """The numbers of the open sentences [open]."""
        return self.native.numbers()

    @property
    def last_tokens(self) -> Tensor:
        """The newest token of each running hypothesis [rows, 1]."""
        return self._last.view(-1, 1)

    @property
    def results(self) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence, best first, once all are finished."""
        return [[Hypothesis(*one) for one in best] for best in self.native.results(self._rules.n_best)]

    def at_limit(self) -> Tensor | None:
        """Return which sentences [open] take their last token now; None where none does."""
        return None if self.length < self._soonest else self.length >= self._limits[self.sentences]

    def mask_lagging(self, states: Tensor) -> Tensor:
        """Return the states [rows, d], NaN for hypotheses below the retrieval margin.

        Args:
            states: Decoder states [rows, d] of the running hypotheses.
        """
        margin = self._rules.retrieval_margin
        if margin == math.inf:
            return states
        return states.masked_fill(self.native.mask_lagging(margin).view(-1, 1), math.nan)

    def advance(self, candidates: Candidates) -> Tensor | None:
        """Extend all hypotheses by one of their candidates.

        Args:
            candidates: The best next tokens of each running hypothesis.

        Returns:
            The rows that continue; None when all sentences are finished.
        """
        divisor: float = (self.length + self._rules.given) ** self._rules.length_penalty
        before = self.native.open
        rows, self._last = self.native.advance(candidates.log_probs, candidates.tokens, divisor)
        self.length += 1
        if not self.native.open:
            return None
        if self.native.open < before:
            self._soonest = int(self._limits[self.sentences].min())
        return rows


def begin_beams(rules: Rules, limits: Sequence[int], device: torch.device) -> Beams | NativeBeamState:
    """Make the empty hypotheses of sentences with these limits, in native code where the device is a CPU.

    Args:
        rules: The rules of the search.
        limits: The most tokens of each sentence's translation, its end included.
        device: Device of the search.
    """
    if device.type == "cpu" and native() is not None:
        return NativeBeamState(rules, limits)
    return Beams(rules, limits, device)
