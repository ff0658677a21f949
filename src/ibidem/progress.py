"""The callback type by which long work reports its progress."""

from __future__ import annotations

from collections.abc import Callable

# (label, share done or None where unknown, units done, name of the unit); see `silent` for the arguments
Progress = Callable[[str, float | None, int, str], None]


def silent(label: str, share: float | None, done: int, unit: str) -> None:
    """Ignore a progress report.

    Args:
        label: The name of the work.
        share: The share that is done, from 0 to 1; None where the total is unknown.
        done: The units that are done.
        unit: The name of the unit, such as "pairs".
    """
