"""A pair of segments, and what a reader finds on the way to one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ibidem.text.limits import LONGEST_ORIGIN

_FARTHEST = 1 << 62


@dataclass(frozen=True, slots=True)
class Pair:
    """One segment and its translation, each a single line without surrounding whitespace.

    `origin` is the path as the user gave it ("-" for standard input). `location` is the line, from 1, in the
    uncompressed file (of the `<tu>` in TMX, of the `msgid` in PO), and the number of the entry in MO. In a file that
    was exported from a memory, both are those that the memory had.
    """

    source: str
    target: str
    origin: str
    location: int


class Unit(NamedTuple):
    """Two sides as they stand in a file, before whitespace is tidied; `origin` where the file names another one."""

    source: str
    target: str
    location: int
    origin: str | None = None


class Dropped(NamedTuple):
    """A pair that a reader leaves out, and why."""

    reason: str


Found: TypeAlias = Unit | Dropped


def located(unit: Unit, origin: object, location: object) -> Unit:
    """A unit with the origin and the location that a file states for it, if it states both and they are sound."""
    if not isinstance(origin, str) or not 0 < len(origin) <= LONGEST_ORIGIN:
        return unit
    if type(location) is int and 0 <= location < _FARTHEST:
        return unit._replace(origin=origin, location=location)
    return unit


def join_lines(text: str) -> str:
    """Make one line of a segment: strip it, and turn each run of newlines and tabs inside into one space.

    Spaces and carriage returns beside such a run go with it, so that indented XML reads as prose.
    """
    if "\n" not in text and "\t" not in text:
        return text.strip()
    parts = (part.strip(" \r") for part in text.replace("\t", "\n").split("\n"))
    return " ".join(part for part in parts if part).strip()
