"""What a request wants beside its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ibidem.decode import Explanation


@dataclass(frozen=True)
class Choice:
    """Memories by name with their weights, further translations, an explanation; equal choices share batches."""

    memories: tuple[tuple[str, float], ...] = ()
    alternatives: int = 0
    explain: bool = False


class Line(NamedTuple):
    """The translation of one line, others that were nearly as good, and an explanation where one was wanted."""

    translation: str
    alternatives: tuple[str, ...] = ()
    explanation: Explanation | None = None
