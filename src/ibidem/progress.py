"""How long work tells where it stands; the command line draws it, the library may ignore it."""

from __future__ import annotations

from collections.abc import Callable

# (what is being done, share done or None where unknown, units done so far, the unit)
Progress = Callable[[str, float | None, int, str], None]


def silent(label: str, share: float | None, done: int, unit: str) -> None:
    """Progress that nobody watches."""
