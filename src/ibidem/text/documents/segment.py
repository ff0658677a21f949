"""One text of a document that has, or wants, a translation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ibidem.text.inline import Pieces


class State(Enum):
    """What a segment is, before it is translated."""

    EMPTY = "untranslated"
    FUZZY = "fuzzy"
    FILLED = "translated already"
    LOCKED = "locked"


@dataclass(frozen=True, slots=True)
class Segment:
    """A source with the codes inside it, the target it has, and what the document says about both.

    `location` is the line of the source, from 1. `locked` says why a LOCKED one must stay as it is, `loss` why one
    cannot be translated at all. `printf` and `keep_lines` are as in a `Request`.
    """

    number: int
    source: Pieces
    location: int
    target: str = ""
    state: State = State.EMPTY
    context: str | None = None
    notes: tuple[str, ...] = ()
    locked: str = ""
    printf: bool = False
    keep_lines: bool = True
    loss: str = ""
