"""A text cut into what is translated and what stays as it is: edges, line breaks, tags around everything."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ibidem.text.inline.code import Role
from ibidem.text.inline.marking import MARK, find_marks, number_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ibidem.text.inline.marking import Mark, Marked

_SPACE = re.compile(r"\s+")
_BREAK = re.compile("[\n\t\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
_ONE_BREAK = re.compile(r"\r?\n\Z")
_SENTENCE_END = re.compile(r"[.:!?;…]\Z")

_WRAPPED = 40
"""A line at least this long that ends inside a sentence was broken for its length, and reads on in the next one."""


@dataclass(frozen=True, slots=True)
class Block:
    """Text that is translated as a whole; where its lines were wrapped, it is one line, and `width` the longest."""

    text: str
    width: int = 0
    newline: str = "\n"

    def arrange(self, text: str, marks: Sequence[Mark]) -> str:
        """Wrap a translation as the block was."""
        if not self.width:
            return text
        lines: list[str] = []
        room = 0
        for word in text.split(" "):
            length = sum(len(marks[number_of(part)].text) if MARK.match(part) else 1 for part in word)
            if lines and length < room:
                lines[-1] += f" {word}"
                room -= length + 1
            else:
                lines.append(word)
                room = self.width - length
        return self.newline.join(lines)


def cut(marked: Marked, *, keep_lines: bool) -> list[str | Block]:
    """The parts of a text in order: a string stays, a block is translated; together they are the text.

    White space and tags at both ends of a text or a line stay, and so does a part without any letter. Unless
    `keep_lines`, runs of white space inside are one space, as where XML was indented.
    """
    lead, core, trail = _trim(marked.text, marked.marks)
    parts: list[str | Block] = [lead]
    if not keep_lines:
        parts.append(_block(_SPACE.sub(" ", core)))
    else:
        for line in _lines(core):
            if isinstance(line, str):
                parts.append(line)
                continue
            begin, text, end = _trim(line.text, marked.marks)
            parts += [begin, _block(text, line.width, line.newline), end]
    parts.append(trail)
    return [part for part in parts if part != ""]


def has_letters(text: str) -> bool:
    """Whether there is anything to translate."""
    return any(character.isalpha() for character in text)


def _block(text: str, width: int = 0, newline: str = "\n") -> str | Block:
    return Block(text, width, newline) if has_letters(text) else text


def _lines(text: str) -> Iterator[str | Block]:
    """The lines and, as strings, the breaks between them; wrapped lines are joined."""
    lines, breaks, last = [], [], 0
    for space in _SPACE.finditer(text):
        # Spaces inside a sentence are a column of a table.
        column = len(space[0]) > 1 and not _SENTENCE_END.search(text[space.start() - 1 : space.start()])
        if column or _BREAK.search(space[0]):
            lines.append(text[last : space.start()])
            breaks.append(space[0])
            last = space.end()
    lines.append(text[last:])
    joined, width, newline = lines[0], 0, "\n"
    for before, space_between, line in zip(lines, breaks, lines[1:], strict=False):
        if _goes_on(before, space_between, line):
            joined, width, newline = f"{joined} {line}", max(width, len(before), len(line)), space_between
            continue
        yield Block(joined, width, newline)
        yield space_between
        joined, width = line, 0
    yield Block(joined, width, newline)


def _goes_on(line: str, space_between: str, following: str) -> bool:
    return (
        len(line) >= _WRAPPED
        and _ONE_BREAK.match(space_between) is not None
        and _SENTENCE_END.search(line) is None
        and (following[:1].isalnum() or following[:1] in "\"'(„“‚‘«»" or MARK.match(following) is not None)
    )


def _trim(text: str, marks: Sequence[Mark]) -> tuple[str, str, str]:
    """White space and tags before a text, the text, and those after it."""
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
