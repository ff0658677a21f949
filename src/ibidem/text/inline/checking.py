"""Whether a translation has all the codes and placeholders of its source, each where it may stand."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from ibidem.text.inline.code import Code, Role
from ibidem.text.inline.marking import MARK, find_marks, mark, number_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.text.inline.code import Pieces
    from ibidem.text.inline.marking import Mark, Marked

# Control characters, halves of pairs and no characters at all: no format holds them.
_ODD = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")


def find_problem(marked: Marked, source: str, target: str, *, printf: bool) -> str | None:
    """What is wrong with a part of a translation, in words; None if it is sound.

    `source` and `target` are texts with the marks of `marked`.
    """
    here, there = find_marks(source), find_marks(target)
    problem = None
    if here or there:
        problem = (
            _counted(marked.marks, here, there)
            or _misplaced(marked.marks, here, there)
            or _emptied(marked.marks, source, target)
        )
    return problem or compare(marked.unmark(source), marked.unmark(target), printf=printf)


def compare(source: Pieces, target: Pieces, *, printf: bool) -> str | None:
    """What a program that reads the translation would miss, or find too much: both texts are looked at afresh."""
    here = mark(source, printf=printf, accelerators=False)
    there = mark(target, printf=printf, accelerators=False)
    expected, found = Counter(_names(here)), Counter(_names(there))
    if found != expected:
        return _difference(expected, found)
    if [m.text for m in here.marks if m.ordered] != [m.text for m in there.marks if m.ordered]:
        return "the order of placeholders without numbers changed"
    watched = "{}<>\\" + ("%" if printf or any(m.text.startswith("%") for m in here.marks) else "")
    before, after = MARK.sub("", here.text), MARK.sub("", there.text)
    for character in watched:
        if after.count(character) > before.count(character):
            return f"a {character} came up that the source does not have"
    for character in "{}":
        if after.count(character) < before.count(character):
            return f"a {character} got lost"
    odd = set(_ODD.findall(after)) - set(before)
    return f"the character U+{ord(min(odd)):04X} came up" if odd else None


def count_placeholders(pieces: Pieces, *, printf: bool) -> Counter[str]:
    """How often each code and placeholder is in a text; names of programs do not count."""
    return Counter(_names(mark(pieces, printf=printf, accelerators=False, names=False)))


def _describe(counts: Counter[str]) -> str:
    """Codes in words, the first few of them."""
    names = [name if len(name) <= 40 else f"{name[:40]}…" for name in counts]
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")


def _names(marked: Marked) -> list[str]:
    return [found.text for found in marked.marks]


def _difference(expected: Counter[str], found: Counter[str]) -> str:
    lost, extra = expected - found, found - expected
    if lost:
        return f"{_describe(lost)} got lost"
    return f"{_describe(extra)} came up"


def _counted(marks: Sequence[Mark], source: list[int], target: list[int]) -> str | None:
    if Counter(source) == Counter(target):
        return None
    return _difference(
        Counter(marks[number].text for number in source), Counter(marks[number].text for number in target)
    )


def _misplaced(marks: Sequence[Mark], source: list[int], target: list[int]) -> str | None:
    """Tags may be in another order only if they still open and close each other properly."""
    here = [number for number in source if marks[number].is_tag or _is_fixed(marks[number].code)]
    there = [number for number in target if marks[number].is_tag or _is_fixed(marks[number].code)]
    if here == there:
        return None
    strict = any(_is_fixed(marks[number].code) for number in here) or not _nests(marks, here)
    if strict or not _nests(marks, there):
        return "tags came back in an order that does not open and close properly"
    return None


def _is_fixed(code: Code | None) -> bool:
    return code is not None and code.fixed


def _nests(marks: Sequence[Mark], numbers: list[int]) -> bool:
    stack: list[int] = []
    for number in numbers:
        role, partner = marks[number].role, marks[number].partner
        if role == Role.OPEN:
            stack.append(number)
        elif role == Role.CLOSE and (not stack or stack.pop() != partner):
            return False
    return not stack


def _emptied(marks: Sequence[Mark], source: str, target: str) -> str | None:
    """A pair of tags around something must have something in it in the translation too."""
    filled = _filled_pairs(marks, source) - _filled_pairs(marks, target)
    return f"{marks[min(filled)].text} has nothing in it any more" if filled else None


def _filled_pairs(marks: Sequence[Mark], text: str) -> set[int]:
    """The opening tags with anything but white space and tags before their closing ones."""
    filled: set[int] = set()
    seen: dict[int, int] = {}
    content = 0
    for character in text:
        number = number_of(character) if MARK.match(character) else None
        if number is None or not marks[number].is_tag:
            content += not character.isspace()
            continue
        partner = marks[number].partner
        if partner in seen and content > seen[partner]:
            filled.add(partner)
        seen[number] = content
    return filled
