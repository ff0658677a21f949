"""Applying a compactor to all keys of a memory, block by block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from ibidem.errors import MemoryFolderError, MismatchError, UsageError
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.compact.compactor import Compactor

LARGEST = float(np.finfo(np.float16).max)


class KeyBlocks(Protocol):
    """Keys that can be read in order, float16 or float32."""

    @property
    def size(self) -> int:
        """The number of keys."""
        ...

    @property
    def dimension(self) -> int:
        """The number of components of a key."""
        ...

    def blocks(self, rows: int) -> Iterator[NDArray[np.floating[Any]]]:
        """Give all keys in order, as arrays [at most rows, d]."""
        ...


def compact_keys(
    compactor: Compactor,
    keys: KeyBlocks,
    *,
    rows: int = 65536,
    device: torch.device | str = "cpu",
    progress: Progress = silent,
) -> Iterator[NDArray[np.float16]]:
    """Compact all keys in order, [at most rows, c] at a time; the compactor is moved to the device.

    Raises UsageError where a compact key does not fit float16, MemoryFolderError where a key is not a number.
    """
    if keys.dimension != compactor.input_dimension:
        raise MismatchError(
            f"The compactor takes keys of {compactor.input_dimension} dimensions and the memory's have "
            f"{keys.dimension}: give a compactor trained for the memory's base model, or train one."
        )
    return _compact(compactor.to(device), keys, rows, torch.device(device), progress)


def _compact(
    compactor: Compactor, keys: KeyBlocks, rows: int, device: torch.device, progress: Progress
) -> Iterator[NDArray[np.float16]]:
    done = 0
    for block in keys.blocks(rows):
        # A copy, since the memory gives its files' own pages, which torch must not take for writable.
        states = torch.tensor(block).to(device)
        with torch.no_grad():
            compact = compactor(states)
        # An activation may hide an infinite key, so the keys are looked at themselves.
        if (row := _first_row(~torch.isfinite(states))) is not None:
            raise MemoryFolderError(
                f"The key of entry {done + row} is not a finite number. Check the memory with `ibidem verify`, "
                "or extract it again."
            )
        if (row := _first_row(~(compact.abs() <= LARGEST))) is not None:
            raise UsageError(
                f"The compact key of entry {done + row} reaches {float(compact[row].abs().max()):.3g}, beyond "
                f"float16's {LARGEST:.0f}. Train the compactor again with another objective or activation, "
                "or scale its last layer down."
            )
        done += len(block)
        progress("Compacting keys", done / keys.size, done, "keys")
        yield compact.to(torch.float16).cpu().numpy()


def _first_row(wrong: Tensor) -> int | None:
    """The first row with anything wrong [n, d], if there is one."""
    rows = wrong.any(dim=1)
    return int(rows.int().argmax()) if bool(rows.any()) else None
