"""Text with the markup of a document inside, and what protects both."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias


class Role(Enum):
    """What a code does to the text beside it."""

    SINGLE = "single"
    OPEN = "open"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Code:
    """A piece of the document's own markup, such as `<x id="1"/>`, that is written back as it stands.

    An opening and a closing code belong together if they have the same `pair`. A code that is `fixed` keeps its
    place among the other codes.
    """

    text: str
    role: Role = Role.SINGLE
    pair: str | None = None
    fixed: bool = False


Pieces: TypeAlias = tuple[str | Code, ...]
"""A text in order: strings, and the codes between them."""


def plain_text(pieces: Pieces) -> str:
    """The text without its codes."""
    return "".join(piece for piece in pieces if isinstance(piece, str))
