"""The translation of a text, joined from the translations of its pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ibidem.decode import SegmentMatch, assess_segments, find_lines, join_confidences
from ibidem.text import check_translation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.decode import AssessedSegment, Explanation, TextLayout
    from ibidem.serve.engine import PieceTranslation


def pair_lines(source: str, target: str) -> list[tuple[str, str]]:
    r"""Pair the lines of two texts; texts with different numbers of lines are one pair.

    Args:
        source: The source text.
        target: Its translation.

    Returns:
        Sources and targets.

    Examples:
        >>> pair_lines("eins\nzwei", "one\ntwo")
        [('eins', 'one'), ('zwei', 'two')]
    """
    sources, targets = ([text[start:end] for start, end in find_lines(text)] for text in (source, target))
    return list(zip(sources, targets, strict=True)) if len(sources) == len(targets) else [(source, target)]


class Suspicion(NamedTuple):
    """A suspicious part of a translation.

    Attributes:
        start: The part is `text[start:end]` of the translation.
        end: See `start`.
        message: Why it is suspicious, in words.
    """

    start: int
    end: int
    message: str


class TextTranslation(NamedTuple):
    """The translation of a text.

    Attributes:
        text: The best translation.
        alternatives: Further translations.
        explanations: The explanation of each piece, if the request has the option `explain`.
        starts: The offset in `text` of each piece.
        suspicions: The suspicious parts.
        confidence: The probability that the text needs no edit; None if it is unknown.
        segments: The pieces with their confidence and the stored pairs that match them.
        missing_shards: The shards of a memory, from 1, that some step of the search had no answer of.
    """

    text: str
    alternatives: list[str]
    explanations: Sequence[Explanation] = ()
    starts: Sequence[int] = ()
    suspicions: Sequence[Suspicion] = ()
    confidence: float | None = None
    segments: Sequence[AssessedSegment] = ()
    missing_shards: tuple[int, ...] = ()


def fill_all(
    layouts: Sequence[TextLayout],
    found: Sequence[PieceTranslation],
    min_confidence: float = 0.0,
    matches: Sequence[tuple[SegmentMatch, ...]] | None = None,
) -> list[TextTranslation]:
    """Put the translations of all pieces into the layouts of their texts.

    Args:
        layouts: The layouts of the texts.
        found: The translations of the pieces of all layouts, in order.
        min_confidence: Pieces of a lower confidence are left empty.
        matches: The stored pairs that match each piece; None for none.

    Returns:
        One translation for each layout.
    """
    parts = iter(found)
    near = iter([()] * len(found) if matches is None else matches)
    return [
        _fill(layout, [next(parts) for _ in layout.pieces], min_confidence, [next(near) for _ in layout.pieces])
        for layout in layouts
    ]


def _fill(
    layout: TextLayout,
    parts: Sequence[PieceTranslation],
    min_confidence: float,
    matches: Sequence[tuple[SegmentMatch, ...]],
) -> TextTranslation:
    """Put the translations of pieces into the layout of their text."""
    known = [part.confidence for part in parts]
    text, segments = assess_segments(layout, [part.translation for part in parts], known, min_confidence, matches)
    starts = [segment.start for segment in segments]
    count = max((len(part.alternatives) for part in parts), default=0)
    alternatives = [
        layout.fill([(part.translation, *part.alternatives)[min(number, len(part.alternatives))] for part in parts])[0]
        for number in range(1, count + 1)
    ]
    explanations = [part.explanation for part in parts if part.explanation is not None]
    suspicions = [
        Suspicion(segment.start, segment.end, message)
        for piece, part, segment in zip(layout.pieces, parts, segments, strict=True)
        if not segment.left_empty and (message := check_translation(piece.text, part.translation))
    ]
    missing = tuple(sorted({number for part in parts for number in part.missing_shards}))
    sure = join_confidences(known)
    return TextTranslation(text, alternatives, explanations, starts, suspicions, sure, segments, missing)
