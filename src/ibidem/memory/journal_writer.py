"""Changes to a memory without a new generation: journal records, and the removal of pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.errors import CommittedError, MismatchError, UsageError
from ibidem.memory.files import write_errors
from ibidem.memory.generations import append_change
from ibidem.memory.journal import Change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.memory.memory import Memory
    from ibidem.memory.pairs import SegmentData


class JournalWriter:
    """A writer of changes to the journal. `Memory.writing` makes one and holds the lock."""

    def __init__(self, memory: Memory) -> None:
        """Start to write.

        Args:
            memory: The generation whose journal is extended; the caller holds the lock.
        """
        self._memory = memory

    @property
    def memory(self) -> Memory:
        """The memory with all changes that were recorded so far."""
        return self._memory

    def record(self, added: SegmentData | None = None, removed: Sequence[int] = ()) -> Memory:
        """Add pairs and remove pairs, atomically. The change is on disk when the method returns.

        Args:
            added: The pairs to add, with their entries.
            removed: The ids of the pairs to remove.

        Returns:
            The memory with the change.

        Raises:
            MismatchError: The pairs do not match the model or the layout of the memory.
            UsageError: There is no pair with one of the ids, or an id is repeated.
            MemoryFolderError: The write failed, and nothing was recorded, or the message says that this is uncertain.
            CommittedError: The change was recorded, and the disk did not confirm it.
        """
        memory = self._memory
        if len(set(removed)) < len(removed):
            raise UsageError("an id of the pairs to remove was given twice: give each id once")
        for id in removed:
            memory.number_of(id)
        if added is not None:
            check_fit(added, memory)
        change = Change(added, tuple(removed))
        *done, last = memory.tail.journals
        try:
            with write_errors(memory.path):
                last = append_change(memory.path, last, change)
        except CommittedError:
            self._memory = memory.refresh()
            raise
        self._memory = memory.with_tail(memory.tail.extended([change], (*done, last)))
        return self._memory


def check_fit(data: SegmentData, memory: Memory) -> None:
    """Check that pairs match the model and the layout of a memory.

    Args:
        data: The pairs and their entries.
        memory: The memory that they are for.

    Raises:
        MismatchError: The keys have another dimension, or a token id is outside the vocabulary.
    """
    identity, layout = memory.identity, memory.layout
    for name, keys, width in (
        ("keys", data.keys, identity.dimension if layout.keys else None),
        ("compact keys", data.compact, layout.compact),
    ):
        found = None if keys is None else keys.shape[1]
        if found != width:
            raise MismatchError(
                f"the pairs have {name} of {found or 'no'} dimensions, and {memory.path} stores {width or 'none'}: "
                f"make them with its own model {identity.name!r} and compactor"
            )
    check_vocabulary(data, memory)


def check_vocabulary(data: SegmentData, memory: Memory) -> None:
    """Check that all token ids are in the vocabulary of a memory's model.

    Args:
        data: The pairs and their entries.
        memory: The memory that they are for.

    Raises:
        MismatchError: A token id is outside the vocabulary.
    """
    identity = memory.identity
    if data.entries and (largest := int(data.values.max())) >= identity.vocabulary_size:
        raise MismatchError(
            f"the token id {largest} does not fit {memory.path}, whose model {identity.name!r} has a vocabulary of "
            f"{identity.vocabulary_size}: use its own tokenizer"
        )


def remove_pairs(
    memory: Memory,
    *,
    ids: Sequence[int] | None = None,
    texts: tuple[str, str] | None = None,
    origin: str | None = None,
    lock_timeout: float = 10.0,
) -> list[int]:
    """Remove all pairs that match one criterion, atomically. The change is on disk when the function returns.

    Args:
        memory: The memory.
        ids: The ids of the pairs.
        texts: Source and target of the pairs, compared exactly.
        origin: The origin of the pairs.
        lock_timeout: Seconds to wait while another writer holds the lock.

    Returns:
        The ids of the removed pairs.

    Raises:
        UsageError: No pair matches.
        LockedMemoryError: Another writer still holds the lock.
    """
    with memory.writing(lock_timeout) as writer:
        newest = writer.memory
        found = list(ids or ())
        if texts is not None:
            found = newest.find(*texts)
            if not found:
                source, target = (text[:60] for text in texts)
                raise UsageError(
                    f"{memory.path} has no such pair ({source!r}, {target!r}): give both texts exactly as stored."
                )
        if origin is not None:
            found = newest.find_origin(origin)
            if not found:
                raise UsageError(f"{memory.path} has no pair of the origin {origin!r}: `ibidem inspect` lists them.")
        if found:
            writer.record(removed=found)
        return found
