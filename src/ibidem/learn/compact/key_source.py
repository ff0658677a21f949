"""Sources of keys for training: stored on the training device, or read from the memory for each batch.

Both return the same rows, and so give the same weights. Rows are fetched in two steps: `prepare`, which may run ahead
in another thread, and `place`, which copies the rows to the device.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from ibidem.retrieve import Keys

    Ids = NDArray[np.int64]

_READ_ROWS = 65536
_AHEAD = 4
_CUDA_SHARE = 0.5
# On a CPU the memory's files are as fast once the system has cached them.
_CPU_BYTES = 0

T = TypeVar("T")


class KeySource(Protocol):
    """Rows of keys by number."""

    def prepare(self, ids: Ids) -> Tensor:
        """Read what the rows `ids` [n] need, without using the device.

        Args:
            ids: [n] row numbers.

        Returns:
            What `place` takes; its content depends on the source.
        """
        ...

    def place(self, prepared: Tensor) -> Tensor:
        """Return the prepared rows on the device: [n, d], in the stored type.

        Args:
            prepared: The result of `prepare`.
        """
        ...


class ResidentSource:
    """Hold the wanted rows on the device.

    Args:
        keys: The keys of the memory.
        wanted: [entries] bool, the rows to hold.
        device: The device.
    """

    def __init__(self, keys: Keys, wanted: NDArray[np.bool_], device: torch.device) -> None:
        self._places = np.cumsum(wanted) - 1
        stored = torch.from_numpy(keys.gather(np.empty(0, np.int64))).dtype
        self._rows = torch.empty(int(wanted.sum()), keys.dimension, dtype=stored, device=device)
        done = filled = 0
        for block in keys.blocks(_READ_ROWS):
            chosen = block[wanted[done : done + len(block)]]
            self._rows[filled : filled + len(chosen)] = torch.from_numpy(chosen).to(device)
            done, filled = done + len(block), filled + len(chosen)

    def prepare(self, ids: Ids) -> Tensor:
        return _pin(torch.from_numpy(self._places[ids]), self._rows.device)

    def place(self, prepared: Tensor) -> Tensor:
        return self._rows[prepared.to(self._rows.device, non_blocking=True)]


class StreamedSource:
    """Read rows from the memory in each call.

    Args:
        keys: The keys of the memory.
        device: The device.
    """

    def __init__(self, keys: Keys, device: torch.device) -> None:
        self._keys = keys
        self._device = device

    def prepare(self, ids: Ids) -> Tensor:
        return _pin(torch.from_numpy(self._keys.gather(ids)), self._device)

    def place(self, prepared: Tensor) -> Tensor:
        return prepared.to(self._device, non_blocking=True)


def open_source(
    keys: Keys, wanted: NDArray[np.bool_], device: torch.device, resident_bytes: int | None = None
) -> KeySource:
    """Open a resident source if the wanted rows fit, else a streamed one.

    Args:
        keys: The keys of the memory.
        wanted: [entries] bool, the rows that training reads.
        device: The device.
        resident_bytes: Bytes for resident rows. None: half of the free memory of a CUDA device, 0 on a CPU.
    """
    room = _free_bytes(device) if resident_bytes is None else resident_bytes
    if 2 * keys.dimension * int(wanted.sum()) <= room:
        return ResidentSource(keys, wanted, device)
    return StreamedSource(keys, device)


def run_ahead(make: Callable[[int], T], numbers: Iterable[int], ahead: int = _AHEAD) -> Iterator[T]:
    """Yield make(number) for each number in order, computed in another thread.

    Args:
        make: The function.
        numbers: Its arguments, one after the other.
        ahead: Largest number of results computed before they are consumed.
    """
    waiting: deque[Future[T]] = deque()
    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ibidem-ahead")
    try:
        for number in numbers:
            waiting.append(pool.submit(make, number))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(_CUDA_SHARE * torch.cuda.mem_get_info(device)[0])
    return _CPU_BYTES


def _pin(tensor: Tensor, device: torch.device) -> Tensor:
    """Pin the memory of a tensor for a CUDA device: only pinned memory is copied without waiting."""
    return tensor.pin_memory() if device.type == "cuda" else tensor
