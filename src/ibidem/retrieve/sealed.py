"""The index of a memory's sealed entries, which goes on being true when entries are added and removed after it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ibidem.memory import numbers_among, serials_of
from ibidem.retrieve.approximate import FaissIndex
from ibidem.retrieve.coding import Recoder
from ibidem.retrieve.joined import CompositeIndex, IndexPart, exact_part, main_part

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from numpy.typing import NDArray

    from ibidem.memory import Memory
    from ibidem.retrieve.neighbours import Index


@dataclass(frozen=True)
class BaseIndex:
    """An index of a memory's first `covered` entries, as they were numbered when it was built.

    removals: how many entries had been taken out of the memory by then, of those that `Memory.removed_entries` names.
    """

    index: Index
    covered: int
    removals: int

    def gone(self, memory: Memory) -> NDArray[np.int64]:
        """The keys of this index, by its own numbers, rising, that the memory no longer has."""
        known = np.sort(memory.removed_entries[: self.removals])
        own = np.sort(numbers_among(memory.removed_entries[self.removals :], known))
        return own[own < self.covered]

    def parts(self, memory: Memory, hidden: NDArray[np.int64], device: torch.device | str) -> list[IndexPart]:
        """All sealed entries of the memory as parts to join: this index, and what came after it, if anything.

        hidden: the numbers of entries, rising, that must not be found.
        """
        gone = self.gone(memory)
        newer = self.covered - len(gone)
        own = serials_of(hidden[hidden < newer], gone)
        parts = [main_part(self.index, gone, own)] if self.covered else []
        keys = memory.search_keys.read(newer, memory.entries)
        coder = self._recoder
        code = None if coder is None else coder.sealed
        if len(keys):
            parts.append(exact_part(keys, newer, hidden[hidden >= newer] - newer, self.index, device, code))
        return parts

    def tail_part(self, memory: Memory, device: torch.device | str) -> IndexPart:
        """The entries of the memory's tail."""
        coder = self._recoder
        code = None if coder is None else coder.tail
        struck = np.flatnonzero(~memory.tail.alive_entries)
        return exact_part(memory.tail_keys(), memory.entries, struck, self.index, device, code)

    @cached_property
    def _recoder(self) -> Recoder | None:
        return Recoder(self.index.index) if isinstance(self.index, FaissIndex) else None


def join(parts: Sequence[IndexPart], size: int, dimension: int) -> Index:
    """The parts as one index; a part that is all of it, and in which nothing moved, is its own index."""
    if len(parts) == 1 and not parts[0].first and not len(parts[0].gone) and parts[0].view is None:
        return parts[0].index
    return CompositeIndex(parts, size, dimension)
