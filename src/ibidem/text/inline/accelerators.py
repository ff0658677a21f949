"""Accelerators of user interface labels: the letter after `&`, `_` or `~` that is pressed with Alt.

In a corpus, the markers of a message and its translation are removed together. In a document, the marker is taken out
of the text before translation and is put before a suitable letter of the translation.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_MARKERS = "&_~"
_ENTITY = re.compile(r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);")
_JOINERS = frozenset("/.:=?@-")
_INSIDE_NAMES = re.compile(r"[\w/.:=?@-]")
_MAX_WORDS = 12
_TAIL = re.compile(r"\s*(?:\.{3}|…|:)?\s*\Z")


class Accelerator(NamedTuple):
    """An accelerator that was taken out of a text.

    Attributes:
        marker: `&`, `_` or `~`.
        letter: The letter after the marker.
        earlier: The number of words before it that begin with the same letter.
    """

    marker: str
    letter: str
    earlier: int = 0


def find_accelerator(text: str, marker: str) -> int | None:
    """Find the only accelerator with a marker.

    Doubled markers (`&&`, `__`), markers that stand alone (`a & b`) and character references (`&amp;`) are text and
    do not count.

    Args:
        text: The label.
        marker: `&`, `_` or `~`.

    Returns:
        The position of the marker, None if there is no accelerator or more than one.
    """
    if marker not in text:
        return None
    masked = _ENTITY.sub(lambda entity: " " * len(entity[0]), text)
    positions = [match.start() for match in re.finditer(marker, masked) if not _is_text(masked, match.start())]
    if len(positions) != 1 or not masked[positions[0] + 1 : positions[0] + 2].isalnum():
        return None
    return positions[0]


def remove_accelerators(original: str, translation: str) -> tuple[str, str]:
    """Remove the accelerator marker if both sides have one, and the same one.

    A marker is an accelerator before a letter or a digit, at any position in a word, if it is the only one of its kind
    on its side. Markers that stand inside a word on both sides belong to names and stay, if the words are the same or
    end the same (`foo_bar`, `?a=1&b=2`, `msgid_plural` and `msgstr_plural`) or a capital follows (`R&D` and `F&E`,
    `new_name` and `neuer_Name`).

    Args:
        original: The label.
        translation: Its translation.

    Returns:
        Both sides, unchanged if not both have the same marker.

    Examples:
        >>> remove_accelerators("E&xit", "B&eenden")
        ('Exit', 'Beenden')
    """
    for marker in _MARKERS:
        first, second = find_accelerator(original, marker), find_accelerator(translation, marker)
        if first is None or second is None or _are_names(original, first, translation, second):
            continue
        return original[:first] + original[first + 1 :], translation[:second] + translation[second + 1 :]
    return original, translation


def take_accelerator(text: str) -> tuple[str, Accelerator | None]:
    """Remove the accelerator marker from a single text.

    Without a translation to compare with, the form decides. Before a word the marker is an accelerator: `&File`,
    `Save _As`. Inside a word it is one before a small letter: `&` and `~` anywhere (`Sp&eichern`, but not `R&D`), `_`
    only in a word that begins with a capital (`E_xit`, but not `file_name`). In a long text, `_` and `~` never are.

    Args:
        text: The label.

    Returns:
        The text without the marker, and the accelerator, None if there is none.

    Examples:
        >>> take_accelerator("Save _As")
        ('Save As', Accelerator(marker='_', letter='A', earlier=0))
    """
    for marker in _MARKERS:
        position = find_accelerator(text, marker)
        if position is not None and _is_accelerator(text, position, marker):
            letter = text[position + 1]
            earlier = len(_find_initials(text[:position], letter))
            return text[:position] + text[position + 1 :], Accelerator(marker, letter, earlier)
    return text, None


def put_accelerator(text: str, accelerator: Accelerator) -> str:
    """Put the marker of an accelerator into a translation.

    It goes before the same letter at the beginning of a word, or else before the first letter. Of several words with
    this letter, it is the one with the same rank as in the source, or the last. A text without letters that a keyboard
    has, as in Chinese, gets the accelerator at its end.

    Args:
        text: The translation, without a marker.
        accelerator: The accelerator of the source, as `take_accelerator` returns it.

    Examples:
        >>> put_accelerator("文件", Accelerator("&", "F"))
        '文件(&F)'
    """
    marker, letter, earlier = accelerator
    same = _find_initials(text, letter)
    cased = [
        position
        for position in _find_words(text)
        if text[position].isdigit() or text[position].lower() != text[position].upper()
    ]
    for position in (*same[earlier:], *same[-1:], *cased):
        return text[:position] + marker + text[position:]
    tail = _TAIL.search(text)
    end = tail.start() if tail else len(text)
    return f"{text[:end]}({marker}{letter.upper()}){text[end:]}"


def _is_text(text: str, position: int) -> bool:
    """Return whether a marker is doubled or stands alone."""
    before, after = text[position - 1 : position] if position else "", text[position + 1 : position + 2]
    return text[position] in (before, after) or not (before + after).strip()


def _are_names(original: str, first: int, translation: str, second: int) -> bool:
    """Return whether two markers stand in names or placeholders, not before an accelerator."""
    if not (_is_inside(original, first) and _is_inside(translation, second)):
        return False
    # Inside a word, the letter of an accelerator is a small one.
    if original[first + 1].isupper() or translation[second + 1].isupper():
        return True
    head, tail = _split_word(original, first)
    other_head, other_tail = _split_word(translation, second)
    return tail == other_tail and (head == other_head or len(tail) > 2)


def _is_inside(text: str, position: int) -> bool:
    return position > 0 and (text[position - 1].isalnum() or text[position - 1] in _JOINERS)


def _split_word(text: str, position: int) -> tuple[str, str]:
    """Return the letters and digits before and after a marker, in lower case."""
    start, end = position, position + 1
    while start > 0 and text[start - 1].isalnum():
        start -= 1
    while end < len(text) and text[end].isalnum():
        end += 1
    return text[start:position].lower(), text[position + 1 : end].lower()


def _is_accelerator(text: str, position: int, marker: str) -> bool:
    before, after = text[position - 1 : position], text[position + 1]
    if marker != "&" and (len(text.split()) > _MAX_WORDS or not after.isalpha()):
        return False
    if not _INSIDE_NAMES.match(before):
        return True
    if not after.islower() or not before.isalpha():
        return False
    start = position
    while start > 0 and text[start - 1].isalpha():
        start -= 1
    return marker != "_" or text[start].isupper()


def _find_words(text: str) -> list[int]:
    return [match.start() for match in re.finditer(r"(?<![\w'’])[^\W_]", text)]


def _find_initials(text: str, letter: str) -> list[int]:
    """Return the positions of words that begin with a letter, in upper or lower case."""
    return [position for position in _find_words(text) if text[position].casefold() == letter.casefold()]
