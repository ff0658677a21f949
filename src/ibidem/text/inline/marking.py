"""A text whose codes and placeholders are single characters, so that it can be cut, compared and put together."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ibidem.text.inline.accelerators import Accelerator, take_accelerator
from ibidem.text.inline.code import Code, Role
from ibidem.text.inline.placeholders import LINE_BREAKS, PLACEHOLDER, PRINTF_PLACEHOLDER, UNNUMBERED, VOID, find_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.text.inline.code import Pieces

# The characters for private use of the last plane but one; in a text they are marks themselves.
_FIRST = 0xF0000
MOST_MARKS = 0xFFFE
MARK = re.compile("[\U000f0000-\U000ffffd]")

_TAG_NAME = re.compile(r"</?([A-Za-z][\w:.-]*)")
_LONGEST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Mark:
    """What one private character stands for.

    `code` is the document's own code, None for a placeholder found in the text. `partner` is the number of the mark
    that closes or opens this one. `ordered` marks take the next argument of a program: their order counts.
    """

    text: str
    code: Code | None = None
    role: Role = Role.SINGLE
    partner: int | None = None
    is_tag: bool = False
    ordered: bool = False

    @property
    def can_stay_outside(self) -> bool:
        """Whether at the edge of a text it has nothing to do with the words."""
        return self.is_tag or (self.code is None and self.text in LINE_BREAKS)

    @property
    def can_be_shown(self) -> bool:
        """Whether a translator may see it as it stands: it is text, short and without a space."""
        return (
            self.code is None and len(self.text) <= _LONGEST_SHOWN and self.text.isprintable() and " " not in self.text
        )


@dataclass(frozen=True, slots=True)
class Marked:
    """A text with private characters, what they stand for, and the accelerator that was taken out."""

    text: str
    marks: tuple[Mark, ...]
    accelerator: Accelerator | None = None

    def unmark(self, text: str) -> Pieces:
        """A text with these marks as strings and the document's codes."""
        pieces: list[str | Code] = []
        run: list[str] = []
        last = 0
        for match in MARK.finditer(text):
            run.append(text[last : match.start()])
            last = match.end()
            mark = self.marks[number_of(match[0])]
            if mark.code is None:
                run.append(mark.text)
            else:
                pieces += ["".join(run), mark.code]
                run = []
        pieces.append("".join([*run, text[last:]]))
        return tuple(piece for piece in pieces if piece != "")


def character_of(number: int) -> str:
    """The private character of a mark."""
    return chr(_FIRST + number)


def number_of(character: str) -> int:
    """The number of the mark that a private character stands for."""
    return ord(character) - _FIRST


def find_marks(text: str) -> list[int]:
    """The numbers of the marks in a text, in order."""
    return [number_of(character) for character in MARK.findall(text)]


def mark(pieces: Pieces, *, printf: bool = False, accelerators: bool = True, names: bool = True) -> Marked:
    """Replace codes and placeholders by private characters; with `printf` every `%` begins a placeholder.

    Unless told otherwise, an accelerator is taken out, and names of programs are placeholders too. Raises ValueError
    for more than MOST_MARKS of them.
    """
    draft = _Draft()
    for piece in pieces:
        if isinstance(piece, Code):
            draft.text.append(draft.add(Mark(piece.text, piece, piece.role, is_tag=piece.role != Role.SINGLE)))
        else:
            draft.text.extend(_placeholders(piece, printf, draft))
    text, accelerator = take_accelerator("".join(draft.text)) if accelerators else ("".join(draft.text), None)
    parts, last = [], 0
    for name in find_names(text) if names else ():
        parts += [text[last : name.start()], draft.add(Mark(name[0]))]
        last = name.end()
    text = "".join([*parts, text[last:]])
    return Marked(text, _pair(text, draft.marks), accelerator)


@dataclass(slots=True)
class _Draft:
    text: list[str] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    def add(self, found: Mark) -> str:
        if len(self.marks) == MOST_MARKS:
            raise ValueError(f"more than {MOST_MARKS:,} codes and placeholders")
        self.marks.append(found)
        return character_of(len(self.marks) - 1)


def _placeholders(text: str, printf: bool, draft: _Draft) -> Iterator[str]:
    last = 0
    for match in (PRINTF_PLACEHOLDER if printf else PLACEHOLDER).finditer(text):
        yield text[last : match.start()]
        found = match[0]
        if match.lastgroup == "tag":
            yield draft.add(Mark(found, role=_role(found), is_tag=True))
        else:
            ordered = match.lastgroup == "printf" and UNNUMBERED.fullmatch(found) is not None
            yield draft.add(Mark(found, ordered=ordered))
        last = match.end()
    yield text[last:]


def _role(tag: str) -> Role:
    name = _TAG_NAME.match(tag)
    if name is None or tag.endswith("/>") or name[1].lower() in VOID:
        return Role.SINGLE
    return Role.CLOSE if tag.startswith("</") else Role.OPEN


def _pair(text: str, marks: list[Mark]) -> tuple[Mark, ...]:
    """Give each opening mark the closing one that belongs to it: by its name in text, by its `pair` in codes."""
    partners: dict[int, int] = {}
    open_marks: dict[tuple[bool, str], list[int]] = {}
    for number in find_marks(text):
        found = marks[number]
        if found.role == Role.SINGLE:
            continue
        key = _key(found)
        if found.role == Role.OPEN:
            open_marks.setdefault(key, []).append(number)
        elif open_marks.get(key):
            opening = open_marks[key].pop()
            partners[opening], partners[number] = number, opening
    return tuple(
        Mark(found.text, found.code, found.role, partners.get(number), found.is_tag, found.ordered)
        for number, found in enumerate(marks)
    )


def _key(found: Mark) -> tuple[bool, str]:
    if found.code is not None:
        return True, found.code.pair or ""
    name = _TAG_NAME.match(found.text)
    return False, name[1].lower() if name else found.text
