"""What training gives, by whatever method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ibidem.compact import Compactor


@dataclass(frozen=True)
class TrainedCompactor:
    """A compactor on the CPU, and what people should know of its training, as JSON can hold it."""

    compactor: Compactor
    report: dict[str, object]
