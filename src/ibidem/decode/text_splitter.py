"""The splitter of texts into pieces that are translated one by one: sentences, and parts of very long ones.

The white space between the pieces is kept in a `TextLayout`, so that it is the same in the translation.
"""

from __future__ import annotations

import re
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from ibidem.errors import UsageError
from ibidem.memory import count_sources, has_similar_source
from ibidem.text import find_sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ibidem.memory import Memory
    from ibidem.model import Tokens

Splitting: TypeAlias = Literal["sentences", "nonewlines", "off"]
"""Where a text is split: at line breaks, tabs and ends of sentences; at ends of sentences only; or only where it is too
long. Line breaks inside a piece count as spaces."""

# The most source tokens that are translated as one piece. Sentence-level models drop text from longer inputs, and the
# cost of attention grows with the square of the length.
PIECE_TOKENS = 128

# A line of several sentences stays whole if it has at most `_SHORT_TOKENS` source tokens, and at least the share
# `_USUAL_SHARE` of the stored sources have as many sentences as it or more. Fewer stored pairs than `_LEAST_PAIRS` do
# not show what is usual.
_SHORT_TOKENS = 35
_USUAL_SHARE = 0.1
_LEAST_PAIRS = 1_000

_BREAK = re.compile("[\n\r\t\v\f\x1c\x1d\x1e\x85\u2028\u2029]+")
# Where a long sentence may be cut, best places first. Chinese and Japanese have no spaces.
_PLACES = (
    re.compile(r"(?<=[;:,–—])\s+|(?<=[；：，、])\s*"),
    re.compile(r"\s+"),
)
# Scripts without spaces between words and sentences.
_WIDE = re.compile("[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]")

Span: TypeAlias = tuple[int, int]


class Piece(NamedTuple):
    """A piece of a text.

    Attributes:
        text: The piece, as it is written in the text.
        ids: Its token ids, with the model's special tokens.
    """

    text: str
    ids: list[int]


class TextLayout(NamedTuple):
    """A text as its pieces and what stands between them.

    Attributes:
        pieces: The pieces to translate, in order.
        gaps: The parts before, between and after the pieces, which are copied; one more than `pieces`.
    """

    pieces: tuple[Piece, ...]
    gaps: tuple[str, ...]

    def fill(self, translations: Sequence[str]) -> tuple[str, list[int]]:
        """Replace the pieces by translations.

        Two pieces without white space between them, as in Chinese, get a space if their translations need one.

        Args:
            translations: One for each piece.

        Returns:
            The text, and the offset of each translation in it.
        """
        parts, starts, offset = [self.gaps[0]], [], len(self.gaps[0])
        for number, translation in enumerate(translations):
            if number and self._needs_space(number, translations):
                parts.append(" ")
                offset += 1
            starts.append(offset)
            gap = self.gaps[number + 1]
            parts += [translation, gap]
            offset += len(translation) + len(gap)
        return "".join(parts), starts

    def _needs_space(self, number: int, translations: Sequence[str]) -> bool:
        if self.gaps[number] or not _WIDE.match(self.pieces[number - 1].text[-1]):
            return False
        before, after = translations[number - 1][-1:], translations[number][:1]
        return bool(before and after) and not (_WIDE.match(before) or _WIDE.match(after))


def check_splitting(value: str) -> Splitting:
    """Return a value of `Splitting`.

    Args:
        value: "sentences", "nonewlines" or "off".

    Raises:
        UsageError: Another value.
    """
    for known in get_args(Splitting):
        if value == known:
            return known  # type: ignore[no-any-return]
    raise UsageError(f"Unknown way to split {value!r}: use {', '.join(get_args(Splitting))}.")


def split_texts(
    texts: Sequence[str], modes: Sequence[Splitting], tokens: Tokens, most_tokens: int, memories: Sequence[Memory] = ()
) -> list[TextLayout]:
    """Split texts into the pieces that are translated one by one.

    A line of several sentences is one piece if it is the source of a stored pair, so that the translation of the pair
    is found, if it is like a stored source of as many sentences (`has_similar_source`), or if it is short and lines of
    as many sentences are usual in the memories (`find_usual_sentences`).

    Args:
        texts: Source texts.
        modes: Where to split each text.
        tokens: The tokens of the model.
        most_tokens: The largest number of tokens of a piece; longer sentences are cut.
        memories: The memories of stored pairs.

    Returns:
        The pieces of each text, and what stands between them. A blank text has no pieces.
    """
    language = tokens.source_language
    texts = [_repair(text) for text in texts]
    joiner = _Joiner(tokens, memories)
    spans: list[list[Span]] = []
    for text, mode in zip(texts, modes, strict=True):
        lines = find_pieces(text, mode, language)
        spans.append([span for line in lines for span in joiner.join(text, line)])

    def encode(pieces: Iterable[str]) -> list[list[int]]:
        return tokens.encode_sources(map(clean, pieces))

    def fits(piece: str) -> bool:
        return len(encode([piece])[0]) <= most_tokens

    encoded = iter(encode(text[start:end] for text, found in zip(texts, spans, strict=True) for start, end in found))
    layouts: list[TextLayout] = []
    for text, found in zip(texts, spans, strict=True):
        pieces: list[tuple[Span, list[int]]] = []
        for span in found:
            ids = next(encoded)
            if len(ids) <= most_tokens:
                pieces.append((span, ids))
            else:
                cut = cut_text(text, span, fits, language)
                pieces += zip(cut, encode(text[start:end] for start, end in cut), strict=True)
        # A piece such as a lone control character has no token but the end of sentence: nothing to translate.
        layouts.append(make_layout(text, (piece for piece in pieces if len(piece[1]) > 1)))
    return layouts


def clean(text: str) -> str:
    """Turn a text into one line of valid Unicode: lone surrogates become U+FFFD, line breaks spaces.

    Args:
        text: The text.
    """
    return " ".join(_repair(text).split())


def _repair(text: str) -> str:
    """Replace lone surrogates, which no file can contain."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def find_usual_sentences(memories: Sequence[Memory]) -> int:
    """Find how many sentences a short line may have to stay whole, by the sources that some memories store.

    Args:
        memories: The memories; their sealed pairs count as those of one memory.

    Returns:
        The largest number that at least 10 % of the stored sources have or exceed; 1 for fewer than 1,000 pairs.
    """
    pairs = sum(memory.pairs for memory in memories)
    usual = 1
    if pairs >= _LEAST_PAIRS:
        while sum(count_sources(memory, usual + 1) for memory in memories) >= _USUAL_SHARE * pairs:
            usual += 1
    return usual


class _Joiner:
    """Decides which lines of several sentences stay whole."""

    def __init__(self, tokens: Tokens, memories: Sequence[Memory]) -> None:
        self._tokens = tokens
        self._memories = memories

    @cached_property
    def _usual(self) -> int:
        return find_usual_sentences(self._memories)

    def join(self, text: str, line: list[Span]) -> list[Span]:
        """Join the sentences of a line, or leave them."""
        if len(line) < 2 or not self._memories:
            return line
        whole = (line[0][0], line[-1][1])
        source = clean(text[slice(*whole)])
        return [whole] if self._stays_whole(source, len(line)) else line

    def _stays_whole(self, source: str, sentences: int) -> bool:
        if any(memory.find(source) for memory in self._memories):
            return True
        if sentences <= self._usual and len(self._tokens.encode_sources([source])[0]) <= _SHORT_TOKENS:
            return True
        return any(has_similar_source(memory, source, sentences) for memory in self._memories)


def make_layout(text: str, pieces: Iterable[tuple[Span, list[int]]]) -> TextLayout:
    """Make the layout of a text.

    Args:
        text: The text.
        pieces: The start and end of each piece in order, and its token ids.
    """
    found: list[Piece] = []
    gaps: list[str] = []
    last = 0
    for (start, end), ids in pieces:
        gaps.append(text[last:start])
        found.append(Piece(text[start:end], ids))
        last = end
    return TextLayout(tuple(found), (*gaps, text[last:]))


def find_lines(text: str) -> list[Span]:
    r"""Find the parts between line breaks and tabs, without surrounding white space and without blank ones.

    Args:
        text: The text.

    Examples:
        >>> find_lines("one\n\n  two")
        [(0, 3), (7, 10)]
    """
    cuts = [0, *(place for found in _BREAK.finditer(text) for place in found.span()), len(text)]
    return [span for start, end in pairwise(cuts) if (span := _strip(text, start, end)) is not None]


def find_pieces(text: str, mode: Splitting, language: str | None = None) -> list[list[Span]]:
    """Find the pieces of a text before long ones are cut.

    Args:
        text: The text.
        mode: Where to split.
        language: The language of the text; None if it is unknown.

    Returns:
        The sentences of each line; with "nonewlines" those of the whole text, with "off" the text itself. A blank text
        has none.

    Examples:
        >>> find_pieces("Eins. Zwei.\\n• Drei", "sentences")
        [[(0, 5), (6, 11)], [(12, 18)]]
    """
    whole = _strip(text, 0, len(text))
    if whole is None:
        return []
    if mode == "off":
        return [[whole]]
    lines = [whole] if mode == "nonewlines" else find_lines(text)
    return [
        [(start + first, start + last) for first, last in find_sentences(text[start:end], language)]
        for start, end in lines
    ]


def cut_text(text: str, span: Span, fits: Callable[[str], bool], language: str | None = None) -> list[Span]:
    """Cut a text into pieces that fit, at ends of sentences, else of clauses, else of words, else anywhere.

    Args:
        text: The text.
        span: The start and end of the part to cut.
        fits: Returns whether a piece is short enough.
        language: The language of the text; None if it is unknown.

    Returns:
        The start and end of each piece, without white space at the cuts. A single character that does not fit is a
        piece of its own.

    Examples:
        >>> text = "One, two. Three, four."
        >>> [text[start:end] for start, end in cut_text(text, (0, 22), lambda piece: len(piece) <= 12)]
        ['One, two.', 'Three, four.']
    """
    start, end = span
    return [span] if fits(text[start:end]) else list(_Cutter(text, fits, language).cut(span, 0))


class _Cutter:
    """Cuts parts of one text that do not fit."""

    def __init__(self, text: str, fits: Callable[[str], bool], language: str | None) -> None:
        self._text = text
        self._fits = fits
        self._language = language

    def cut(self, span: Span, level: int) -> Iterator[Span]:
        """Cut a part that does not fit as a whole: level 0 is ends of sentences, 1 of clauses, 2 of words."""
        if level > len(_PLACES):
            yield from self._halve(span)
            return
        pieces = self._pieces(span, level)
        first = 0
        while first < len(pieces):
            count = self._count_fitting(pieces, first)
            if count:
                yield pieces[first][0], pieces[first + count - 1][1]
            else:
                yield from self.cut(pieces[first], level + 1)
            first += max(count, 1)

    def _pieces(self, span: Span, level: int) -> list[Span]:
        start, end = span
        part = self._text[start:end]
        if level == 0:
            return [(start + first, start + last) for first, last in find_sentences(part, self._language)]
        cuts = [0, *(place.end() for place in _PLACES[level - 1].finditer(part)), len(part)]
        spans = (_strip(self._text, start + first, start + last) for first, last in pairwise(cuts))
        return [found for found in spans if found is not None]

    def _halve(self, span: Span) -> Iterator[Span]:
        start, end = span
        if end - start == 1 or self._fits(self._text[start:end]):
            yield span
            return
        middle = (start + end) // 2
        yield from self._halve((start, middle))
        yield from self._halve((middle, end))

    def _count_fitting(self, pieces: Sequence[Span], first: int) -> int:
        """Count how many pieces from `first` on fit when joined, in logarithmically many attempts."""

        def fit(count: int) -> bool:
            return self._fits(self._text[pieces[first][0] : pieces[first + count - 1][1]])

        rest = len(pieces) - first
        if not fit(1):
            return 0
        fitting, excess = 1, 2
        while excess <= rest and fit(excess):
            fitting, excess = excess, 2 * excess
        excess = min(excess, rest + 1)
        while excess - fitting > 1:
            middle = (fitting + excess) // 2
            if fit(middle):
                fitting = middle
            else:
                excess = middle
        return fitting


def _strip(text: str, start: int, end: int) -> Span | None:
    """Return a part without the white space around it; None for a blank one."""
    part = text[start:end]
    inner = part.strip()
    if not inner:
        return None
    first = start + part.index(inner)
    return first, first + len(inner)
