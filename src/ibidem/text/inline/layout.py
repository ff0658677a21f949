"""Positions in a marked text: the blocks that are translated, and the places of marks in a translation.

`split` divides a text into blocks to translate and parts that stay: white space and tags at the edges, line breaks.

`strip_marks` and `project` are for a translation that was made without some of the marks. The word order of the
translation is unknown, so a mark goes to the same relative position as in the source, moved to the nearest word
boundary. Tags go around the translation of their content, translated alone, if that or most of its words are found in
the translation.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from ibidem.text.inline.placeholders import MARK, Role, find_marks, number_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from ibidem.text.inline.placeholders import Mark, Marked

_SPACE = re.compile(r"\s+")
_BREAK = re.compile("[\n\t\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
_ONE_BREAK = re.compile(r"\r?\n\Z")
_SENTENCE_END = re.compile(r"[.:!?;…]\Z")
# A line at least this long that ends inside a sentence was wrapped, and continues in the next line.
_WRAPPED_LENGTH = 40

_QUOTED = re.compile("""([("'\\[„“”‚‘’«»‹›])?([\U000f0000-\U000ffffd])([)"'\\]“”‘’«»‹›])?""")
_STRAIGHT_QUOTES = str.maketrans("„“”‚‘’", "\"\"\"'''")
# Scripts without spaces have a word boundary at every character.
_CJK = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[\U000f0000-\U000ffffd{_CJK}]|[^\W{_CJK}]+(?:['’-]\w+)*")
_MAX_INNER_TEXTS = 20
_PUNCTUATION = " .,:;!?…"
# Shorter words, such as articles, are found everywhere.
_MIN_WORD = 4
_SAME_PREFIX = 5
_MAX_SIMILAR_WORDS = 40
_MAX_COMPARED_WORDS = 1_000
_MIN_SIMILARITY = 0.5


@dataclass(frozen=True, slots=True)
class Block:
    """A text that is translated as a whole.

    Attributes:
        text: The text; wrapped lines are joined.
        width: The length of the longest wrapped line, 0 if none was wrapped.
        newline: The line break between wrapped lines.
    """

    text: str
    width: int = 0
    newline: str = "\n"

    def wrap(self, text: str, marks: Sequence[Mark]) -> str:
        """Wrap a translation to the width of the block.

        Args:
            text: The translation of the block, with marks.
            marks: The marks by number; a mark counts with the length of its code or placeholder.

        Returns:
            The translation with line breaks, unchanged if the block was not wrapped.
        """
        if not self.width:
            return text
        lines: list[str] = []
        room = 0
        for word in text.split():
            length = sum(len(marks[number_of(part)].text) if MARK.match(part) else 1 for part in word)
            if lines and length < room:
                lines[-1] += f" {word}"
                room -= length + 1
            else:
                lines.append(word)
                room = self.width - length
        return self.newline.join(lines)


def split(marked: Marked, *, keep_lines: bool) -> list[str | Block]:
    """Split a text into strings that stay and blocks to translate.

    White space and tags at both ends of the text or of a line stay, and so does a part without letters.

    Args:
        marked: The text.
        keep_lines: Whether line breaks count. If not, runs of white space become one space, as in indented XML.

    Returns:
        The parts in order, which together are the text.
    """
    lead, core, trail = _trim(marked.text, marked.marks)
    parts: list[str | Block] = [lead]
    if not keep_lines:
        parts.append(_to_block(_SPACE.sub(" ", core)))
    else:
        for line in _split_lines(core):
            if isinstance(line, str):
                parts.append(line)
                continue
            begin, text, end = _trim(line.text, marked.marks)
            parts += [begin, _to_block(text, line.width, line.newline), end]
    parts.append(trail)
    return [part for part in parts if part != ""]


def has_letters(text: str) -> bool:
    """Return whether a text contains anything to translate.

    Args:
        text: The text, with or without marks.
    """
    return any(character.isalpha() for character in text)


def _to_block(text: str, width: int = 0, newline: str = "\n") -> str | Block:
    return Block(text, width, newline) if has_letters(text) else text


def _split_lines(text: str) -> Iterator[str | Block]:
    """Yield the lines and, as strings, the breaks between them; wrapped lines are joined."""
    lines, breaks, last = [], [], 0
    for space in _SPACE.finditer(text):
        # Several spaces inside a sentence separate columns of a table.
        column = len(space[0]) > 1 and not _SENTENCE_END.search(text[space.start() - 1 : space.start()])
        if column or _BREAK.search(space[0]):
            lines.append(text[last : space.start()])
            breaks.append(space[0])
            last = space.end()
    lines.append(text[last:])
    joined, width, newline = lines[0], 0, "\n"
    for before, space_between, line in zip(lines, breaks, lines[1:], strict=False):
        if _is_wrapped(before, space_between, line):
            joined, width, newline = f"{joined} {line}", max(width, len(before), len(line)), space_between
            continue
        yield Block(joined, width, newline)
        yield space_between
        joined, width = line, 0
    yield Block(joined, width, newline)


def _is_wrapped(line: str, space_between: str, following: str) -> bool:
    return (
        len(line) >= _WRAPPED_LENGTH
        and _ONE_BREAK.match(space_between) is not None
        and _SENTENCE_END.search(line) is None
        and (following[:1].isalnum() or following[:1] in "\"'(„“‚‘«»" or MARK.match(following) is not None)
    )


def _trim(text: str, marks: Sequence[Mark]) -> tuple[str, str, str]:
    """Return the white space and tags before a text, the text, and those after it."""
    inside = set(find_marks(text))
    start, end = 0, len(text)

    def stays_outside(character: str) -> bool:
        if character.isspace():
            return True
        if not MARK.match(character):
            return False
        mark = marks[number_of(character)]
        return mark.can_stay_outside and (mark.role == Role.SINGLE or mark.partner not in inside)

    while start < end:
        if stays_outside(text[start]):
            start += 1
        elif stays_outside(text[end - 1]):
            end -= 1
        elif _encloses(text[start], text[end - 1], marks):
            start, end = start + 1, end - 1
        else:
            break
    return text[:start], text[start:end], text[end:]


def _encloses(first: str, last: str, marks: Sequence[Mark]) -> bool:
    if not (MARK.match(first) and MARK.match(last)):
        return False
    mark = marks[number_of(first)]
    return mark.role == Role.OPEN and mark.partner == number_of(last)


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a mark in the source.

    Attributes:
        number: The number of the mark.
        text: The mark, with the quotes or brackets around it.
        before: The number of characters before it, without marks.
        glued_left: Whether a word ends directly before it.
        glued_right: Whether a word begins directly after it.
        spaced_left: Whether a space stands before it, apart from other marks.
        spaced_right: Whether a space stands after it, apart from other marks.
    """

    number: int
    text: str
    before: int
    glued_left: bool
    glued_right: bool
    spaced_left: bool = False
    spaced_right: bool = False


@dataclass(frozen=True, slots=True)
class Stripped:
    """A text without its marks.

    Attributes:
        text: The text, with single spaces.
        end: The position after the last word.
        places: The positions that the marks had.
        inner: The texts between two tags, by the number of the opening tag; one without letters is its own translation.
        empty: The numbers of the opening tags with nothing but white space before the closing tag.
    """

    text: str
    end: int
    places: tuple[Place, ...]
    inner: Mapping[int, str]
    empty: frozenset[int]


def strip_marks(text: str, marks: Sequence[Mark], removed: Container[int] | None = None) -> Stripped:
    """Remove the marks from a text, and the quotes or brackets around a single placeholder.

    Args:
        text: The text with marks.
        marks: The marks by number.
        removed: The numbers of the marks to remove; by default all. The others stay in the text.

    Returns:
        The text, and what is needed to put the marks into its translation.
    """
    places: list[Place] = []
    parts: list[str] = []
    length = last = 0
    openings: dict[int, int] = {}
    spans: dict[int, tuple[int, int]] = {}
    for match in _QUOTED.finditer(text):
        number = number_of(match[2])
        if removed is not None and number not in removed:
            continue
        mark = marks[number]
        quoted = bool(match[1] and match[3]) and mark.role == Role.SINGLE
        start, end = match.span() if quoted else match.span(2)
        parts.append(text[last:start])
        length += start - last
        last = end
        written = match[0].translate(_STRAIGHT_QUOTES) if quoted else match[2]
        glued = text[start - 1 : start].isalnum() if start else False, text[end : end + 1].isalnum()
        places.append(Place(number, written, length, *glued))
        if mark.role == Role.OPEN:
            openings[number] = length
        elif mark.partner in openings:
            spans[mark.partner] = (openings[mark.partner], length)
    plain = "".join([*parts, text[last:]])
    stripped = " ".join(plain.split())
    between = {number: " ".join(plain[first:stop].split()) for number, (first, stop) in spans.items()}
    inner = {number: part for number, part in between.items() if part and part != stripped}
    if len(inner) > _MAX_INNER_TEXTS:
        inner = {}
    empty = frozenset(number for number, part in between.items() if not part)
    spaced = tuple(
        replace(
            place,
            spaced_left=plain[max(place.before - 1, 0) : place.before].isspace(),
            spaced_right=plain[place.before : place.before + 1].isspace(),
        )
        for place in places
    )
    return Stripped(stripped, len(plain.rstrip()), spaced, inner, empty)


def project(stripped: Stripped, marks: Sequence[Mark], translation: str, inner: Mapping[int, Sequence[str]]) -> str:
    """Insert the marks of a source into its translation.

    Args:
        stripped: The source without marks.
        marks: The marks, by number.
        translation: The translation of `stripped.text`.
        inner: The possible translations of each text of `stripped.inner`.

    Returns:
        The translation with all marks, in the order of the source.
    """
    anchors = _find_anchors(stripped, marks, translation, inner)
    starts, ends = [], [0]
    for match in _WORD.finditer(translation):
        starts.append(match.start())
        ends.append(match.end())
    scale = len(translation) / max(len(stripped.text), 1)
    # A position may not lie behind the next anchor.
    following = [anchors.get(place.number, len(translation)) for place in reversed(stripped.places)]
    limits = list(accumulate(following, min))[::-1]
    positions: list[int] = []
    found: dict[int, int] = {}
    for place, limit, next_limit in zip(stripped.places, limits, [*limits[1:], len(translation)], strict=True):
        mark = marks[place.number]
        least = positions[-1] if positions else 0
        if place.number in anchors:
            position = anchors[place.number]
        elif (mark.role == Role.OPEN and place.number not in stripped.empty) or (
            mark.role == Role.SINGLE and place.glued_right and not place.glued_left
        ):
            position = _nearest(starts, place.before * scale, least, limit)
        elif mark.role == Role.CLOSE and mark.partner in stripped.empty:
            position = max(least, found[mark.partner])
        elif mark.role == Role.CLOSE:
            # At least one word stands between the two tags.
            opened = found.get(mark.partner, -1) if mark.partner is not None else -1
            position = _nearest(ends, place.before * scale, max(least, opened + 1), limit)
        elif place.before >= stripped.end:
            position = limit
        else:
            position = _nearest(ends, place.before * scale, least, limit)
        if mark.role != Role.SINGLE:
            position = _keep_side_of_space(place, translation, position, least, next_limit)
        positions.append(position)
        found[place.number] = position
    return _insert(stripped.places, marks, translation, positions)


def _keep_side_of_space(place: Place, translation: str, position: int, least: int, most: int) -> int:
    """Return the position of a tag on the same side of a space as in the source, if that is from `least` to `most`."""
    if place.spaced_left and not place.spaced_right and translation[position : position + 1] == " ":
        return min(position + 1, most)
    if place.spaced_right and not place.spaced_left and position > least and translation[position - 1] == " ":
        return position - 1
    return position


def _nearest(edges: Sequence[int], wanted: float, least: int, most: int) -> int:
    """Return the edge from `least` to `most` that is nearest to a position, or `least` if there is none."""
    first, last = bisect_left(edges, least), bisect_left(edges, most + 1)
    if first >= last:
        return min(least, most)
    after = bisect_left(edges, wanted, first, last)
    nearby = edges[max(after - 1, first) : min(after + 1, last)]
    return min(nearby, key=lambda edge: abs(edge - wanted))


def _find_anchors(
    stripped: Stripped, marks: Sequence[Mark], translation: str, inner: Mapping[int, Sequence[str]]
) -> dict[int, int]:
    """Return the positions of tags around their translated content; none if their order would change."""
    anchors: dict[int, int] = {}
    lowered = translation.lower()
    if len(lowered) != len(translation):
        return {}
    scale = len(translation) / max(len(stripped.text), 1)
    places = {place.number: place for place in stripped.places}
    words = [(match[0], *match.span()) for match in _WORD.finditer(lowered)] if inner else []
    for number, texts in inner.items():
        partner = marks[number].partner
        if partner is None:
            continue
        opening, closing = places[number], places[partner]
        glued = opening.glued_left and opening.glued_right, closing.glued_left and closing.glued_right
        contents = [content for text in texts if (content := text.lower().strip())]
        contents += [text for content in contents if (text := content.strip(_PUNCTUATION)) and text != content]
        spans = [span for content in contents for span in _find_equal(lowered, content, *glued)]
        spans = spans or [span for content in contents for span in _find_similar(words, content)]
        if not spans:
            continue
        size, middle = _count_words(stripped.inner[number]), scale * (opening.before + closing.before) / 2

        def rank(span: tuple[int, int], size: int = size, middle: float = middle) -> tuple[int, float]:
            return abs(_count_words(lowered[slice(*span)]) - size), abs(sum(span) / 2 - middle)

        anchors[number], anchors[partner] = min(spans, key=rank)
    order = [anchors[place.number] for place in stripped.places if place.number in anchors]
    return anchors if order == sorted(order) else {}


def _count_words(text: str) -> int:
    return len(_WORD.findall(text))


def _find_equal(text: str, content: str, glued_left: bool, glued_right: bool) -> list[tuple[int, int]]:
    """Return the spans of a text that are another one, as whole words unless it is part of a word in the source."""
    before = r"(?<!\w)" if content[0].isalnum() and not glued_left else ""
    after = r"(?!\w)" if content[-1].isalnum() and not glued_right else ""
    return [match.span() for match in re.finditer(before + re.escape(content) + after, text)]


def _find_similar(words: Sequence[tuple[str, int, int]], content: str) -> list[tuple[int, int]]:
    """Return the spans of a text that share most words with another text; none if that shares too few.

    Words of the other text before its first shared word, or after its last one, are expected there too.

    Args:
        words: The words of the text, each with its start and its end.
        content: The other text.
    """
    content_words = [_stem(word) for word in _WORD.findall(content)]
    wanted, size = Counter(content_words), len(content_words)
    if size > _MAX_SIMILAR_WORDS or len(words) > _MAX_COMPARED_WORDS:
        return []
    stems = [_stem(word) for word, _, _ in words]
    shared = [number for number, stem in enumerate(stems) if stem in wanted and len(stem) >= _MIN_WORD]
    long = [word for word in content_words if len(word) >= _MIN_WORD]
    best, found = _MIN_SIMILARITY, list[tuple[int, int]]()
    for place, first in enumerate(shared):
        missing = wanted.copy()
        common = 0
        for last in shared[place:]:
            if last - first >= 2 * size:
                break
            if missing[stems[last]] > 0:
                missing[stems[last]] -= 1
                common += 1
            similarity = 2 * common / (size + last - first + 1)
            if similarity >= best:
                found = found if similarity == best else []
                found.append((first, last))
                best = similarity
    return [
        (
            words[max(first - long.index(stems[first]), 0)][1],
            words[min(last + long[::-1].index(stems[last]), len(words) - 1)][2],
        )
        for first, last in found
    ]


def _stem(word: str) -> str:
    return word[:_SAME_PREFIX]


def _insert(places: Sequence[Place], marks: Sequence[Mark], translation: str, positions: Sequence[int]) -> str:
    written: list[str] = []
    last = 0
    end = ""
    for place, position in zip(places, positions, strict=True):
        if position > last:
            written.append(translation[last:position])
            end, last = translation[position - 1], position
        text = place.text
        if marks[place.number].role == Role.SINGLE:
            if end and not (end.isspace() or place.glued_left or _is_opening(end, marks)):
                text = f" {text}"
            if translation[position : position + 1].isalnum() and not place.glued_right:
                text = f"{text} "
        written.append(text)
        end = text[-1]
    return "".join([*written, translation[last:]])


def _is_opening(character: str, marks: Sequence[Mark]) -> bool:
    return MARK.match(character) is not None and marks[number_of(character)].role == Role.OPEN
