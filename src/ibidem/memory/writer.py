"""Writing to a memory's journal: one change at a time, committed when the call returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.errors import CommittedError, MismatchError, UsageError
from ibidem.memory.committing import append_change
from ibidem.memory.files import reported_writes
from ibidem.memory.journal import Change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.memory.memory import Memory
    from ibidem.memory.pairs import SegmentData


class SegmentWriter:
    """Records changes for one who holds the lock; made by `Memory.writing`."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    @property
    def memory(self) -> Memory:
        """The memory with all that was recorded so far, by anybody."""
        return self._memory

    def record(self, added: SegmentData | None = None, removed: Sequence[int] = ()) -> Memory:
        """Add pairs and remove the pairs with these ids, both or neither; it is on disk when this returns.

        Raises UsageError for an id that there is not, and MismatchError for pairs that do not fit the memory.
        """
        memory = self._memory
        if len(set(removed)) < len(removed):
            raise UsageError("a pair can be removed once: an id was given twice")
        for id in removed:
            memory.number_of(id)
        if added is not None:
            check_fit(added, memory)
        change = Change(added, tuple(removed))
        *done, last = memory.tail.journals
        try:
            with reported_writes(memory.path):
                last = append_change(memory.path, last, change)
        except CommittedError:
            self._memory = memory.refresh()
            raise
        self._memory = memory.with_tail(memory.tail.extended([change], (*done, last)))
        return self._memory


def check_fit(data: SegmentData, memory: Memory) -> None:
    """Refuse pairs whose keys or values are not those of the memory's model and layout."""
    identity, layout = memory.identity, memory.layout
    for name, keys, width in (
        ("keys", data.keys, identity.dimension if layout.keys else None),
        ("compact keys", data.compact, layout.compact),
    ):
        found = None if keys is None else keys.shape[1]
        if found != width:
            raise MismatchError(
                f"pairs came with {name} of {found or 'no'} dimensions, and {memory.path} keeps {width or 'none'}: "
                f"make them with its own model {identity.name!r} and compactor"
            )
    if data.entries and (largest := int(data.values.max())) >= identity.vocabulary_size:
        raise MismatchError(
            f"the token id {largest} does not fit {memory.path}, whose model {identity.name!r} has a vocabulary of "
            f"{identity.vocabulary_size}: use its own tokenizer"
        )
