"""Removes what belongs to the user interface, not to the language, from the messages of a catalogue.

Two things only: accelerator markers (`&File`, `_File`, `~File`: the letter to press with Alt) and the context
that KDE once wrote into the message (`_: context\\n`).
"""

from __future__ import annotations

import re

MARKERS = "&_~"

_CONTEXT = re.compile(r"\A_:[^\n]*\n")
_ENTITY = re.compile(r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);")
_GLUE = frozenset("/.:=?@-")


def clean(original: str, translation: str) -> tuple[str, str]:
    """Return both sides of a message without old context and accelerators."""
    return remove_accelerators(remove_context(original), remove_context(translation))


def remove_context(text: str) -> str:
    """Remove the first line of a message where it is a KDE context: `_: verb\\nOpen` is `Open`."""
    return _CONTEXT.sub("", text)


def remove_accelerators(original: str, translation: str) -> tuple[str, str]:
    """Remove the accelerator marker where both sides have one, and have the same one.

    A marker is an accelerator before a letter or a digit, at any place in a word, if it is the only one of
    its kind on its side. Doubled markers (`&&`, `__`), markers that stand alone (`a & b`) and character
    references (`&amp;`) are text and do not count. Markers that stand inside a word on both sides belong to
    names and stay, if the words are the same or end the same (`foo_bar`, `?a=1&b=2`, `msgid_plural` and
    `msgstr_plural`) or a capital follows (`R&D` and `F&E`, `new_name` and `neuer_Name`).
    """
    for marker in MARKERS:
        here, there = find_accelerator(original, marker), find_accelerator(translation, marker)
        if here is None or there is None or _are_names(original, here, translation, there):
            continue
        return original[:here] + original[here + 1 :], translation[:there] + translation[there + 1 :]
    return original, translation


def find_accelerator(text: str, marker: str) -> int | None:
    """Return the position of the only accelerator with this marker, or None."""
    if marker not in text:
        return None
    masked = _ENTITY.sub(lambda entity: " " * len(entity[0]), text)
    places = [match.start() for match in re.finditer(marker, masked) if not _is_text(masked, match.start())]
    if len(places) != 1 or not masked[places[0] + 1 : places[0] + 2].isalnum():
        return None
    return places[0]


def _is_text(text: str, place: int) -> bool:
    """Tell whether a marker is doubled or stands alone."""
    before, after = text[place - 1 : place] if place else "", text[place + 1 : place + 2]
    return text[place] in (before, after) or not (before + after).strip()


def _are_names(original: str, here: int, translation: str, there: int) -> bool:
    """Tell whether two markers stand in names or placeholders, not before the letter to press."""
    if not (_is_inside(original, here) and _is_inside(translation, there)):
        return False
    # Inside a word the letter to press is a small one.
    if original[here + 1].isupper() or translation[there + 1].isupper():
        return True
    head, tail = _halves(original, here)
    other_head, other_tail = _halves(translation, there)
    return tail == other_tail and (head == other_head or len(tail) > 2)


def _is_inside(text: str, place: int) -> bool:
    return place > 0 and (text[place - 1].isalnum() or text[place - 1] in _GLUE)


def _halves(text: str, place: int) -> tuple[str, str]:
    """Return the letters and digits before and after a marker, in small letters."""
    start, end = place, place + 1
    while start > 0 and text[start - 1].isalnum():
        start -= 1
    while end < len(text) and text[end].isalnum():
        end += 1
    return text[start:place].lower(), text[place + 1 : end].lower()
