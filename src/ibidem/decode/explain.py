"""Explanations of translations: for every word and token, how base model and neighbours gave its probability.

For every token, probability = base_weight * base_probability + the sum of the `weight` of the neighbours with this
token; the base weight and all weights of neighbours sum to 1. The score of a part in the beam search is the sum of
its tokens' log-probabilities, divided by their number (with the tokens of a forced language tag) to the power of the
length penalty.

A translation is explained after it was found: its tokens are forced through the model once more, with the same scorer.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ibidem.combine import Sources, StepContext
from ibidem.decode.beam_search import never_stop
from ibidem.decode.scorer import pack_entries
from ibidem.native import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ibidem.decode.beam_search import Check
    from ibidem.decode.beams import Hypothesis
    from ibidem.decode.scorer import Retrieved, Scorer
    from ibidem.decode.text_splitter import TextLayout
    from ibidem.glossary import TermUse
    from ibidem.memory import Memory
    from ibidem.model import BaseModel, Spans, States


# The pieces that `force_evidence` forces through the model at once.
_FORCED_TOGETHER = 32


@dataclass(frozen=True)
class CitedPair:
    """A sentence pair of a memory that an explanation cites.

    Attributes:
        memory: The folder of the memory.
        id: The id of the pair in the memory.
        source: The source sentence.
        target: The target sentence.
        origin: The file that the pair was learnt from.
        location: Its number in that file.
    """

    memory: str
    id: int
    source: str
    target: str
    origin: str
    location: int


@dataclass(frozen=True)
class Neighbour:
    """A retrieved entry of a memory.

    Attributes:
        distance: The squared distance, in the space that is searched.
        weight: The weight of the entry in the mixture.
        agrees: Whether its value is the token that was chosen.
        value: The token id of the entry.
        text: That token as text.
        start: The token is `pair.target[start:end]`; the end of a sentence is empty, after the last character.
        end: See `start`.
        entry: The number of the entry in the memory.
        pair: The sentence pair that the entry comes from.
    """

    distance: float
    weight: float
    agrees: bool
    value: int
    text: str
    start: int
    end: int
    entry: int
    pair: CitedPair


@dataclass(frozen=True)
class Token:
    """A token of the translation, and the terms of its probability.

    Attributes:
        value: The token id.
        text: The token as text.
        start: The token is `translation[start:end]`.
        end: See `start`.
        part: The number of the part (see `Explanation.scores`), from 0.
        base_probability: Its probability in the base model.
        memory_probability: Its probability among the neighbours alone; None where no neighbour has a weight.
        probability: Its probability in the mixture.
        base_weight: The weight of the base model.
        memory_share: The part of `probability` that comes from neighbours, 0 to 1.
        forced: Whether the limit on the length ended the part here: the end then has probability 1 in the score.
        neighbours: The retrieved entries, heaviest first.
        glossary: The name of the glossary that forced the token; None for other tokens.
    """

    value: int
    text: str
    start: int
    end: int
    part: int
    base_probability: float
    memory_probability: float | None
    probability: float
    base_weight: float
    memory_share: float
    forced: bool
    neighbours: tuple[Neighbour, ...]
    glossary: str | None = None

    @property
    def log_probability(self) -> float:
        """The term of the token in its part's score, before normalisation."""
        if self.forced:
            return 0.0
        return math.log(self.probability) if self.probability else -math.inf

    @property
    def agreeing(self) -> int:
        """The number of neighbours whose value is this token."""
        return sum(neighbour.agrees for neighbour in self.neighbours)


@dataclass(frozen=True)
class Word:
    """A word of the translation; the end of a part is an empty word.

    Attributes:
        text: The word.
        start: The word is `translation[start:end]`.
        end: See `start`.
        memory_share: The mean of its tokens' `memory_share`.
        agreeing: The number of neighbours of its tokens that agree.
        retrieved: The number of neighbours of its tokens.
        summary: The share and the numbers in one line of text.
        tokens: Its tokens.
    """

    text: str
    start: int
    end: int
    memory_share: float
    agreeing: int
    retrieved: int
    summary: str
    tokens: tuple[Token, ...]


@dataclass(frozen=True)
class Term:
    """A term of a glossary that the source has.

    Attributes:
        glossary: The name of the glossary.
        source: The term in the glossary.
        targets: Its translations in the glossary.
        start: The translation of the term is `translation[start:end]`; both are -1 where the translation lacks it.
        end: See `start`.
        forced: Whether the translation without the glossary lacks the term.
        met: Whether the translation has the term.
    """

    glossary: str
    source: str
    targets: tuple[str, ...]
    start: int
    end: int
    forced: bool
    met: bool


@dataclass(frozen=True)
class Explanation:
    """A translation and the explanation of its words; a blank text has no words and no scores.

    Attributes:
        source: The source text.
        translation: The translation.
        scores: The length-normalised score of each part: each sentence, or each piece of a very long sentence.
        words: The words of the translation, in order.
        terms: The terms of the glossary that the source has, in order.
    """

    source: str
    translation: str
    scores: tuple[float, ...]
    words: tuple[Word, ...]
    terms: tuple[Term, ...] = ()

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens of all words, in order."""
        return tuple(token for word in self.words for token in word.tokens)

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as dictionaries, lists, numbers and strings."""
        return asdict(self)


class _Part(NamedTuple):
    """The token ids of a piece of a text, and the translation that was found for it."""

    source: list[int]
    hypothesis: Hypothesis


class _Rows(NamedTuple):
    """The tokens [n] of one part, their log-probabilities in the base model [n], and the neighbours of their states."""

    values: Tensor
    base: Tensor
    retrieved: Retrieved


@torch.inference_mode()
def explain(
    model: BaseModel,
    scorer: Scorer,
    layouts: Sequence[TextLayout],
    found: Sequence[Sequence[Hypothesis]],
    batch_size: int,
    check: Check = never_stop,
) -> list[Explanation]:
    """Explain translations.

    Args:
        model: The model that found them.
        scorer: The scorer that found them.
        layouts: The source texts with their pieces.
        found: The translation of each piece of each text.
        batch_size: How many pieces to force through the model at once.
        check: Called before every step of the model and before every piece is explained; see `beam_search`.

    Returns:
        An explanation for each text.
    """
    parts = [
        _Part(piece.ids, hypothesis)
        for layout, hypotheses in zip(layouts, found, strict=True)
        for piece, hypothesis in zip(layout.pieces, hypotheses, strict=True)
    ]
    rows = iter(_force(model, scorer, parts, batch_size, check))
    citations = _Citations(model, scorer.memories)
    return [
        _explain_text(model, citations, layout, [(hypothesis, next(rows)) for hypothesis in hypotheses], check)
        for layout, hypotheses in zip(layouts, found, strict=True)
    ]


def _force(model: BaseModel, scorer: Scorer, parts: Sequence[_Part], batch_size: int, check: Check) -> list[_Rows]:
    """Force all parts through the model, in batches of similar length."""
    targets = [_counted(model, part.hypothesis) for part in parts]
    order = sorted(range(len(parts)), key=lambda i: (len(targets[i]), len(parts[i].source)))
    results: dict[int, _Rows] = {}
    for first in range(0, len(order), batch_size):
        batch = order[first : first + batch_size]
        states, base = model.force_decode([parts[i].source for i in batch], [targets[i] for i in batch], check)
        where = dict(zip(batch, accumulate(states.lengths, initial=0), strict=False))
        skipped = [start + step for i, start in where.items() for step in parts[i].hypothesis.skipped]
        retrieved = scorer.retrieve(_mask(states.keys, skipped), context=_context(model, states))
        for (i, start), length in zip(where.items(), states.lengths, strict=True):
            rows = slice(start, start + length)
            results[i] = _Rows(states.values[rows], base[rows], _select(retrieved, rows))
    return [results[i] for i in range(len(parts))]


@torch.inference_mode()
def force_evidence(
    model: BaseModel, scorer: Scorer, found: Sequence[tuple[list[int], Hypothesis]], check: Check | None = None
) -> list[Evidence]:
    """Return what a search on a CPU records, for hypotheses whose search has not recorded it.

    Args:
        model: The model.
        scorer: The scorer that found the hypotheses.
        found: The source tokens and the hypothesis of each piece.
        check: Called before every step of the model.

    Returns:
        The evidence for the tokens of each hypothesis.
    """
    parts = [_Part(source, hypothesis) for source, hypothesis in found]
    rows = _force(model, scorer, parts, _FORCED_TOGETHER, check or never_stop)
    evidence = [_to_evidence(rows_of) for rows_of in rows]
    for (_, hypothesis), one in zip(found, evidence, strict=True):
        if hypothesis.cut and model.forces_eos:  # the end is certain, whatever the model predicts
            one.log_probs[-1] = one.base_log_probs[-1] = 0
    return evidence


def _to_evidence(rows: _Rows) -> Evidence:
    retrieved, base = rows.retrieved, rows.base
    weights = retrieved.weights
    if not retrieved.values.shape[1]:
        log_probs, nothing = _to_numpy(base), np.zeros(len(base), np.float32)
        return Evidence(log_probs, log_probs.copy(), nothing, nothing + np.inf, np.full(len(base), -1))
    agreeing = (weights.neighbours * (retrieved.values == rows.values[:, None])).sum(dim=1)
    nearest = retrieved.distances.argmin(dim=1, keepdim=True)
    entries = retrieved.entries.gather(1, nearest).squeeze(1)
    return Evidence(
        _to_numpy(torch.logaddexp(base + weights.base.log(), agreeing.log())),
        _to_numpy(base),
        _to_numpy(1 - weights.base),
        _to_numpy(retrieved.distances.gather(1, nearest).squeeze(1)),
        pack_entries(entries, retrieved.sources[nearest.squeeze(1)]).cpu().numpy(),
    )


def _to_numpy(tensor: Tensor) -> NDArray[np.float32]:
    found: NDArray[np.float32] = tensor.float().cpu().numpy()
    return found


def _mask(states: Tensor, rows: list[int]) -> Tensor:
    """Set the states [n, d] of rows for which retrieval was skipped to NaN, so that they have no neighbours."""
    return states.index_fill(0, torch.tensor(rows, device=states.device), torch.nan) if rows else states


def _context(model: BaseModel, states: States) -> StepContext:
    """Return the context of forced states, for combiners that need one."""
    device = states.keys.device
    rows = torch.arange(len(states.lengths), device=device).repeat_interleave(
        torch.tensor(states.lengths, device=device)
    )
    banned = torch.tensor(model.banned, device=device) if model.banned else None
    return StepContext(lambda: model.project(states.keys), Sources(states.source_means), rows, banned)


def _counted(model: BaseModel, hypothesis: Hypothesis) -> list[int]:
    """Return the tokens that count in the score; the end is missing where a limit cut it off."""
    if hypothesis.cut and not model.forces_eos:
        return hypothesis.tokens
    return [*hypothesis.tokens, model.tokens.eos]


def _select(retrieved: Retrieved, rows: slice) -> Retrieved:
    return retrieved._replace(
        distances=retrieved.distances[rows],
        entries=retrieved.entries[rows],
        values=retrieved.values[rows],
        weights=type(retrieved.weights)(retrieved.weights.base[rows], retrieved.weights.neighbours[rows]),
    )


def _explain_text(
    model: BaseModel,
    citations: _Citations,
    layout: TextLayout,
    parts: Sequence[tuple[Hypothesis, _Rows]],
    check: Check,
) -> Explanation:
    translations = [model.tokens.decode(hypothesis.tokens) for hypothesis, _ in parts]
    whole, starts = layout.fill(translations)
    words: list[Word] = []
    terms: list[Term] = []
    for number, (translation, place, (hypothesis, rows)) in enumerate(zip(translations, starts, parts, strict=True)):
        check()
        spans = model.tokens.spans(hypothesis.tokens, translation)
        forced = hypothesis.cut and model.forces_eos
        tokens = list(_explain_tokens(model, citations, rows, spans, number, place, len(translation), forced))
        here = [_make_term(use, place) for use in hypothesis.terms]
        terms += here
        tokens = _name_glossary(tokens, here)
        words += _group(translation, place, tokens, len(hypothesis.tokens))
    scores = tuple(hypothesis.score for hypothesis, _ in parts)
    source = layout.fill([piece.text for piece in layout.pieces])[0]
    return Explanation(source, whole, scores, tuple(words), tuple(terms))


def _make_term(use: TermUse, place: int) -> Term:
    """Describe a term of a part whose translation begins at `place` of the whole."""
    start, end = (use.start + place, use.end + place) if use.is_met else (use.start, use.end)
    return Term(use.glossary, use.entry.source, use.entry.targets, start, end, use.forced, use.is_met)


def _name_glossary(tokens: list[Token], terms: Sequence[Term]) -> list[Token]:
    """Set the glossary of the tokens that it forced."""
    forced = [term for term in terms if term.forced]
    return (
        [
            replace(token, glossary=next((term.glossary for term in forced if _overlap(token, term)), None))
            for token in tokens
        ]
        if forced
        else tokens
    )


def _overlap(token: Token, term: Term) -> bool:
    return token.start < term.end and term.start < token.end


def _explain_tokens(
    model: BaseModel, citations: _Citations, rows: _Rows, spans: Spans, part: int, place: int, length: int, forced: bool
) -> Iterator[Token]:
    """Explain the tokens of a part whose translation, of this length, begins at `place` of the whole."""
    values, retrieved = rows.values.tolist(), rows.retrieved
    shown = model.tokens.show(values)
    base, base_weights = rows.base.double().exp().tolist(), retrieved.weights.base.tolist()
    for position, (value, text) in enumerate(zip(values, shown, strict=True)):
        is_end = value == model.tokens.eos and position == len(values) - 1
        start, end = (length, length) if is_end else spans[position]
        neighbours = citations.neighbours(retrieved, position, value)
        agreeing = sum(neighbour.weight for neighbour in neighbours if neighbour.agrees)
        total = sum(neighbour.weight for neighbour in neighbours)
        probability = base_weights[position] * base[position] + agreeing
        yield Token(
            value=value,
            text=text,
            start=place + start,
            end=place + end,
            part=part,
            base_probability=base[position],
            memory_probability=agreeing / total if total else None,
            probability=probability,
            base_weight=base_weights[position],
            memory_share=agreeing / probability if probability else 0.0,
            forced=is_end and forced,
            neighbours=neighbours,
        )


def _group(translation: str, place: int, tokens: Sequence[Token], written: int) -> Iterator[Word]:
    """Group tokens to words between white space; a token without a character belongs to the next one that has some."""
    runs = [(place + run.start(), place + run.end()) for run in re.finditer(r"\S+", translation)]
    groups: list[list[Token]] = [[] for _ in runs]
    number = 0
    for token in tokens[:written]:
        while number + 1 < len(runs) and (token.start >= runs[number][1]):
            number += 1
        if runs:
            groups[number].append(token)
    for (start, end), group in zip(runs, groups, strict=True):
        if group:
            yield make_word(translation[start - place : end - place], start, end, tuple(group))
    rest = tokens[written:] if runs else tokens
    if rest:
        end = place + len(translation)
        yield make_word("", end, end, tuple(rest))


@dataclass
class _Citations:
    """Looks up the sentence pairs of neighbours in their memories, each pair once."""

    model: BaseModel
    memories: Sequence[Memory | None]
    _pairs: dict[tuple[int, int], tuple[CitedPair, Spans]] = field(default_factory=dict)
    _pieces: dict[int, str] = field(default_factory=dict)

    def neighbours(self, retrieved: Retrieved, row: int, chosen: int) -> tuple[Neighbour, ...]:
        """Return the neighbours of one token, heaviest first; an entry that was weighted twice is listed once."""
        columns = zip(
            retrieved.entries[row].tolist(),
            retrieved.distances[row].tolist(),
            retrieved.values[row].tolist(),
            retrieved.weights.neighbours[row].tolist(),
            retrieved.sources.tolist(),
            strict=True,
        )
        found: dict[tuple[str, int], Neighbour] = {}
        for entry, distance, value, weight, source in columns:
            if entry >= 0:
                neighbour = self._neighbour(entry, distance, value, weight, source, chosen)
                known = found.get((neighbour.pair.memory, entry))
                counted = neighbour if known is None else replace(known, weight=known.weight + weight)
                found[neighbour.pair.memory, entry] = counted
        return tuple(sorted(found.values(), key=lambda neighbour: -neighbour.weight))

    def _neighbour(self, entry: int, distance: float, value: int, weight: float, source: int, chosen: int) -> Neighbour:
        memory = self.memories[source]
        if memory is None:
            raise ValueError("These neighbours are in no memory folder, so they cannot be explained: use one on disk.")
        number, position = memory.locate(entry)
        pair, spans = self._pair(source, memory, number)
        start, end = spans[position]
        if value not in self._pieces:
            self._pieces[value] = self.model.tokens.show([value])[0]
        return Neighbour(distance, weight, value == chosen, value, self._pieces[value], start, end, entry, pair)

    def _pair(self, source: int, memory: Memory, number: int) -> tuple[CitedPair, Spans]:
        key = (source, number)
        if key not in self._pairs:
            stored = memory.sentence(number)
            tokens = memory.tokens_of(number).tolist()
            cited = CitedPair(str(memory.path), stored.id, stored.source, stored.target, stored.origin, stored.location)
            self._pairs[key] = (cited, self.model.tokens.spans(tokens, stored.target))
        return self._pairs[key]


def make_word(text: str, start: int, end: int, tokens: tuple[Token, ...]) -> Word:
    """Make a word of these tokens, with its summary.

    Args:
        text: The word; "" for the end of a part.
        start: The first character of the word in the translation.
        end: The character after its last one.
        tokens: Its tokens, at least one.
    """
    share = sum(token.memory_share for token in tokens) / len(tokens)
    agreeing, retrieved = sum(token.agreeing for token in tokens), sum(len(token.neighbours) for token in tokens)
    glossary = next((token.glossary for token in tokens if token.glossary is not None), None)
    summary = describe(share, agreeing, retrieved) if glossary is None else f"from the glossary {glossary}"
    return Word(text, start, end, share, agreeing, retrieved, summary, tokens)


def describe(memory_share: float, agreeing: int, retrieved: int) -> str:
    """Describe in one line where a word comes from.

    Args:
        memory_share: The share of the memory in the probability, 0 to 1.
        agreeing: The number of neighbours with the token of the translation.
        retrieved: The number of all neighbours.

    Examples:
        >>> describe(0.8, agreeing=3, retrieved=4)
        'from memory: 80 %, 3 of 4 neighbours'
    """
    if not retrieved:
        return "from the base model: no neighbour"
    neighbours = f"{agreeing} of {retrieved} neighbours"
    if memory_share >= 0.5:
        return f"from memory: {memory_share:.0%}, {neighbours}".replace("%", " %")
    return f"from the base model: {1 - memory_share:.0%}, {neighbours}".replace("%", " %")
