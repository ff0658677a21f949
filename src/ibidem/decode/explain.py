"""Explaining a translation that was found: it is forced through the model once more, with the same scorer."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ibidem.decode.explanation import CitedPair, Explanation, Neighbour, Token, Word, make_word
from ibidem.decode.search import never_stop

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ibidem.decode.beams import Hypothesis
    from ibidem.decode.scoring import Retrieved, Scorer
    from ibidem.decode.search import Check
    from ibidem.memory import Memory
    from ibidem.model import BaseModel, Spans


class Part(NamedTuple):
    """A part of a text, as token ids, and the translation that was found for it."""

    source: list[int]
    hypothesis: Hypothesis


class Rows(NamedTuple):
    """The tokens of one part: values [n], the base model's log-probabilities of them [n], and the votes."""

    values: Tensor
    base: Tensor
    votes: Retrieved


@torch.inference_mode()
def explain(
    model: BaseModel,
    scorer: Scorer,
    texts: Sequence[str],
    found: Sequence[Sequence[Part]],
    batch_size: int,
    check: Check = never_stop,
) -> list[Explanation]:
    """An explanation for each text, whose parts were translated by this model and scorer.

    check: is called before every step of the model and before every part is explained; see `beam_search`.
    """
    rows = iter(_force(model, scorer, [part for parts in found for part in parts], batch_size, check))
    library = Library(model, scorer.memories)
    return [
        _explain_text(model, library, text, [(part.hypothesis, next(rows)) for part in parts], check)
        for text, parts in zip(texts, found, strict=True)
    ]


def join_explanations(text: str, explanations: Sequence[Explanation]) -> Explanation:
    """Join the explanations of the pieces of a text to the one that `explain` gives for the whole text."""
    words: list[Word] = []
    scores: list[float] = []
    place = 0
    for explanation in explanations:
        words += (_shift(word, place, len(scores)) for word in explanation.words)
        scores += explanation.scores
        place += len(explanation.translation) + 1
    translation = " ".join(explanation.translation for explanation in explanations)
    return Explanation(text, translation, tuple(scores), tuple(words))


def _shift(word: Word, place: int, part: int) -> Word:
    """Move a word by so many characters and parts."""
    tokens = tuple(
        replace(token, start=token.start + place, end=token.end + place, part=token.part + part)
        for token in word.tokens
    )
    return replace(word, start=word.start + place, end=word.end + place, tokens=tokens)


def _force(model: BaseModel, scorer: Scorer, parts: Sequence[Part], batch_size: int, check: Check) -> list[Rows]:
    """Teacher forcing of all parts in batches of similar length."""
    targets = [_counted(model, part.hypothesis) for part in parts]
    order = sorted(range(len(parts)), key=lambda i: (len(targets[i]), len(parts[i].source)))
    results: dict[int, Rows] = {}
    for first in range(0, len(order), batch_size):
        batch = order[first : first + batch_size]
        states, base = model.force_decode([parts[i].source for i in batch], [targets[i] for i in batch], check)
        where = dict(zip(batch, accumulate(states.lengths, initial=0), strict=False))
        skipped = [start + step for i, start in where.items() for step in parts[i].hypothesis.skipped]
        votes = scorer.retrieve(_silence(states.keys, skipped))
        for (i, start), length in zip(where.items(), states.lengths, strict=True):
            rows = slice(start, start + length)
            results[i] = Rows(states.values[rows], base[rows], _select(votes, rows))
    return [results[i] for i in range(len(parts))]


def _silence(states: Tensor, rows: list[int]) -> Tensor:
    """The states [n, d], NaN where no memory was asked: they have no neighbours."""
    return states.index_fill(0, torch.tensor(rows, device=states.device), torch.nan) if rows else states


def _counted(model: BaseModel, hypothesis: Hypothesis) -> list[int]:
    """The tokens whose log-probabilities make the score; the end is missing where a limit cut it off."""
    if hypothesis.cut and not model.forces_eos:
        return hypothesis.tokens
    return [*hypothesis.tokens, model.tokens.eos]


def _select(votes: Retrieved, rows: slice) -> Retrieved:
    weights = type(votes.weights)(votes.weights.base[rows], votes.weights.neighbours[rows])
    return votes._replace(
        distances=votes.distances[rows], entries=votes.entries[rows], values=votes.values[rows], weights=weights
    )


def _explain_text(
    model: BaseModel, library: Library, text: str, parts: Sequence[tuple[Hypothesis, Rows]], check: Check
) -> Explanation:
    translations = [model.tokens.decode(hypothesis.tokens) for hypothesis, _ in parts]
    words: list[Word] = []
    place = 0
    for number, (translation, (hypothesis, rows)) in enumerate(zip(translations, parts, strict=True)):
        check()
        spans = model.tokens.spans(hypothesis.tokens, translation)
        forced = hypothesis.cut and model.forces_eos
        tokens = list(_explain_tokens(model, library, rows, spans, number, place, len(translation), forced))
        words += _group(translation, place, tokens, len(hypothesis.tokens))
        place += len(translation) + 1
    scores = tuple(hypothesis.score for hypothesis, _ in parts)
    return Explanation(text, " ".join(translations), scores, tuple(words))


def _explain_tokens(
    model: BaseModel, library: Library, rows: Rows, spans: Spans, part: int, place: int, length: int, forced: bool
) -> Iterator[Token]:
    """The tokens of a part whose translation, of this length, begins at `place` of the whole."""
    values, votes = rows.values.tolist(), rows.votes
    shown = model.tokens.show(values)
    base, base_weights = rows.base.double().exp().tolist(), votes.weights.base.tolist()
    for position, (value, text) in enumerate(zip(values, shown, strict=True)):
        is_end = value == model.tokens.eos and position == len(values) - 1
        start, end = (length, length) if is_end else spans[position]
        neighbours = library.neighbours(votes, position, value)
        agreeing = sum(neighbour.vote for neighbour in neighbours if neighbour.agrees)
        voting = sum(neighbour.vote for neighbour in neighbours)
        probability = base_weights[position] * base[position] + agreeing
        yield Token(
            value=value,
            text=text,
            start=place + start,
            end=place + end,
            part=part,
            base_probability=base[position],
            memory_probability=agreeing / voting if voting else None,
            probability=probability,
            base_weight=base_weights[position],
            memory_share=agreeing / probability if probability else 0.0,
            forced=is_end and forced,
            neighbours=neighbours,
        )


def _group(translation: str, place: int, tokens: Sequence[Token], written: int) -> Iterator[Word]:
    """Words between white space, each with its tokens; one without a character goes with the next that has some."""
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
class Library:
    """Looks neighbours up in their memories; pairs that are cited again are not read again."""

    model: BaseModel
    memories: Sequence[Memory | None]
    _pairs: dict[tuple[int, int], tuple[CitedPair, Spans]] = field(default_factory=dict)
    _pieces: dict[int, str] = field(default_factory=dict)

    def neighbours(self, votes: Retrieved, row: int, chosen: int) -> tuple[Neighbour, ...]:
        """The neighbours that voted on one token, heaviest vote first; one that was weighed twice has one vote."""
        columns = zip(
            votes.entries[row].tolist(),
            votes.distances[row].tolist(),
            votes.values[row].tolist(),
            votes.weights.neighbours[row].tolist(),
            votes.sources.tolist(),
            strict=True,
        )
        found: dict[tuple[str, int], Neighbour] = {}
        for entry, distance, value, vote, source in columns:
            if entry >= 0:
                neighbour = self._neighbour(entry, distance, value, vote, source, chosen)
                known = found.get((neighbour.pair.memory, entry))
                counted = neighbour if known is None else replace(known, vote=known.vote + vote)
                found[neighbour.pair.memory, entry] = counted
        return tuple(sorted(found.values(), key=lambda neighbour: -neighbour.vote))

    def _neighbour(self, entry: int, distance: float, value: int, vote: float, source: int, chosen: int) -> Neighbour:
        memory = self.memories[source]
        if memory is None:
            raise ValueError("These neighbours lie in no folder, so their sentences cannot be shown.")
        number, position = memory.locate(entry)
        pair, spans = self._pair(source, memory, number)
        start, end = spans[position]
        if value not in self._pieces:
            self._pieces[value] = self.model.tokens.show([value])[0]
        return Neighbour(distance, vote, value == chosen, value, self._pieces[value], start, end, entry, pair)

    def _pair(self, source: int, memory: Memory, number: int) -> tuple[CitedPair, Spans]:
        key = (source, number)
        if key not in self._pairs:
            stored = memory.sentence(number)
            tokens = memory.tokens_of(number).tolist()
            cited = CitedPair(str(memory.path), stored.id, stored.source, stored.target, stored.origin, stored.location)
            self._pairs[key] = (cited, self.model.tokens.spans(tokens, stored.target))
        return self._pairs[key]
