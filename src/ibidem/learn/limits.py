"""Limits of learning: what a stage holds in RAM for each entry, and the largest numbers of its arrays."""

from __future__ import annotations

import os

from ibidem.errors import UsageError

LARGEST_INT32 = (1 << 31) - 1
LARGEST_NATIVE_INDEX = 1_000_000_000
"""Keys of one native index: most keys have two places, which are counted in int32."""

STAGE_BYTES = {
    "cluster": 20,
    "compact": 5,
    "compact network": 50,
    "tune": 20,
    "prune": 100,
    "prune spatial": 60,
    "prune redundant": 100,
    "prune consistent": 100,
    "index": 20,
}
"""About how many bytes a stage holds in the RAM of the driver for each entry, without keys, which are mapped.

Pruning works token by token: the numbers hold where the most frequent token has about a tenth of the entries, and
another tenth adds about 15 bytes.
"""


def check_room(stage: str, entries: int, path: object) -> None:
    """Check, before a stage begins, that what it holds of every entry fits into the RAM of this machine.

    Args:
        stage: A name of STAGE_BYTES.
        entries: The number of entries of the memory.
        path: The folder of the memory, for the message.

    Raises:
        UsageError: The stage needs more than all RAM.
    """
    room, needed = total_ram(), STAGE_BYTES[stage] * entries
    if room is not None and needed > room:
        raise UsageError(
            f"{path} has {entries:,} entries, of which the stage {stage} holds about {STAGE_BYTES[stage]} bytes each "
            f"in RAM: {needed / 1e9:,.0f} GB, and this machine has {room / 1e9:,.0f} GB. Run it on a machine with "
            "more, leave the stage out, or learn several smaller memories."
        )


def check_count(what: str, count: int, most: int, remedy: str) -> None:
    """Check a number against the range of the arrays that hold it.

    Args:
        what: What is counted, such as "entries of a native index".
        count: The number.
        most: The largest possible number.
        remedy: What the user can do, a clause.

    Raises:
        UsageError: The number is larger.
    """
    if count > most:
        raise UsageError(f"{count:,} {what} are more than {most:,}, the most that its numbers can count: {remedy}.")


def total_ram() -> int | None:
    """Return the bytes of RAM of this machine; None where they are unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
