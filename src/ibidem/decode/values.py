"""The values of a memory's entries in one tensor that grows with the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ibidem.native import look_up, native

if TYPE_CHECKING:
    from torch import Tensor

    from ibidem.memory import Memory

_SPARE = 1 << 16


def values_of(table: Tensor, entries: Tensor) -> Tensor:
    """The values [r, K] of entries [r, K], any value where there is none (-1); table: [n], that of every entry."""
    if entries.is_cpu and table.is_cpu and native() is not None:
        return look_up(table, entries)
    return table[entries.clamp_min(0)]


class ValueTable:
    """The token id of every entry, sealed ones and those of the tail; an added pair costs its own entries only.

    A table that was handed out is never changed, but for places after its end.
    """

    def __init__(self, device: torch.device) -> None:
        self._room = torch.empty(0, dtype=torch.long, device=device)
        self._generation = 0
        self._filled = 0
        self.table: Tensor = self._room

    def update(self, memory: Memory) -> None:
        """Hold the values of this state of the memory."""
        total = memory.entries + memory.tail.entries
        if memory.generation != self._generation or total > len(self._room):
            self._room = torch.empty(total + _SPARE, dtype=torch.long, device=self._room.device)
            self._room[: memory.entries] = torch.from_numpy(memory.values().copy())
            self._generation, self._filled = memory.generation, memory.entries
        new = memory.tail.values[self._filled - memory.entries :]
        self._room[self._filled : total] = torch.from_numpy(new)
        self._filled = total
        self.table = self._room[:total]
