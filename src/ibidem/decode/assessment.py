"""Translations with the confidence of each sentence, and the stored pairs that match it.

The search finds the translations once; confidence costs no second one (see `confidence`). Matches are looked up on
request.
"""

from __future__ import annotations

import math
from dataclasses import replace
from heapq import nlargest
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ibidem.decode.beam_search import never_stop
from ibidem.decode.beams import missing_shards
from ibidem.errors import UsageError
from ibidem.memory import find_matches
from ibidem.text import check_translation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ibidem.decode.beam_search import Check
    from ibidem.decode.beams import Hypothesis
    from ibidem.decode.scorer import Scorer
    from ibidem.decode.text_splitter import Piece, TextLayout
    from ibidem.decode.translator import Translator, Warn
    from ibidem.glossary import Glossary
    from ibidem.memory import Match, Memory
    from ibidem.model import BaseModel

_ENCODED_TOGETHER = 32


class SegmentMatch(NamedTuple):
    """A stored pair that matches a sentence.

    Attributes:
        memory: The folder of the memory.
        match: The pair and its similarity.
    """

    memory: str
    match: Match

    def to_json(self) -> dict[str, Any]:
        """Return the match as a JSON object."""
        pair = self.match.pair
        return {
            "memory": self.memory,
            "id": pair.id,
            "source": pair.source,
            "target": pair.target,
            "origin": pair.origin,
            "location": pair.location,
            "percent": self.match.percent,
        }


class AssessedSegment(NamedTuple):
    """A sentence of a translated text.

    Attributes:
        start: The translation of the sentence is `text[start:end]` of the translated text.
        end: See `start`.
        source_start: The sentence is `source[source_start:source_end]` of the text.
        source_end: See `source_start`.
        confidence: The probability that the translation needs no edit; None if it is unknown.
        left_empty: Whether the translation is left out, since its confidence is too low.
        matches: The stored pairs whose sources are like the sentence, best first.
    """

    start: int
    end: int
    source_start: int
    source_end: int
    confidence: float | None
    left_empty: bool = False
    matches: tuple[SegmentMatch, ...] = ()


class AssessedTranslation(NamedTuple):
    """A translated text.

    Attributes:
        text: The translation.
        confidence: The probability that it needs no edit: the product of those of its sentences. None if it is unknown
            or the text has no sentence.
        segments: The sentences.
        alternatives: All translations that were requested, the best first, each with the sum of the scores of its
            sentences; sentences are not left empty here.
        missing_shards: The shards of a memory, from 1, that some step of the search had no answer of.
    """

    text: str
    confidence: float | None
    segments: tuple[AssessedSegment, ...]
    alternatives: tuple[tuple[str, float], ...]
    missing_shards: tuple[int, ...] = ()


def translate_and_assess(
    translator: Translator,
    texts: Sequence[str],
    *,
    count: int = 1,
    matches: int = 0,
    min_confidence: float = 0.0,
    prefixes: Sequence[str] | None = None,
    scorer: Scorer | None = None,
    glossary: Glossary | None = None,
    check: Check = never_stop,
    warn: Warn | None = None,
) -> list[AssessedTranslation]:
    """Translate texts as `Translator.translate` does, and estimate how probable it is that they need no edit.

    Args:
        translator: The translator.
        texts: Source texts.
        count: The number of alternatives; see `Translator.alternatives`.
        matches: The most matching pairs to look up for each sentence.
        min_confidence: Sentences with a lower confidence are left empty.
        prefixes: See `Translator.translate`.
        scorer: See `Translator.translate`.
        glossary: See `Translator.translate`.
        check: See `Translator.translate`.
        warn: See `Translator.translate`.

    Raises:
        UsageError: An argument is invalid.

    Examples:
        >>> from ibidem import Translator
        >>> translator = Translator(device="cpu")
        >>> found = translate_and_assess(translator, ["Guten Morgen. Die Datei ist leer."])[0]
        >>> found.text
        'Good morning. The file is empty.'
        >>> [found.text[segment.start : segment.end] for segment in found.segments]
        ['Good morning.', 'The file is empty.']
        >>> 0 < found.confidence < 1
        True
        >>> translate_and_assess(translator, ["Guten Morgen."], min_confidence=1.0)[0].text
        ''
    """
    check_min_confidence(min_confidence)
    settings = replace(translator.settings, n_best=count, beam=max(count, translator.settings.beam))
    layouts = translator.split(texts, prefixes=prefixes, scorer=scorer)
    found = translator.search(
        layouts, prefixes=prefixes, settings=settings, scorer=scorer, glossary=glossary, check=check
    )
    used = scorer or translator.scorer
    confidences = translator.estimator.estimate(used, layouts, found, check)
    looked_up: list[list[tuple[SegmentMatch, ...]]] = [[()] * len(parts) for parts in found]
    if matches:
        memories = {str(memory.path): memory for memory in used.memories if memory is not None}
        pieces = [piece for layout in layouts for piece in layout.pieces]
        rows = iter(match_pieces(translator.model, memories, pieces, matches, check))
        looked_up = [[next(rows) for _ in parts] for parts in found]
    decode = translator.model.tokens.decode
    assessed = []
    for number, (layout, parts, known, near) in enumerate(zip(layouts, found, confidences, looked_up, strict=True)):
        translations = [decode(hypotheses[0].tokens) for hypotheses in parts]
        if warn is not None:
            warn_of_suspicious(number, layout, translations, warn)
        text, segments = assess_segments(layout, translations, known, min_confidence, near)
        ranked = tuple(rank_translations(layout, parts, decode))
        assessed.append(AssessedTranslation(text, join_confidences(known), segments, ranked, missing_shards(parts)))
    return assessed


def warn_of_suspicious(number: int, layout: TextLayout, translations: Sequence[str], warn: Warn) -> None:
    """Report the suspicious translations of a text; see `check_translation`.

    Args:
        number: The number of the text.
        layout: The text.
        translations: The translation of each piece.
        warn: Called with the number and a message for each of them.
    """
    for piece, translation in zip(layout.pieces, translations, strict=True):
        if message := check_translation(piece.text, translation):
            warn(number, message)


def check_min_confidence(value: float) -> None:
    """Check the least confidence of a translation.

    Args:
        value: The probability.

    Raises:
        UsageError: It is not between 0 and 1.
    """
    if not 0 <= value <= 1:
        raise UsageError(f"Invalid confidence {value}: give a probability from 0 to 1.")


def join_confidences(confidences: Sequence[float | None]) -> float | None:
    """Return the probability that no part of a text needs an edit, as if the parts were independent.

    Args:
        confidences: The confidence of each part.

    Returns:
        Their product; None without a part or with one of unknown confidence.

    Examples:
        >>> join_confidences([0.5, 0.5]), join_confidences([0.5, None]), join_confidences([])
        (0.25, None, None)
    """
    known = [one for one in confidences if one is not None]
    return math.prod(known) if known and len(known) == len(confidences) else None


def assess_segments(
    layout: TextLayout,
    translations: Sequence[str],
    confidences: Sequence[float | None],
    min_confidence: float = 0.0,
    matches: Sequence[tuple[SegmentMatch, ...]] | None = None,
) -> tuple[str, tuple[AssessedSegment, ...]]:
    """Put translations into the layout of their text, and leave out those of low confidence.

    Args:
        layout: The layout.
        translations: The translation of each piece.
        confidences: The confidence of each piece.
        min_confidence: The least confidence of a translation that is kept; one of unknown confidence is kept.
        matches: The matches of each piece.

    Returns:
        The text, and its sentences.
    """
    empty = [known is not None and known < min_confidence for known in confidences]
    kept = ["" if is_empty else text for text, is_empty in zip(translations, empty, strict=True)]
    text, starts = layout.fill(kept)
    segments = []
    place = len(layout.gaps[0])
    for number, (piece, translation) in enumerate(zip(layout.pieces, kept, strict=True)):
        segments.append(
            AssessedSegment(
                starts[number],
                starts[number] + len(translation),
                place,
                place + len(piece.text),
                confidences[number],
                empty[number],
                () if matches is None else matches[number],
            )
        )
        place += len(piece.text) + len(layout.gaps[number + 1])
    return text, tuple(segments)


def rank_translations(
    layout: TextLayout, parts: Sequence[Sequence[Hypothesis]], decode: Callable[[list[int]], str]
) -> list[tuple[str, float]]:
    """Return the translations of a text, best first: in the n-th one, each piece has its n-th translation.

    Args:
        layout: The text.
        parts: The hypotheses of each piece, best first; a piece with fewer has its last one in all others.
        decode: Returns the text of token ids.

    Returns:
        Each translation with the sum of the scores of its pieces; one for a blank text.
    """
    ranked = []
    for rank in range(max(map(len, parts), default=1)):
        chosen = [hypotheses[min(rank, len(hypotheses) - 1)] for hypotheses in parts]
        ranked.append((layout.fill([decode(one.tokens) for one in chosen])[0], sum(one.score for one in chosen)))
    return ranked


def match_pieces(
    model: BaseModel,
    memories: Mapping[str, Memory],
    pieces: Sequence[Piece],
    limit: int,
    check: Check = never_stop,
) -> list[tuple[SegmentMatch, ...]]:
    """Find the stored pairs that match each piece of some texts.

    Args:
        model: The base model.
        memories: The memories by their names.
        pieces: The pieces.
        limit: The most matches of a piece.
        check: Called before each piece; it may raise an exception to end the work.
    """
    vectors = encode_sources(model, memories, pieces)
    stored = {name: memory.source_vectors() for name, memory in memories.items()}
    rows = []
    for number, piece in enumerate(pieces):
        check()
        found = [
            SegmentMatch(name, match)
            for name, memory in memories.items()
            for match in find_matches(memory, piece.text, vectors[name][number], limit, stored[name])
        ]
        rows.append(tuple(nlargest(limit, found, key=lambda one: one.match.percent)))
    return rows


@torch.inference_mode()
def encode_sources(
    model: BaseModel, memories: Mapping[str, Memory], pieces: Sequence[Piece]
) -> dict[str, NDArray[np.int8]]:
    """Compute the source vectors of pieces, by the projection of each memory.

    Args:
        model: The base model.
        memories: The memories by their names.
        pieces: The pieces.

    Returns:
        [pieces, 64] for each memory.
    """
    order = sorted(range(len(pieces)), key=lambda number: len(pieces[number].ids))
    means = torch.zeros(len(pieces), model.dimension)
    for first in range(0, len(order), _ENCODED_TOGETHER):
        chosen = order[first : first + _ENCODED_TOGETHER]
        means[chosen] = model.start([pieces[number].ids for number in chosen]).source_means.float().cpu()
    return {name: memory.source_projection.vectors(means.numpy()) for name, memory in memories.items()}


class RecordedTranslations:
    """Translates lines with a translator, and records the confidence of each.

    Args:
        translator: The translator.

    Attributes:
        confidences: The confidence of each line that was translated.
    """

    def __init__(self, translator: Translator) -> None:
        self._translator = translator
        self.confidences: dict[str, float | None] = {}

    def __call__(self, lines: list[str]) -> list[str]:
        """Translate lines.

        Args:
            lines: The lines.
        """
        found = translate_and_assess(self._translator, lines)
        self.confidences.update((line, one.confidence) for line, one in zip(lines, found, strict=True))
        return [one.text for one in found]
