"""Pairs of segments: a source, its translation and its origin."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from ibidem.text.stream import MAX_ORIGIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from ibidem.text.language import Languages

_MAX_LOCATION = 1 << 62


@dataclass(frozen=True, slots=True)
class Pair:
    """One segment and its translation, each a single line without surrounding white space.

    Attributes:
        source: The segment.
        target: Its translation.
        origin: The path as the user gave it ("-" for standard input).
        location: The line, from 1, in the uncompressed file (of the `<tu>` in TMX, of the `msgid` in PO), or the
            number of the entry in MO. In a file that was exported from a memory, origin and location are those that
            the memory had.
    """

    source: str
    target: str
    origin: str
    location: int


class LocatedPair(Protocol):
    """Anything with the attributes of a `Pair`."""

    @property
    def source(self) -> str:
        """The segment."""

    @property
    def target(self) -> str:
        """Its translation."""

    @property
    def origin(self) -> str:
        """The file that it was read from."""

    @property
    def location(self) -> int:
        """Its line there."""


class Unit(NamedTuple):
    """Two sides as they are written in a file.

    Attributes:
        source: The segment, with its white space.
        target: Its translation, with its white space.
        location: As in `Pair`.
        origin: The origin that the file states for this unit, None if it states none.
    """

    source: str
    target: str
    location: int
    origin: str | None = None

    def with_origin(self, origin: object, location: object) -> Unit:
        """Return the unit with the origin and the location that a file states, if both are valid.

        Args:
            origin: A text of at most MAX_ORIGIN characters; anything else is ignored.
            location: An integer from 0; anything else is ignored.
        """
        if not isinstance(origin, str) or not 0 < len(origin) <= MAX_ORIGIN:
            return self
        if type(location) is int and 0 <= location < _MAX_LOCATION:
            return self._replace(origin=origin, location=location)
        return self


class Dropped(NamedTuple):
    """A unit that a reader leaves out.

    Attributes:
        reason: Why, in words; units are counted by it.
    """

    reason: str


ReadResult: TypeAlias = Unit | Dropped
"""What a reader yields for each unit of a file."""


class PairWriter(NamedTuple):
    """The parts of a file of pairs.

    Attributes:
        head: Returns the beginning of the file.
        format_pair: Returns one pair as text, and whether a character was replaced that the format cannot contain.
        tail: The end of the file.
    """

    head: Callable[[Languages], str]
    format_pair: Callable[[LocatedPair, Languages], tuple[str, bool]]
    tail: str = ""


@dataclass
class Counts:
    """How many pairs of a corpus were read, kept and dropped.

    Attributes:
        read: The number of pairs read: `kept` plus all that were dropped.
        kept: The number of pairs kept.
        dropped: The number of pairs dropped, by reason.
    """

    read: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    def keep(self) -> None:
        """Count one pair that is kept."""
        self.read += 1
        self.kept += 1

    def drop(self, reason: str) -> None:
        """Count one pair that is dropped.

        Args:
            reason: Why, in words; it becomes a key of `dropped`.
        """
        self.read += 1
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def describe(self) -> str:
        """Describe the counts in one line, the most frequent reason first.

        Examples:
            >>> Counts(read=5, kept=3, dropped={"fuzzy": 2}).describe()
            'read 5 pairs, kept 3, dropped 2 (2 fuzzy)'
        """
        line = f"read {self.read:,} {'pair' if self.read == 1 else 'pairs'}, kept {self.kept:,}"
        if not self.dropped:
            return line
        reasons = sorted(self.dropped.items(), key=lambda item: (-item[1], item[0]))
        listed = ", ".join(f"{count:,} {reason}" for reason, count in reasons)
        return f"{line}, dropped {sum(self.dropped.values()):,} ({listed})"


def join_lines(text: str) -> str:
    r"""Make a segment one line: strip it, and replace each run of newlines and tabs by one space.

    Spaces and carriage returns beside such a run are removed, so that indented XML becomes running text.

    Args:
        text: The segment as it is written in the file.

    Examples:
        >>> join_lines("indented\n      by XML ")
        'indented by XML'
    """
    if "\n" not in text and "\t" not in text:
        return text.strip()
    parts = (part.strip(" \r") for part in text.replace("\t", "\n").split("\n"))
    return " ".join(part for part in parts if part).strip()
