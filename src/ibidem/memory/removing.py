"""Removing pairs from a memory, which needs no model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.memory.memory import Memory


def remove_pairs(
    memory: Memory,
    *,
    ids: Sequence[int] | None = None,
    texts: tuple[str, str] | None = None,
    origin: str | None = None,
    patience: float = 10.0,
) -> list[int]:
    """Remove the pairs with these ids, or with this source and target, or of this origin: all of them, or none.

    Gives their ids, once it is on disk; raises UsageError where there is no such pair.
    """
    with memory.writing(patience) as writer:
        newest = writer.memory
        found = list(ids or ())
        if texts is not None:
            found = newest.find(*texts)
            if not found:
                source, target = (text[:60] for text in texts)
                raise UsageError(
                    f"{memory.path} has no such pair ({source!r}, {target!r}): give both texts letter for letter."
                )
        if origin is not None:
            found = newest.find_origin(origin)
            if not found:
                raise UsageError(f"{memory.path} has no pair of the origin {origin!r}: `ibidem inspect` lists them.")
        if found:
            writer.record(removed=found)
        return found
