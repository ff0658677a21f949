"""How long work tells where it stands; the command line draws it, the library may ignore it."""

from __future__ import annotations

from collections.abc import Callable

# (what is being done, share done or None where unknown, units done so far)
Progress = Callable[[str, float | None, int], None]


def silent(label: str, share: float | None, done: int) -> None:
    """Progress that nobody watches."""
