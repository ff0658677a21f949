"""Beam search whose translations must contain given terms, each in one of several forms.

Hypotheses are kept in banks, as in grid beam search: one for each number of terms that are complete and each number of
tokens of a term that is begun. Each bank keeps its best hypotheses, so that one that paid the cost of a term does not
compete with one that has not. A hypothesis may begin any form of a missing term after any token, and then completes it.
It can end only when no term is begun.

A sentence is searched alone, so that its result does not depend on a batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ibidem.combine import Sources, StepContext, mix
from ibidem.decode.beam_search import SearchSettings, never_stop
from ibidem.decode.beams import Hypothesis

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ibidem.decode.beam_search import Check
    from ibidem.decode.scorer import Scorer
    from ibidem.model import BaseModel, Step

# The most hypotheses of a sentence; more banks than this get fewer hypotheses each.
_MAX_ROWS = 96
# The translation has at most this many tokens more than the one without terms, beside the tokens of the terms.
_EXTRA_TOKENS = 8
# Added to a form that is begun where the replaced word was in the translation without terms.
_ANCHOR_BONUS = 4.0
_SENTENCE_ENDS = (".", "!", "?", ":", "…")
_OPENING = ('"', "'", "(", "[", "{", "„", "“", "‘", "‚", "«", "»", "-", "–", "/")


class Form(NamedTuple):
    """A form of a term as tokens, and where it fits.

    Attributes:
        tokens: The tokens, at least one.
        bias: Added to the log-probability where hypotheses are compared.
        attached: Whether the form continues the text without a space; it then follows an opening quotation mark only.
        at_start: Whether it may begin a sentence.
        inside: Whether it may follow other words.
        not_after: Tokens that it must not follow, such as the wrong article.
        anchor: The beginning of a translation after which the form is expected; None if unknown.
    """

    tokens: tuple[int, ...]
    bias: float = 0.0
    attached: bool = False
    at_start: bool = True
    inside: bool = True
    not_after: frozenset[int] = frozenset()
    anchor: tuple[int, ...] | None = None


class Constraints(NamedTuple):
    """What a translation must contain.

    Attributes:
        terms: The forms of each term, of which the translation must contain one; a term that it needs twice is there
            twice.
        penalties: Added to the log-probabilities of tokens where hypotheses are compared; for words that the terms
            replace.
    """

    terms: Sequence[Sequence[Form]]
    penalties: Mapping[int, float] = {}


@dataclass(frozen=True)
class _Running:
    """A hypothesis that has not ended.

    Attributes:
        row: Its row in the decoding.
        tokens: Its tokens.
        log_prob: Its log-probability.
        term_log_prob: The part of it that the tokens of terms have.
        bias: What is added where hypotheses are compared.
        met: A bit for each complete term.
        rest: The rest of the form that it has begun.
        term: The number of the term that it has begun.
        begun: How many tokens of the form it has.
        after_term: Whether its last token completed a term.
    """

    row: int
    tokens: tuple[int, ...] = ()
    log_prob: float = 0.0
    term_log_prob: float = 0.0
    bias: float = 0.0
    met: int = 0
    rest: tuple[int, ...] = ()
    term: int = -1
    begun: int = 0
    after_term: bool = False

    @property
    def bank(self) -> tuple[int, int]:
        """The number of complete terms, and of tokens of the term that is begun."""
        return self.met.bit_count(), self.begun

    @property
    def rank(self) -> float:
        """The score by which hypotheses of equal length are compared."""
        return self.log_prob + self.bias

    def extend(self, token: int, log_prob: float, bias: float = 0.0) -> _Running:
        """Return the hypothesis with a token of no term."""
        return replace(
            self,
            tokens=(*self.tokens, token),
            log_prob=self.log_prob + log_prob,
            bias=self.bias + bias,
            after_term=False,
        )

    def extend_term(self, term: int, rest: tuple[int, ...], log_prob: float, bias: float = 0.0) -> _Running:
        """Return the hypothesis with the next token of a form."""
        complete = len(rest) == 1
        return replace(
            self,
            tokens=(*self.tokens, rest[0]),
            log_prob=self.log_prob + log_prob,
            term_log_prob=self.term_log_prob + log_prob,
            bias=self.bias + bias,
            met=self.met | (1 << term) if complete else self.met,
            rest=rest[1:],
            term=-1 if complete else term,
            begun=0 if complete else self.begun + 1,
            after_term=complete,
        )


class ConstrainedSearcher:
    """Searches translations that contain terms, with one model.

    Args:
        model: The base model.
    """

    def __init__(self, model: BaseModel) -> None:
        self._model = model

    @cached_property
    def _pieces(self) -> list[str]:
        """The text of every token."""
        return [piece or "" for piece in self._model.tokens.show(range(self._model.vocabulary_size))]

    @cached_property
    def _marker(self) -> str | None:
        """The mark of a token that begins a word; None for tokenizers without one."""
        for marker in ("▁", "Ġ"):
            if sum(piece.startswith(marker) for piece in self._pieces) > 1:
                return marker
        return None

    @cached_property
    def _inside_word(self) -> Tensor:
        """Which tokens continue a word, bool [V]; none for tokenizers that do not mark the beginning of words."""
        marker = self._marker
        inside = [
            marker is not None and not piece.startswith(marker) and (piece[:1].isalnum() or piece.startswith("<0x"))
            for piece in self._pieces
        ]
        return torch.tensor(inside, device=self._model.device)

    @cached_property
    def _opening(self) -> frozenset[int]:
        """The tokens after which a word follows without a space."""
        return frozenset(number for number, piece in enumerate(self._pieces) if piece.endswith(_OPENING))

    @cached_property
    def _sentence_ends(self) -> frozenset[int]:
        """The tokens after which a sentence may begin."""
        return frozenset(number for number, piece in enumerate(self._pieces) if piece.endswith(_SENTENCE_ENDS))

    def encode(self, form: str) -> list[Form]:
        """Encode a form of a term: at the beginning of a word, and after an opening quotation mark.

        Args:
            form: The form as text.

        Returns:
            The encodings; none where the model does not have the characters.
        """
        tokens = self._model.tokens
        alone, quoted, mark = (ids[:-1] for ids in tokens.encode_targets([form, f'"{form}', '"']))
        found = [Form(tuple(alone))]
        if self._marker is not None and quoted[: len(mark)] == mark:
            found.append(Form(tuple(quoted[len(mark) :]), attached=True))
        unknown = set(tokens.special_ids())
        return [one for one in found if one.tokens and not unknown.intersection(one.tokens)]

    @torch.inference_mode()
    def __call__(
        self,
        source: Sequence[int],
        constraints: Constraints,
        usual_length: int,
        settings: SearchSettings,
        scorer: Scorer,
        prefix: Sequence[int] = (),
        check: Check = never_stop,
    ) -> list[Hypothesis]:
        """Find translations of a source that contain terms.

        Args:
            source: The token ids of the source.
            constraints: The terms, at least one.
            usual_length: The number of tokens of the best translation without constraints.
            settings: The settings of the search.
            scorer: Retrieves and weights neighbours.
            prefix: Token ids that the translation is forced to begin with.
            check: Called before every step; an exception that it raises ends the search.

        Returns:
            Translations with as many of the terms as possible, best first, at most `settings.beam`; none where none
            ended within the limit of the length.
        """
        search = _Search(self, self._model, source, constraints, usual_length, settings, scorer, tuple(prefix))
        check()
        while search.step():
            check()
        return search.results()

    def end_words(self, log_probs: Tensor, rows: list[int]) -> None:
        """Exclude, in some rows of log-probabilities [rows, V], the tokens that continue a word."""
        if rows and self._marker is not None:
            log_probs[rows] = log_probs[rows].masked_fill(self._inside_word, -torch.inf)

    def may_follow(self, form: Form, tokens: Sequence[int]) -> bool:
        """Return whether a form may follow these tokens."""
        last = tokens[-1] if tokens else None
        if last in form.not_after or form.attached != (last in self._opening and self._marker is not None):
            return False
        is_start = last is None or last in self._sentence_ends
        return (form.at_start and is_start) or (form.inside and last is not None)


class _Search:
    """The constrained search of one sentence."""

    def __init__(
        self,
        searcher: ConstrainedSearcher,
        model: BaseModel,
        source: Sequence[int],
        constraints: Constraints,
        usual_length: int,
        settings: SearchSettings,
        scorer: Scorer,
        prefix: tuple[int, ...],
    ) -> None:
        self._searcher, self._model, self._scorer, self._settings = searcher, model, scorer, settings
        self._terms, self._penalties, self._prefix = constraints.terms, constraints.penalties, prefix
        longest = [max((len(form.tokens) for form in forms), default=0) for forms in self._terms]
        # A free bank for each number of terms, and banks for begun terms where one is missing.
        banks = len(self._terms) * max(1, *longest) + 1
        self._width = max(1, min(settings.beam, _MAX_ROWS // banks))
        self._rows = min(_MAX_ROWS, banks * self._width)
        self._usual = usual_length + 1
        wanted = self._usual + self._usual // 2 + sum(longest) + _EXTRA_TOKENS
        longest_target = model.tokens.max_target_length
        self._limit = min(wanted, settings.limit(len(source), longest_target) + len(prefix), longest_target)
        self._decoding = model.start([source], self._rows)
        self._sources = Sources(self._decoding.source_means)
        self._banned = torch.tensor(model.banned, device=model.device) if model.banned else None
        self._fed = torch.tensor(model.tokens.start, device=model.device).expand(self._rows, -1)
        self._running = [_Running(0)]
        self._ended: dict[int, list[tuple[float, Hypothesis]]] = {}
        self._least_cost = -math.inf
        self._length = 0

    def step(self) -> bool:
        """Extend all hypotheses by a token; return whether the search goes on."""
        self._length += 1
        log_probs = self._log_probs(self._decoding.step(self._fed))
        if self._length <= len(self._prefix):
            token = self._prefix[self._length - 1]
            extended = [one.extend(token, float(log_probs[n, token])) for n, one in enumerate(self._running)]
        else:
            extended = self._extend(log_probs)
        self._running = self._select(extended)
        if not self._running or self._length >= self._limit or self._is_finished():
            return False
        rows = [one.row for one in self._running]
        device = self._model.device
        padding = self._rows - len(rows)
        self._decoding.reorder(torch.tensor([*rows, *[rows[0]] * padding], device=device))
        tokens = [one.tokens[-1] for one in self._running]
        self._fed = torch.tensor([*tokens, *[tokens[0]] * padding], device=device)[:, None]
        self._running = [replace(one, row=row) for row, one in enumerate(self._running)]
        return True

    def results(self) -> list[Hypothesis]:
        """Return the ended hypotheses with most terms, best first."""
        if not self._ended:
            return []
        best = self._ended[max(self._ended)]
        return [hypothesis for _, hypothesis in sorted(best, key=lambda pair: -pair[0])[: self._settings.beam]]

    def _log_probs(self, step: Step) -> Tensor:
        """Return the log-probabilities of the mixture [running, V]."""
        count = len(self._running)
        states, logits = step.states[:count], step.logits[:count]
        rows = torch.zeros(count, dtype=torch.long, device=states.device)
        retrieved = self._scorer.retrieve(states, 1, StepContext(logits, self._sources, rows, self._banned))
        mixed = mix(logits.float().log_softmax(dim=1), retrieved.weights, retrieved.values)
        if self._banned is not None:
            mixed.index_fill_(1, self._banned, -torch.inf)
        return mixed

    def _extend(self, log_probs: Tensor) -> list[_Running]:
        """Return all extensions of the running hypotheses, and keep those that end."""
        self._searcher.end_words(log_probs, [row for row, one in enumerate(self._running) if one.after_term])
        eos = self._model.tokens.eos
        ends = log_probs[:, eos].tolist()
        best = log_probs.topk(min(2 * self._width, log_probs.shape[1]), dim=1)
        best_scores, best_tokens = best.values.tolist(), best.indices.tolist()
        wanted = [self._next_forms(one) for one in self._running]
        scores = iter(_gather(log_probs, [(row, rest[0]) for row, forms in enumerate(wanted) for rest in forms]))
        extended: list[_Running] = []
        for row, (one, forms) in enumerate(zip(self._running, wanted, strict=True)):
            extended += (one.extend_term(term, rest, next(scores), bias) for rest, (term, bias) in forms.items())
            if one.rest:
                continue
            self._end(one, ends[row])
            extended += (
                one.extend(token, score, self._penalties.get(token, 0.0))
                for token, score in zip(best_tokens[row], best_scores[row], strict=True)
                if token != eos
            )
        return [one for one in extended if one.log_prob > -math.inf]

    def _next_forms(self, one: _Running) -> dict[tuple[int, ...], tuple[int, float]]:
        """Return the forms of which a hypothesis may take the next token, each with its term and its bias."""
        if one.rest:
            return {one.rest: (one.term, 0.0)}
        found: dict[tuple[int, ...], tuple[int, float]] = {}
        for number, forms in enumerate(self._terms):
            if one.met >> number & 1:
                continue
            for form in forms:
                if self._searcher.may_follow(form, one.tokens):
                    bias = form.bias + (_ANCHOR_BONUS if one.tokens == form.anchor else 0.0)
                    if form.tokens not in found or bias > found[form.tokens][1]:
                        found[form.tokens] = (number, bias)
        return found

    def _end(self, one: _Running, log_prob: float) -> None:
        if log_prob == -math.inf:
            return
        total = one.log_prob + log_prob
        divisor = self._normalise(self._length)
        hypothesis = Hypothesis(list(one.tokens), total / divisor)
        ended = self._ended.setdefault(one.met.bit_count(), [])
        ended.append((self._rank(total, one), hypothesis))
        if one.met.bit_count() == len(self._terms):
            self._least_cost = max(self._least_cost, one.term_log_prob + one.bias)
        ended.sort(key=lambda pair: -pair[0])
        del ended[self._settings.beam :]

    def _normalise(self, length: int) -> float:
        divisor: float = (length + len(self._model.tokens.start) - 1) ** self._settings.length_penalty
        return divisor

    def _rank(self, log_prob: float, one: _Running) -> float:
        """Return the score by which hypotheses are compared, with their log-probability so far.

        The cost of the terms and the bias are divided by the usual length. Divided by the length of the hypothesis,
        they would make longer hypotheses better.
        """
        rest = (log_prob - one.term_log_prob) / self._normalise(self._length)
        return rest + (one.term_log_prob + one.bias) / self._normalise(self._usual)

    def _select(self, extended: list[_Running]) -> list[_Running]:
        """Return the best hypotheses of each bank."""
        banks: dict[tuple[int, int], list[_Running]] = {}
        seen: set[tuple[tuple[int, ...], int, tuple[int, ...]]] = set()
        for one in sorted(extended, key=lambda one: -one.rank):
            bank = banks.setdefault(one.bank, [])
            key = (one.tokens, one.met, one.rest)
            if len(bank) < self._width and key not in seen:
                seen.add(key)
                bank.append(one)
        # Where there are more banks than rows, the best of every bank come first; banks with more terms before others.
        ranked = [(rank, -bank[0], one) for bank, kept in banks.items() for rank, one in enumerate(kept)]
        ranked.sort(key=lambda item: item[:2])
        return [one for _, _, one in ranked[: self._rows]]

    def _is_finished(self) -> bool:
        """Return whether no running hypothesis can be expected to replace the worst of the best ended ones."""
        ended = self._ended.get(len(self._terms), [])
        if len(ended) < self._width:
            return False
        worst = ended[self._width - 1][0]
        return all(self._rank(one.log_prob, one) + self._missing_cost(one) <= worst for one in self._running)

    def _missing_cost(self, one: _Running) -> float:
        """Estimate what the missing terms of a hypothesis will cost, from the cheapest ended hypothesis."""
        missing = len(self._terms) - one.met.bit_count()
        return self._least_cost * missing / len(self._terms) / self._normalise(self._usual)


def _gather(log_probs: Tensor, pairs: Sequence[tuple[int, int]]) -> list[float]:
    """Return the log-probabilities of (row, token) pairs."""
    if not pairs:
        return []
    places = torch.tensor(pairs, device=log_probs.device)
    found: list[float] = log_probs[places[:, 0], places[:, 1]].tolist()
    return found
