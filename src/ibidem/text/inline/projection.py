"""Codes put into a translation that was made without them, by their relative place in the source.

What a translator makes of the word order is not known, so the place is a guess, but always the same one: the share
of the text before a code, moved to the nearest edge of a word, in the order of the source. Where the text between two
tags, translated alone, stands exactly once in the translation, the tags go around it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from ibidem.text.inline.code import Role
from ibidem.text.inline.layout import has_letters
from ibidem.text.inline.marking import MARK, number_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ibidem.text.inline.marking import Mark

_QUOTED = re.compile("""([("'\\[„“”‚‘’«»‹›])?([\U000f0000-\U000ffffd])([)"'\\]“”‘’«»‹›])?""")
_STRAIGHT = str.maketrans("„“”‚‘’", "\"\"\"'''")
# Scripts without spaces have an edge at every character.
_CJK = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+(?:['’-]\w+)*")
_MOST_ASKED = 20
_PUNCTUATION = " .,:;!?…"


@dataclass(frozen=True, slots=True)
class Place:
    """A mark, what is written for it, and where it stood: characters before it, and whether words touched it."""

    number: int
    text: str
    before: int
    glued_left: bool
    glued_right: bool


@dataclass(frozen=True, slots=True)
class Stripped:
    """A text without its marks, the places they had, and the texts in its tags by the number of the opening one.

    `end` is the place behind the last word.
    """

    text: str
    end: int
    places: tuple[Place, ...]
    inner: Mapping[int, str]


def strip_marks(text: str, marks: Sequence[Mark]) -> Stripped:
    """Take the marks out, and with a single placeholder the quotes or brackets around it."""
    places: list[Place] = []
    parts: list[str] = []
    length = last = 0
    openings: dict[int, int] = {}
    inner: dict[int, tuple[int, int]] = {}
    for match in _QUOTED.finditer(text):
        number = number_of(match[2])
        mark = marks[number]
        quoted = bool(match[1] and match[3]) and mark.role == Role.SINGLE
        start, end = match.span() if quoted else match.span(2)
        parts.append(text[last:start])
        length += start - last
        last = end
        written = match[0].translate(_STRAIGHT) if quoted else match[2]
        touches = text[start - 1 : start].isalnum() if start else False, text[end : end + 1].isalnum()
        places.append(Place(number, written, length, *touches))
        if mark.role == Role.OPEN:
            openings[number] = length
        elif mark.partner in openings:
            inner[mark.partner] = (openings[mark.partner], length)
    plain = "".join([*parts, text[last:]])
    stripped = " ".join(plain.split())
    between = {number: " ".join(plain[first:stop].split()) for number, (first, stop) in inner.items()}
    asked = {number: part for number, part in between.items() if has_letters(part) and part != stripped}
    if len(asked) > _MOST_ASKED:
        asked = {}
    return Stripped(stripped, len(plain.rstrip()), tuple(places), asked)


def project(stripped: Stripped, marks: Sequence[Mark], translation: str, inner: Mapping[int, str]) -> str:
    """The translation with all marks; `inner` has translations of the texts in tags."""
    anchors = _anchors(stripped, marks, translation, inner)
    starts, ends = [], [0]
    for match in _WORD.finditer(translation):
        starts.append(match.start())
        ends.append(match.end())
    scale = len(translation) / max(len(stripped.text), 1)
    # A spot may not lie behind the next one that is certain.
    certain = [anchors.get(place.number, len(translation)) for place in reversed(stripped.places)]
    limits = list(accumulate(certain, min))[::-1]
    spots: list[int] = []
    found: dict[int, int] = {}
    for place, limit in zip(stripped.places, limits, strict=True):
        mark = marks[place.number]
        least = spots[-1] if spots else 0
        if place.number in anchors:
            spot = anchors[place.number]
        elif mark.role == Role.OPEN or (mark.role == Role.SINGLE and place.glued_right and not place.glued_left):
            spot = _nearest(starts, place.before * scale, least, limit)
        elif mark.role == Role.CLOSE:
            # At least one word stands between the two tags.
            opened = found.get(mark.partner, -1) if mark.partner is not None else -1
            spot = _nearest(ends, place.before * scale, max(least, opened + 1), limit)
        elif place.before >= stripped.end:
            spot = limit
        else:
            spot = _nearest(ends, place.before * scale, least, limit)
        spots.append(spot)
        found[place.number] = spot
    return _insert(stripped.places, marks, translation, spots)


def _nearest(edges: Sequence[int], wanted: float, least: int, most: int) -> int:
    """The edge nearest to the wanted place from `least` to `most`; `least` where there is none."""
    first, last = bisect_left(edges, least), bisect_left(edges, most + 1)
    if first >= last:
        return min(least, most)
    after = bisect_left(edges, wanted, first, last)
    nearby = edges[max(after - 1, first) : min(after + 1, last)]
    return min(nearby, key=lambda edge: abs(edge - wanted))


def _anchors(stripped: Stripped, marks: Sequence[Mark], translation: str, inner: Mapping[int, str]) -> dict[int, int]:
    """Where tags stand around the translation of what was in them; none at all if their order would change."""
    anchors: dict[int, int] = {}
    hay = translation.lower()
    if len(hay) != len(translation):
        return {}
    for number, text in inner.items():
        partner = marks[number].partner
        needle = text.lower().strip(_PUNCTUATION)
        spans = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(needle)}(?!\w)", hay)] if needle else []
        if partner is not None and len(spans) == 1:
            anchors[number], anchors[partner] = spans[0]
    order = [anchors[place.number] for place in stripped.places if place.number in anchors]
    return anchors if order == sorted(order) else {}


def _insert(places: Sequence[Place], marks: Sequence[Mark], translation: str, spots: Sequence[int]) -> str:
    written: list[str] = []
    last = 0
    end = ""
    for place, spot in zip(places, spots, strict=True):
        if spot > last:
            written.append(translation[last:spot])
            end, last = translation[spot - 1], spot
        text = place.text
        if marks[place.number].role == Role.SINGLE:
            if end and not (end.isspace() or place.glued_left or _opens(end, marks)):
                text = f" {text}"
            if translation[spot : spot + 1].isalnum() and not place.glued_right:
                text = f"{text} "
        written.append(text)
        end = text[-1]
    return "".join([*written, translation[last:]])


def _opens(character: str, marks: Sequence[Mark]) -> bool:
    return MARK.match(character) is not None and marks[number_of(character)].role == Role.OPEN
