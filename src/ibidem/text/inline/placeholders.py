"""Codes and placeholders inside a text, and their replacement by single characters (marks).

A *code* is markup of the document around the text, such as `<x id="1"/>` in XLIFF. A *placeholder* is found in the
text itself by its form: `%s`, `{name}`, `<b>`, an address. Both must come through translation unchanged. `mark`
replaces each of them by one character for private use, so that a text can be split, compared and put together.

Texts come from untrusted files and may be long, so every pattern is linear in the length of the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from ibidem.text.inline.accelerators import Accelerator, take_accelerator

if TYPE_CHECKING:
    from collections.abc import Iterator

# Numbered tags stand for components in texts of React (`<1>here</1>`). The third form is a tag with a quote that is not
# closed.
_TAG = (
    r"""</?[0-9]{1,3}/?>|</?[A-Za-z](?:[^<>"']|"[^"<]*"|'[^'<]*')*+>|</?[A-Za-z][^<>\s]*+>|<!--(?:[^-<]|-(?!->))*+-->"""
)
_BRACES = (
    r"\{\{[^{}\n]*\}\}|\{%[^{}\n]*%\}|\{\$[^{}\n]*\$\}"  # {{ user }}, {% tag %}, {$ user $}
    r"|[$#%@]?\{(?:[^{}\s]*|\s*[\w.]++\s*(?:[,:|!][^{}\n]*)?)\}"  # {0}, {name}, ${name}, {count, number}
)
_VARIABLE = r"\$\([^()\s]*\)|\$[A-Za-z_]\w*+(?:\$(?!\w))?|\$[0-9](?![0-9.,])"
_NAMED_PRINTF = (
    r"%\([^()\s]*\)[-+#0 ]*+[0-9]*+(?:\.[0-9]++)?[A-Za-z]"  # %(name)s
    r"|%-?[0-9]*+<(?!PRI)\w++>[A-Za-z]|%L[0-9]{1,2}"  # %<name>s, Qt's %L1
    r"|%(?:[0-9]++\$)?#@\w++@|%arg\b"  # Apple's %#@name@, and %arg inside of its texts
)
_PRINTF = (
    r"%{not}(?:[0-9]++\$)?[-+#0'{space}]*+(?:[0-9]++|\*(?:[0-9]++\$)?)?(?:\.(?:[0-9]++|\*(?:[0-9]++\$)?)?)?"
    r"(?:<PRI\w++>|(?:hh?|ll?|[Lqjzt])?[A-Za-z@%])"
)
_QT = r"%[0-9]{1,2}"
_ENTITY = r"&(?:#[0-9]++|#[xX][0-9a-fA-F]++|[A-Za-z][A-Za-z0-9]*+);"
# An entity inside an address is the whole "&amp;"; an entity directly after the address is not part of it.
_ADDRESS = (
    r"""(?:https?|ftp|file)://(?:&amp;|(?!&#?\w++;)[^\s<>"'{}|\\^`])*(?!&#?\w++;)[\w/#=&]"""
    r"""|[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64})+"""
)
_ESCAPE = r"""\\[ntrabfv0"'\\]|\\[xu][0-9a-fA-F]{2,4}"""
_OPTION = r"(?<![\w-])--[A-Za-z][\w-]*+|(?<![\w-])-[A-Za-z](?![\w-])"
# The characters that are used as marks, and control characters that no line of text contains.
_ODD = r"[\U000F0000-\U0010FFFF\x00-\x08\x0e-\x1b\x1f\x7f]"
# German writes "100%ige" and "5%-Hürde".
_PROSE = r"(?!ig(?:e[mnrs]?)?\b|(?<=[0-9]%)(?:-[A-Za-z]|\+))"


def _compile(printf: str) -> re.Pattern[str]:
    parts = {
        "tag": _TAG,
        "other": "|".join((_BRACES, _VARIABLE, _NAMED_PRINTF)),
        "printf": printf,
        "rest": "|".join((_QT, _ENTITY, _ADDRESS, _ESCAPE, _OPTION, _ODD, "&&")),
    }
    return re.compile("|".join(f"(?P<{name}>{part})" for name, part in parts.items()))


PLACEHOLDER = _compile(_PRINTF.replace("{not}", _PROSE).replace("{space}", ""))
"""Matches the placeholders of a text of unknown kind; "100%ige" and "50% der" contain none."""

PRINTF_PLACEHOLDER = _compile(_PRINTF.replace("{not}", "").replace("{space}", " "))
"""Matches the placeholders of a format string, where every `%` begins one."""

ICU = re.compile(r"\{\s*\w++\s*,\s*(?:plural|select|selectordinal)\s*,")
"""Matches the beginning of an ICU message that contains several texts."""

_UNNUMBERED = re.compile(r"%[^(<{%$]*(?:[A-Za-z@]|<PRI\w+>)")
_LINE_BREAKS = frozenset({"\\n", "\\r", "\\t"})
_VOID = frozenset({"br", "hr", "img", "wbr", "input", "link", "meta", "area", "col", "source", "embed"})
_WORD = re.compile(r"\w+")
_TAG_NAME = re.compile(r"</?([A-Za-z][\w:.-]*|[0-9]+)")

_FIRST_MARK = 0xF0000
MAX_MARKS = 0xFFFE
"""The number of characters for private use in plane 15, each of which can be one mark."""

MARK = re.compile("[\U000f0000-\U000ffffd]")
"""Matches one mark."""

_MAX_SHOWN_LENGTH = 20


class Role(Enum):
    """The effect of a code on the text beside it."""

    SINGLE = "single"
    OPEN = "open"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Code:
    """A piece of the document's markup, such as `<x id="1"/>`, that is written back unchanged.

    Attributes:
        text: The markup.
        role: Whether the code opens or closes a span, or stands alone.
        pair: A name that an opening code and its closing code share.
        fixed: Whether the code must keep its position among the other codes.
    """

    text: str
    role: Role = Role.SINGLE
    pair: str | None = None
    fixed: bool = False


Pieces: TypeAlias = tuple[str | Code, ...]
"""A text in order: strings, and the codes between them."""


def plain_text(pieces: Pieces) -> str:
    """Return a text without its codes.

    Args:
        pieces: The text and its codes.

    Examples:
        >>> plain_text(("Open ", Code("<b>"), "file", Code("</b>")))
        'Open file'
    """
    return "".join(piece for piece in pieces if isinstance(piece, str))


def is_blank(pieces: Pieces) -> bool:
    """Return whether a text contains nothing but white space; a code is not blank.

    Args:
        pieces: The text and its codes.
    """
    return all(isinstance(piece, str) and not piece.strip() for piece in pieces)


@dataclass(frozen=True, slots=True)
class Mark:
    """The code or placeholder that one mark stands for.

    Attributes:
        text: The code or placeholder as it is written in the text.
        code: The code of the document, None for a placeholder.
        role: As in `Code`.
        partner: The number of the mark that closes or opens this one.
        is_tag: Whether it is a tag or a paired code.
        ordered: Whether it is a printf placeholder that takes the next argument, so that its order matters.
    """

    text: str
    code: Code | None = None
    role: Role = Role.SINGLE
    partner: int | None = None
    is_tag: bool = False
    ordered: bool = False

    @property
    def can_stay_outside(self) -> bool:
        """Whether the mark, at the edge of a text, is independent of the words."""
        return self.is_tag or (self.code is None and self.text in _LINE_BREAKS)

    @property
    def can_be_shown(self) -> bool:
        """Whether the translator may be given the placeholder unchanged: it is short and without a space."""
        return (
            self.code is None
            and len(self.text) <= _MAX_SHOWN_LENGTH
            and self.text.isprintable()
            and " " not in self.text
        )


@dataclass(frozen=True, slots=True)
class Marked:
    """A text with marks.

    Attributes:
        text: The text; each code and placeholder is one character.
        marks: The code or placeholder of each mark, by its number.
        accelerator: The accelerator that was taken out of the text.
    """

    text: str
    marks: tuple[Mark, ...]
    accelerator: Accelerator | None = None

    def unmark(self, text: str) -> Pieces:
        """Replace the marks in a text by what they stand for.

        Args:
            text: A text with marks of this object, such as a part of `text` or its translation.

        Returns:
            The text and its codes; placeholders are part of the text.
        """
        pieces: list[str | Code] = []
        run: list[str] = []
        last = 0
        for match in MARK.finditer(text):
            run.append(text[last : match.start()])
            last = match.end()
            found = self.marks[number_of(match[0])]
            if found.code is None:
                run.append(found.text)
            else:
                pieces += ["".join(run), found.code]
                run = []
        pieces.append("".join([*run, text[last:]]))
        return tuple(piece for piece in pieces if piece != "")


def character_of(number: int) -> str:
    """Return the character of a mark.

    Args:
        number: The number of the mark, from 0 to MAX_MARKS - 1.
    """
    return chr(_FIRST_MARK + number)


def number_of(character: str) -> int:
    """Return the number of the mark that a character is.

    Args:
        character: One character that `MARK` matches.
    """
    return ord(character) - _FIRST_MARK


def find_marks(text: str) -> list[int]:
    """Return the numbers of the marks in a text, in order.

    Args:
        text: The text with marks.
    """
    return [number_of(character) for character in MARK.findall(text)]


def find_identifiers(text: str) -> Iterator[re.Match[str]]:
    """Yield the words that are identifiers of a program, such as `file_name` and `__init__`.

    Args:
        text: The text.

    Yields:
        A match for each identifier: a word with an underscore inside, or with two at both ends.
    """
    for word in _WORD.finditer(text):
        if "_" in word[0] and ("_" in word[0].strip("_") or (word[0].startswith("__") and word[0].endswith("__"))):
            yield word


def mark(pieces: Pieces, *, printf: bool = False, accelerators: bool = True, identifiers: bool = True) -> Marked:
    """Replace the codes and placeholders of a text by marks.

    Args:
        pieces: The text and its codes.
        printf: Whether the text is a format string, in which every `%` begins a placeholder.
        accelerators: Whether to take out the accelerator.
        identifiers: Whether identifiers of programs are placeholders too.

    Returns:
        The text with one character for each code and placeholder, and what these stand for.

    Raises:
        ValueError: If there are more than MAX_MARKS codes and placeholders.

    Examples:
        >>> [found.text for found in mark(("Datei %s fehlt in {folder}",)).marks]
        ['%s', '{folder}']
    """
    builder = _MarkedBuilder()
    for piece in pieces:
        if isinstance(piece, Code):
            builder.text.append(builder.add(Mark(piece.text, piece, piece.role, is_tag=piece.role != Role.SINGLE)))
        else:
            builder.text.extend(_mark_placeholders(piece, printf, builder))
    text = "".join(builder.text)
    accelerator = None
    if accelerators:
        text, accelerator = take_accelerator(text)
    parts, last = [], 0
    for name in find_identifiers(text) if identifiers else ():
        parts += [text[last : name.start()], builder.add(Mark(name[0]))]
        last = name.end()
    text = "".join([*parts, text[last:]])
    return Marked(text, _pair(text, builder.marks), accelerator)


@dataclass(slots=True)
class _MarkedBuilder:
    text: list[str] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    def add(self, found: Mark) -> str:
        if len(self.marks) == MAX_MARKS:
            raise ValueError(f"more than {MAX_MARKS:,} codes and placeholders")
        self.marks.append(found)
        return character_of(len(self.marks) - 1)


def _mark_placeholders(text: str, printf: bool, builder: _MarkedBuilder) -> Iterator[str]:
    last = 0
    for match in (PRINTF_PLACEHOLDER if printf else PLACEHOLDER).finditer(text):
        yield text[last : match.start()]
        found = match[0]
        if match.lastgroup == "tag":
            yield builder.add(Mark(found, role=_role_of_tag(found), is_tag=True))
        else:
            ordered = match.lastgroup == "printf" and _UNNUMBERED.fullmatch(found) is not None
            yield builder.add(Mark(found, ordered=ordered))
        last = match.end()
    yield text[last:]


def _role_of_tag(tag: str) -> Role:
    name = _TAG_NAME.match(tag)
    if name is None or tag.endswith("/>") or name[1].lower() in _VOID:
        return Role.SINGLE
    return Role.CLOSE if tag.startswith("</") else Role.OPEN


def _pair(text: str, marks: list[Mark]) -> tuple[Mark, ...]:
    """Set the partners: tags belong together by their name, codes by their `pair`."""
    partners: dict[int, int] = {}
    open_marks: dict[tuple[bool, str], list[int]] = {}
    for number in find_marks(text):
        found = marks[number]
        if found.role == Role.SINGLE:
            continue
        key = _pair_key(found)
        if found.role == Role.OPEN:
            open_marks.setdefault(key, []).append(number)
        elif open_marks.get(key):
            opening = open_marks[key].pop()
            partners[opening], partners[number] = number, opening
    return tuple(
        Mark(found.text, found.code, found.role, partners.get(number), found.is_tag, found.ordered)
        for number, found in enumerate(marks)
    )


def _pair_key(found: Mark) -> tuple[bool, str]:
    if found.code is not None:
        return True, found.code.pair or ""
    name = _TAG_NAME.match(found.text)
    return False, name[1].lower() if name else found.text
