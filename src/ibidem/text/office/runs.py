"""Runs: the pieces of equally formatted text that a paragraph of a word processor or a cell of a table consists of.

A paragraph is read as a list of atoms. `add_paragraph` makes segments of them: text of the most frequent format is
plain, text of another format stands between two codes, and so do links. In a translation the codes stand around the
words that they belong to, and new runs are written from them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ibidem.text.inline import Code, Role
from ibidem.text.stream import MAX_TEXT
from ibidem.text.xml import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ibidem.text.document import Edit
    from ibidem.text.inline import Pieces
    from ibidem.text.markup import XmlFile
    from ibidem.text.replacement import ReplacementBuilder

_MAX_OPEN = 20
_MAX_ATOMS = 10_000


class AtomKind(Enum):
    """The kind of an atom.

    A BARRIER divides a paragraph into two texts, because it contains texts of its own. A START and an END are the ends
    of a range, such as a bookmark, which may lie in different paragraphs.
    """

    TEXT = "text"
    SINGLE = "single"
    OPEN = "open"
    CLOSE = "close"
    BARRIER = "barrier"
    START = "start"
    END = "end"


class Format(NamedTuple):
    """The format of a run.

    Attributes:
        markup: The element with the properties, as it is written.
        key: The properties that are visible; runs with equal keys are one text.
    """

    markup: str = ""
    key: str = ""


NO_FORMAT = Format()
"""The format of a run without properties."""


class Atom(NamedTuple):
    """A piece of a paragraph.

    Attributes:
        kind: Its kind.
        text: The text of a TEXT, else the markup.
        start: The position of the first byte of the run, or of the tag.
        end: The position after it.
        format: The format of a TEXT.
        pair: A name that an OPEN and its CLOSE, or a START and its END, share.
    """

    kind: AtomKind
    text: str
    start: int
    end: int
    format: Format = NO_FORMAT
    pair: str = ""


@dataclass(frozen=True, slots=True)
class RunWriter:
    """Writes text as runs.

    Attributes:
        xml: The file, whose encoding is used.
        run: Returns the markup of a text, which is not escaped, in a format.
    """

    xml: XmlFile
    run: Callable[[str, Format], str]

    def render(self, atom: Atom) -> str:
        """Return the markup of an atom.

        Args:
            atom: A text or a code.
        """
        return self.run(atom.text, atom.format) if atom.kind == AtomKind.TEXT else atom.text


def word_run(prefix: str) -> Callable[[str, Format], str]:
    """Return a function that writes runs of WordprocessingML, where tabs and line breaks are elements.

    Args:
        prefix: The prefix of the names of elements, with its colon.
    """

    def run(text: str, format: Format) -> str:
        lines = []
        for line in text.split("\n"):
            cells = [
                f'<{prefix}t xml:space="preserve">{escape(cell)}</{prefix}t>' if cell else ""
                for cell in line.split("\t")
            ]
            lines.append(f"<{prefix}tab/>".join(cells))
        return f"<{prefix}r>{format.markup}{f'<{prefix}br/>'.join(lines)}</{prefix}r>"

    return run


def sheet_run(prefix: str, newline: str) -> Callable[[str, Format], str]:
    """Return a function that writes runs of SpreadsheetML.

    Args:
        prefix: The prefix of the names of elements, with its colon.
        newline: The line end of the file.
    """

    def run(text: str, format: Format) -> str:
        return (
            f'<{prefix}r>{format.markup}<{prefix}t xml:space="preserve">{escape(text, newline)}</{prefix}t></{prefix}r>'
        )

    return run


def add_paragraph(
    atoms: Sequence[Atom],
    writer: RunWriter,
    builder: ReplacementBuilder,
    edits: list[Edit],
    location: int,
    **details: Any,
) -> None:
    """Add the texts of a paragraph to a document.

    Args:
        atoms: The atoms of the paragraph in order.
        writer: Writes the runs of a translation.
        builder: Gets the segments.
        edits: Gets the edits.
        location: The line of the paragraph.
        **details: Other fields of the segments.
    """
    if len(atoms) > _MAX_ATOMS:
        pieces = ("".join(atom.text for atom in atoms if atom.kind == AtomKind.TEXT),)
        builder.add(pieces, location, locked=f"more than {_MAX_ATOMS:,} runs in a paragraph", **details)
        return
    for group in _divide(_pair_ranges(_raise_barriers(atoms))):
        texts = [number for number, atom in enumerate(group) if atom.kind == AtomKind.TEXT and atom.text.strip()]
        if not texts:
            continue
        first, last = _find_region(group, texts[0], texts[-1])
        inner = group[first : last + 1]
        text = _FormattedText.read(inner)
        span = min(atom.start for atom in inner), max(atom.end for atom in inner)
        encode = partial(text.encode, writer)
        builder.replace(writer.xml.data, span, text.pieces, location, encode, edits=edits, **details)


def _raise_barriers(atoms: Sequence[Atom]) -> list[Atom]:
    """Make pairs around a barrier barriers too, and texts that share a run with one."""
    found = list(atoms)
    barriers = [number for number, atom in enumerate(found) if atom.kind == AtomKind.BARRIER]
    if not barriers:
        return found
    blocked = {found[number].start for number in barriers}
    openings = {atom.pair: number for number, atom in enumerate(found) if atom.kind == AtomKind.OPEN}
    for number, atom in enumerate(found):
        if atom.kind in (AtomKind.TEXT, AtomKind.SINGLE) and atom.start in blocked:
            found[number] = atom._replace(kind=AtomKind.BARRIER)
        elif atom.kind == AtomKind.CLOSE and atom.pair in openings:
            opening = openings[atom.pair]
            if bisect_left(barriers, opening) < bisect_left(barriers, number):
                for end in (opening, number):
                    found[end] = found[end]._replace(kind=AtomKind.BARRIER)
    return found


def _pair_ranges(atoms: Sequence[Atom]) -> list[Atom]:
    """Make the two ends of a range in one text a pair; move other ends to the edges of the text."""
    found: list[Atom] = []
    roles = {AtomKind.START: AtomKind.OPEN, AtomKind.END: AtomKind.CLOSE}
    for group in _divide(atoms, keep=True):
        ends: dict[str, list[AtomKind]] = {}
        for atom in group:
            if atom.kind in roles:
                ends.setdefault(atom.pair, []).append(atom.kind)
        paired = {pair for pair, kinds in ends.items() if kinds == [AtomKind.START, AtomKind.END]}
        front = [atom for atom in group if atom.kind == AtomKind.START and atom.pair not in paired]
        back = [atom for atom in group if atom.kind == AtomKind.END and atom.pair not in paired]
        found += [atom._replace(kind=AtomKind.SINGLE) for atom in front]
        found += [
            atom._replace(kind=roles.get(atom.kind, atom.kind))
            for atom in group
            if atom.kind not in roles or atom.pair in paired
        ]
        found += [atom._replace(kind=AtomKind.SINGLE) for atom in back]
    return found


def _divide(atoms: Sequence[Atom], *, keep: bool = False) -> Iterator[list[Atom]]:
    """Yield the atoms between barriers; with `keep`, each barrier as a group of its own too."""
    group: list[Atom] = []
    for atom in atoms:
        if atom.kind != AtomKind.BARRIER:
            group.append(atom)
            continue
        yield group
        group = []
        if keep:
            yield [atom]
    yield group


def _find_partners(atoms: Sequence[Atom]) -> dict[int, list[int]]:
    """Return the number of the other tag of each tag."""
    ends: dict[str, list[int]] = {}
    for number, atom in enumerate(atoms):
        if atom.kind in (AtomKind.OPEN, AtomKind.CLOSE):
            ends.setdefault(atom.pair, []).append(number)
    return {number: numbers for numbers in ends.values() for number in numbers}


def _find_region(atoms: Sequence[Atom], first: int, last: int) -> tuple[int, int]:
    """Return the smallest range of atoms around a range that has whole pairs and whole runs."""
    partners = _find_partners(atoms)
    while True:
        first, last = _extend(first, last, lambda number: partners.get(number, ()))
        inner = atoms[first : last + 1]
        start, end = min(atom.start for atom in inner), max(atom.end for atom in inner)
        overlapping = [number for number, atom in enumerate(atoms) if atom.start < end and start < atom.end]
        if first <= overlapping[0] and overlapping[-1] <= last:
            return first, last
        first, last = min(first, overlapping[0]), max(last, overlapping[-1])


def _extend(first: int, last: int, linked: Callable[[int], Iterable[int]]) -> tuple[int, int]:
    """Return the smallest range around a range that contains everything that is linked to its members."""
    pending = list(range(first, last + 1))
    while pending:
        for other in linked(pending.pop()):
            if other < first:
                pending += range(other, first)
                first = other
            elif other > last:
                pending += range(last + 1, other + 1)
                last = other
    return first, last


@dataclass(frozen=True, slots=True)
class _FormattedText:
    """A text, the atoms before and after it in the same runs, and the formats that its codes stand for.

    Attributes:
        before: The atoms before the text.
        pieces: The text and its codes.
        after: The atoms after the text.
        base: The most frequent format.
        formats: The formats inside pairs of codes, by the names of the pairs.
        marks: The names of the pairs that stand for a format only.
    """

    before: Sequence[Atom]
    pieces: Pieces
    after: Sequence[Atom]
    base: Format
    formats: dict[str, Format]
    marks: set[str]

    @classmethod
    def read(cls, atoms: Sequence[Atom]) -> _FormattedText:
        texts = [number for number, atom in enumerate(atoms) if atom.kind == AtomKind.TEXT]
        partners = _find_partners(atoms)
        first, last = _extend(texts[0], texts[-1], lambda number: partners.get(number, ()))
        inner = atoms[first : last + 1]
        formats = _find_pair_formats(inner)
        base = _most_frequent(inner, formats)
        found = cls(atoms[:first], (), atoms[last + 1 :], base, formats, set())
        builder = _PiecesBuilder(base, found.formats, found.marks)
        for atom in inner:
            builder.add(atom)
        builder.change(None)
        return replace(found, pieces=tuple(builder.pieces))

    def encode(self, writer: RunWriter, target: Pieces) -> bytes:
        parts = [*map(writer.render, self.before), *self._render(writer, target), *map(writer.render, self.after)]
        return writer.xml.encode("".join(parts))

    def _render(self, writer: RunWriter, target: Pieces) -> Iterator[str]:
        opened = [("", self.base)]
        for piece in target:
            if isinstance(piece, str):
                yield writer.run(piece, opened[-1][1])
                continue
            pair = piece.pair or ""
            if pair not in self.marks:
                yield piece.text
            if pair in self.formats and piece.role == Role.OPEN:
                opened.append((pair, self.formats[pair]))
            elif pair in self.formats:
                opened = [one for one in opened if one[0] != pair]


def _most_frequent(atoms: Sequence[Atom], pair_formats: Mapping[str, Format]) -> Format:
    """Return the format of the most characters; text in a pair with a format of its own counts only without others."""
    sizes: Counter[str] = Counter()
    formats: dict[str, Format] = {}
    opened: set[str] = set()
    for atom in atoms:
        if atom.kind == AtomKind.TEXT:
            sizes[atom.format.key] += len(atom.text.strip()) * (1 if opened else MAX_TEXT)
            formats.setdefault(atom.format.key, atom.format)
        elif atom.pair in pair_formats:
            opened ^= {atom.pair}
    return formats[sizes.most_common(1)[0][0]]


def _find_pair_formats(atoms: Sequence[Atom]) -> dict[str, Format]:
    """Return the format of all text inside each pair of tags; a pair with several formats is left out."""
    found: dict[str, Format] = {}
    mixed: set[str] = set()
    opened: dict[str, None] = {}
    for atom in atoms:
        if atom.kind == AtomKind.OPEN:
            opened[atom.pair] = None
        elif atom.kind == AtomKind.CLOSE:
            opened.pop(atom.pair, None)
        elif atom.kind == AtomKind.TEXT and atom.text.strip():
            for pair in opened if len(opened) <= _MAX_OPEN else ():
                if found.setdefault(pair, atom.format).key != atom.format.key:
                    mixed.add(pair)
    return {pair: format for pair, format in found.items() if pair not in mixed}


@dataclass(slots=True)
class _PiecesBuilder:
    """Makes codes of the changes of format in a text."""

    base: Format
    formats: dict[str, Format]
    marks: set[str]
    pieces: list[str | Code] = field(default_factory=list)
    opened: list[tuple[str, Format]] = field(default_factory=list)
    name: str = ""

    def add(self, atom: Atom) -> None:
        if atom.kind == AtomKind.TEXT:
            current = self.formats[self.name] if self.name else self._outer()
            if atom.format.key != current.key and atom.text.strip():
                self.change(atom.format)
            if self.pieces and isinstance(last := self.pieces[-1], str):
                self.pieces[-1] = last + atom.text
            else:
                self.pieces.append(atom.text)
            return
        role = {AtomKind.OPEN: Role.OPEN, AtomKind.CLOSE: Role.CLOSE}.get(atom.kind, Role.SINGLE)
        if role != Role.SINGLE:
            self.change(None)
        self.pieces.append(Code(atom.text, role, atom.pair or None))
        if role == Role.OPEN:
            self.opened.append((atom.pair, self.formats.get(atom.pair, self._outer())))
        elif role == Role.CLOSE:
            self.opened = [one for one in self.opened if one[0] != atom.pair]

    def change(self, format: Format | None) -> None:
        """End the current format, and begin another one unless it is that of the text around it."""
        if self.name:
            self.pieces.append(Code(f"</{self.name}>", Role.CLOSE, self.name))
        self.name = ""
        if format is not None and format.key != self._outer().key:
            self.name = f"format-{len(self.marks) + 1}"
            self.marks.add(self.name)
            self.formats[self.name] = format
            self.pieces.append(Code(f"<{self.name}>", Role.OPEN, self.name))

    def _outer(self) -> Format:
        return self.opened[-1][1] if self.opened else self.base
