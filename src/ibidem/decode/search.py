"""Batched beam search. Without a memory it gives token for token what `generate()` gives in transformers, for the
beam, length penalty, limits and prefix set here and with early stopping off; other generation settings are not read.

Like there, a hypothesis scores its log-probability divided by length ** length_penalty, and a sentence is done
when its best running hypothesis, scored at its present length, cannot replace the worst of `beam` finished ones.
With beam 1 the search is greedy: it ends at the first end of sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.decode.scoring import Scorer
    from ibidem.model import BaseModel

_NEVER = -1.0e9


@dataclass(frozen=True)
class SearchSettings:
    """How to search; a translation has at most ratio * source tokens + extra tokens, its end included."""

    beam: int = 4
    length_penalty: float = 1.0
    max_length_ratio: float = 2.0
    max_length_extra: int = 30
    n_best: int = 1

    def __post_init__(self) -> None:
        if self.beam < 1 or not 1 <= self.n_best <= self.beam:
            raise UsageError(
                f"beam = {self.beam} with n-best = {self.n_best} cannot be searched: "
                "the beam is at least 1, and n-best lies between 1 and the beam."
            )

    def limit(self, source_length: int, longest: int) -> int:
        """The most tokens a translation may have, the end of sentence included."""
        return max(1, min(int(self.max_length_ratio * source_length) + self.max_length_extra, longest))


class Hypothesis(NamedTuple):
    """A translation: its tokens without prompt and end of sentence, and its length-normalised log-probability.

    cut: the limit on its length ended it. Its end of sentence was then certain, or is missing, as the model has it.
    """

    tokens: list[int]
    score: float
    cut: bool = False


def beam_search(
    model: BaseModel,
    sources: Sequence[Sequence[int]],
    settings: SearchSettings,
    scorer: Scorer,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """The n best translations of each source, best first; a prefix's tokens are forced at the start."""
    if not sources:
        return []
    limits = [settings.limit(len(ids), model.tokens.longest_target) for ids in sources]
    if prefixes is not None:
        longest = model.tokens.longest_target
        if any(len(prefix) >= longest for prefix in prefixes):
            raise UsageError(f"A prefix is too long for the model: give at most {longest - 1} tokens.")
        limits = [min(limit + len(prefix), longest) for limit, prefix in zip(limits, prefixes, strict=True)]
    search = _Search(model, settings, limits, prefixes)
    decoding = model.start(sources, settings.beam)
    tokens = torch.tensor(model.tokens.start, device=model.device).expand(len(sources) * settings.beam, -1)
    while True:
        rows = search.advance(scorer(decoding.step(tokens)))
        if rows is None:
            return search.results()
        decoding.reorder(rows)
        tokens = search.last_tokens()


class _Search:
    """Running and finished hypotheses of the sentences that are still open; closed ones leave the batch."""

    def __init__(
        self,
        model: BaseModel,
        settings: SearchSettings,
        limits: Sequence[int],
        prefixes: Sequence[Sequence[int]] | None,
    ) -> None:
        count, beam, device = len(limits), settings.beam, model.device
        self._settings = settings
        self._eos = model.tokens.eos
        self._force_end = model.forces_eos
        # Tokens forced after the decoder's start token count as part of the translation, as in `generate()`.
        self._given = len(model.tokens.start) - 1
        self._banned = torch.tensor(model.banned, device=device, dtype=torch.long)
        self._limits = torch.tensor(limits, device=device)
        self._prefixes = _pad_prefixes(prefixes, device)
        self._sentences = torch.arange(count, device=device)
        self._scores = torch.full((count, beam), _NEVER, device=device)
        self._scores[:, 0] = 0.0
        self._running = torch.empty((count, beam, 0), dtype=torch.long, device=device)
        self._ended_scores = torch.full((count, beam), _NEVER, device=device)
        self._ended = torch.empty((count, beam, 0), dtype=torch.long, device=device)
        self._results: list[list[Hypothesis]] = [[] for _ in limits]

    def last_tokens(self) -> Tensor:
        return self._running[:, :, -1].reshape(-1, 1)

    def results(self) -> list[list[Hypothesis]]:
        return self._results

    def advance(self, log_probs: Tensor) -> Tensor | None:
        """Extend all hypotheses by one token; the rows to go on with, None when every sentence is done."""
        length = self._running.shape[2] + 1
        count, beam = self._scores.shape
        log_probs = self._constrain(log_probs, length)
        vocabulary = log_probs.shape[1]
        total = (self._scores.view(-1, 1) + log_probs).view(count, beam * vocabulary)
        scores, flat = total.topk(2 * beam, dim=1)
        parents = flat.div(vocabulary, rounding_mode="floor")
        tokens = flat % vocabulary
        candidates = torch.cat([_pick(self._running, parents), tokens[:, :, None]], dim=2)
        at_limit = length >= self._limits
        ends = tokens.eq(self._eos) | at_limit[:, None]

        self._finish(candidates, scores, ends, length)
        self._scores, order = (scores + ends * _NEVER).topk(beam, dim=1)
        self._running = _pick(candidates, order)
        parents = parents.gather(1, order)
        rows = torch.arange(count, device=parents.device)[:, None] * beam + parents

        open_ = ~(at_limit | self._hopeless(length))
        if bool(open_.all()):
            return rows.view(-1)
        self._close(~open_)
        return self._keep(open_, rows)

    def _constrain(self, log_probs: Tensor, length: int) -> Tensor:
        """Apply the model's banned tokens, the end at the limit, and the prefixes."""
        if len(self._banned):
            log_probs = log_probs.index_fill(1, self._banned, -torch.inf)
        beam = self._settings.beam
        if self._force_end and bool((length >= self._limits).any()):
            last = (length >= self._limits).repeat_interleave(beam)
            log_probs = _force(log_probs, last, torch.full_like(last, self._eos, dtype=torch.long), keep=False)
        if self._prefixes is not None and length <= self._prefixes.shape[1]:
            forced = self._prefixes[self._sentences, length - 1].repeat_interleave(beam)
            log_probs = _force(log_probs, forced >= 0, forced.clamp_min(0), keep=True)
        return log_probs

    def _finish(self, candidates: Tensor, scores: Tensor, ends: Tensor, length: int) -> None:
        """Merge the candidates that ended, among the best `beam` ones, into the best finished hypotheses."""
        beam = self._settings.beam
        # What grew from a placeholder is no hypothesis, however its length scales the score.
        allowed = ends[:, :beam] & (scores[:, :beam] > _NEVER / 2)
        normalised = scores[:, :beam] / (length + self._given) ** self._settings.length_penalty
        pool = torch.cat([self._ended_scores, normalised + ~allowed * _NEVER], dim=1)
        padded = torch.nn.functional.pad(self._ended, (0, 1), value=self._eos)
        texts = torch.cat([padded, candidates[:, :beam]], dim=1)
        self._ended_scores, order = pool.topk(beam, dim=1)
        self._ended = _pick(texts, order)

    def _hopeless(self, length: int) -> Tensor:
        """Sentences whose running hypotheses cannot get among the finished ones any more [count]."""
        worst = self._ended_scores[:, -1]
        full = worst > _NEVER / 2
        if self._settings.beam == 1:
            return full
        best: Tensor = self._scores[:, 0] / (length + self._given) ** self._settings.length_penalty
        return full & (best <= worst)

    def _close(self, done: Tensor) -> None:
        """Move finished sentences to the results."""
        wanted = self._settings.n_best
        scores = self._ended_scores[done, :wanted].tolist()
        texts = self._ended[done, :wanted].tolist()
        numbers, limits = self._sentences[done].tolist(), self._limits[done].tolist()
        for sentence, limit, found, sequences in zip(numbers, limits, scores, texts, strict=True):
            self._results[sentence] = [
                self._hypothesis(tokens, score, limit)
                for tokens, score in zip(sequences, found, strict=True)
                if score > _NEVER / 2
            ] or [self._hypothesis(sequences[0], found[0], limit)]

    def _hypothesis(self, tokens: list[int], score: float, limit: int) -> Hypothesis:
        """A hypothesis without its end of sentence and what pads it after that."""
        if self._eos not in tokens:
            return Hypothesis(tokens, score, cut=True)
        end = tokens.index(self._eos)
        return Hypothesis(tokens[:end], score, cut=self._force_end and end + 1 >= limit)

    def _keep(self, open_: Tensor, rows: Tensor) -> Tensor | None:
        """Let closed sentences leave the batch."""
        if not bool(open_.any()):
            return None
        self._sentences, self._limits = self._sentences[open_], self._limits[open_]
        self._scores, self._running = self._scores[open_], self._running[open_]
        self._ended_scores, self._ended = self._ended_scores[open_], self._ended[open_]
        return rows[open_].view(-1)


def _pick(items: Tensor, order: Tensor) -> Tensor:
    """Rows of items [n, m, t] by order [n, b]: [n, b, t]."""
    return items.gather(1, order[:, :, None].expand(-1, -1, items.shape[2]))


def _force(log_probs: Tensor, rows: Tensor, tokens: Tensor, *, keep: bool) -> Tensor:
    """In the given rows only the given token is possible, at its own log-probability or (keep=False) for certain."""
    chosen = log_probs.gather(1, tokens[:, None])
    only = torch.full_like(log_probs, -torch.inf).scatter_(
        1, tokens[:, None], chosen if keep else torch.zeros_like(chosen)
    )
    return torch.where(rows[:, None], only, log_probs)


def _pad_prefixes(prefixes: Sequence[Sequence[int]] | None, device: torch.device) -> Tensor | None:
    """Prefixes as [n, longest] with -1 behind each."""
    if prefixes is None or not any(prefixes):
        return None
    longest = max(len(prefix) for prefix in prefixes)
    return torch.tensor([[*prefix, *[-1] * (longest - len(prefix))] for prefix in prefixes], device=device)
