"""Comparison of a translation with its source: every code and placeholder once, and where it may stand."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from ibidem.text.inline.placeholders import MARK, Code, Role, find_marks, mark, number_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.text.inline.placeholders import Mark, Marked, Pieces

# Control characters, surrogates and noncharacters, which no format can contain.
_ODD = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_MAX_LISTED = 5
_MAX_NAME = 40


def find_problem(marked: Marked, source: str, target: str, *, printf: bool) -> str | None:
    """Describe what is wrong with the translation of a block.

    Args:
        marked: The marks of the text.
        source: The block, with these marks.
        target: Its translation, with these marks.
        printf: Whether the text is a format string.

    Returns:
        The problem in words, None if there is none.
    """
    expected, found = find_marks(source), find_marks(target)
    problem = None
    if expected or found:
        problem = (
            _find_miscount(marked.marks, expected, found)
            or _find_misplaced(marked.marks, expected, found)
            or _find_emptied(marked.marks, source, target)
        )
    return problem or compare(marked.unmark(source), marked.unmark(target), printf=printf)


def compare(source: Pieces, target: Pieces, *, printf: bool) -> str | None:
    """Describe how the placeholders of two texts differ; both texts are searched for placeholders anew.

    Args:
        source: The source and its codes.
        target: The translation and its codes.
        printf: Whether the text is a format string, in which every `%` begins a placeholder.

    Returns:
        The difference in words, None if there is none.

    Examples:
        >>> compare(("Datei %s fehlt",), ("File is missing",), printf=True)
        '%s is missing'
    """
    expected = mark(source, printf=printf, accelerators=False)
    found = mark(target, printf=printf, accelerators=False)
    if difference := _describe_difference(_count(expected), _count(found)):
        return difference
    if [m.text for m in expected.marks if m.ordered] != [m.text for m in found.marks if m.ordered]:
        return "the order of placeholders without numbers changed"
    watched = "{}<>\\" + ("%" if printf or any(m.text.startswith("%") for m in expected.marks) else "")
    before, after = MARK.sub("", expected.text), MARK.sub("", found.text)
    for character in watched:
        if after.count(character) > before.count(character):
            return f"a {character} was added that the source does not have"
    for character in "{}":
        if after.count(character) < before.count(character):
            return f"a {character} is missing"
    odd = set(_ODD.findall(after)) - set(before)
    return f"the character U+{ord(min(odd)):04X} was added" if odd else None


def count_placeholders(pieces: Pieces, *, printf: bool) -> Counter[str]:
    """Count each code and placeholder of a text, without identifiers of programs.

    Args:
        pieces: The text and its codes.
        printf: Whether the text is a format string, in which every `%` begins a placeholder.

    Returns:
        The number of occurrences, by the text of the code or placeholder.
    """
    return _count(mark(pieces, printf=printf, accelerators=False, identifiers=False))


def _count(marked: Marked) -> Counter[str]:
    return Counter(found.text for found in marked.marks)


def _describe_difference(expected: Counter[str], found: Counter[str]) -> str | None:
    if missing := expected - found:
        return f"{_list(missing)} {'is' if len(missing) == 1 else 'are'} missing"
    if added := found - expected:
        return f"{_list(added)} {'was' if len(added) == 1 else 'were'} added"
    return None


def _list(counts: Counter[str]) -> str:
    names = [name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…" for name in counts]
    return ", ".join(names[:_MAX_LISTED]) + (", …" if len(names) > _MAX_LISTED else "")


def _find_miscount(marks: Sequence[Mark], source: list[int], target: list[int]) -> str | None:
    if Counter(source) == Counter(target):
        return None
    counts = [Counter(marks[number].text for number in numbers) for numbers in (source, target)]
    return _describe_difference(*counts) or "a code or placeholder was replaced by another one of the same form"


def _find_misplaced(marks: Sequence[Mark], source: list[int], target: list[int]) -> str | None:
    """Accept tags in another order only if they still open and close each other properly."""
    expected = [number for number in source if marks[number].is_tag or _is_fixed(marks[number].code)]
    found = [number for number in target if marks[number].is_tag or _is_fixed(marks[number].code)]
    if expected == found:
        return None
    strict = any(_is_fixed(marks[number].code) for number in expected) or not _is_nested(marks, expected)
    if strict or not _is_nested(marks, found):
        return "the tags are in an order that does not open and close properly"
    return None


def _is_fixed(code: Code | None) -> bool:
    return code is not None and code.fixed


def _is_nested(marks: Sequence[Mark], numbers: list[int]) -> bool:
    stack: list[int] = []
    for number in numbers:
        role, partner = marks[number].role, marks[number].partner
        if role == Role.OPEN:
            stack.append(number)
        elif role == Role.CLOSE and (not stack or stack.pop() != partner):
            return False
    return not stack


def _find_emptied(marks: Sequence[Mark], source: str, target: str) -> str | None:
    """Refuse an empty pair of tags that has content in the source."""
    emptied = _find_filled_pairs(marks, source) - _find_filled_pairs(marks, target)
    return f"{marks[min(emptied)].text} is empty in the translation" if emptied else None


def _find_filled_pairs(marks: Sequence[Mark], text: str) -> set[int]:
    """Return the opening tags with anything but white space and tags before their closing tags."""
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
