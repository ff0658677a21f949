"""The letter of a label that is pressed with Alt: taken out before translation, put back on a suitable letter after."""

from __future__ import annotations

import re
from typing import NamedTuple

from ibidem.text.cleaning import MARKERS, find_accelerator

_INSIDE_NAMES = re.compile(r"[\w/.:=?@-]")
_MOST_WORDS = 12
_TAIL = re.compile(r"\s*(?:\.{3}|…|:)?\s*\Z")


class Accelerator(NamedTuple):
    """The marker (`&`, `_` or `~`), the letter after it, and how many words before it begin with the same letter."""

    marker: str
    letter: str
    earlier: int = 0


def take_accelerator(text: str) -> tuple[str, Accelerator | None]:
    """Remove the marker of the one accelerator of a text, if it has one.

    A text alone does not say what a marker means, so it is judged by its look. Before a word it is an accelerator:
    `&File`, `Save _As`. Inside a word it is one before a small letter, `&` and `~` anywhere (`Sp&eichern`, but not
    `R&D`), `_` only in a word that begins with a capital (`E_xit`, but not `file_name`). A long text has no `_` or
    `~` that is one.
    """
    for marker in MARKERS:
        place = find_accelerator(text, marker)
        if place is not None and _is_meant(text, place, marker):
            letter = text[place + 1]
            earlier = len(_find_initials(text[:place], letter))
            return text[:place] + text[place + 1 :], Accelerator(marker, letter, earlier)
    return text, None


def put_accelerator(text: str, accelerator: Accelerator) -> str:
    """Put the marker before the same letter at the beginning of a word if there is one, else before the first letter.

    Of several such words it is the one that was marked, counted from the left, or the last. A text without any letter
    that a keyboard with letters has, as in Chinese, gets it at its end: `文件(&F)`.
    """
    marker, letter, earlier = accelerator
    same = _find_initials(text, letter)
    cased = [
        place for place in _find_words(text) if text[place].isdigit() or text[place].lower() != text[place].upper()
    ]
    for place in (*same[earlier:], *same[-1:], *cased):
        return text[:place] + marker + text[place:]
    tail = _TAIL.search(text)
    end = tail.start() if tail else len(text)
    return f"{text[:end]}({marker}{letter.upper()}){text[end:]}"


def _find_words(text: str) -> list[int]:
    """Where words begin."""
    return [match.start() for match in re.finditer(r"(?<![\w'’])[^\W_]", text)]


def _find_initials(text: str, letter: str) -> list[int]:
    """Where words begin with a letter, large or small."""
    return [place for place in _find_words(text) if text[place].casefold() == letter.casefold()]


def _is_meant(text: str, place: int, marker: str) -> bool:
    before, after = text[place - 1 : place], text[place + 1]
    if marker != "&" and (len(text.split()) > _MOST_WORDS or not after.isalpha()):
        return False
    if not _INSIDE_NAMES.match(before):
        return True
    if not after.islower() or not before.isalpha():
        return False
    return marker != "_" or _word_at(text, place)[:1].isupper()


def _word_at(text: str, place: int) -> str:
    start = place
    while start > 0 and text[start - 1].isalpha():
        start -= 1
    return text[start:place]
