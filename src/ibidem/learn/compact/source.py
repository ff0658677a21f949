"""Where training gets its rows from: keys held on the training device, or read from the memory as they are needed.

Both give the same rows, so the same weights. Each row is fetched in two steps: `prepare`, which may run ahead in
another thread, and `place`, which puts the rows on the device.
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
# On the CPU the memory's own files are as near once the system has cached them.
_CPU_BYTES = 0

T = TypeVar("T")


class Source(Protocol):
    """Rows by number."""

    def prepare(self, ids: Ids) -> Tensor:
        """What can be done ahead of time for the rows ids [n], without touching the device."""
        ...

    def place(self, prepared: Tensor) -> Tensor:
        """The rows on the device, [n, d], as they were stored."""
        ...


class ResidentSource:
    """The rows that take part, held on the device."""

    def __init__(self, keys: Keys, wanted: NDArray[np.bool_], device: torch.device) -> None:
        self._places = np.cumsum(wanted) - 1
        stored = torch.from_numpy(keys.gather(np.empty(0, np.int64))).dtype
        self._rows = torch.empty(int(wanted.sum()), keys.dimension, dtype=stored, device=device)
        done = held = 0
        for block in keys.blocks(_READ_ROWS):
            chosen = block[wanted[done : done + len(block)]]
            self._rows[held : held + len(chosen)] = torch.from_numpy(chosen).to(device)
            done, held = done + len(block), held + len(chosen)

    def prepare(self, ids: Ids) -> Tensor:
        return _pinned(torch.from_numpy(self._places[ids]), self._rows.device)

    def place(self, prepared: Tensor) -> Tensor:
        return self._rows[prepared.to(self._rows.device, non_blocking=True)]


class StreamedSource:
    """Rows read from the memory, each time they are asked for."""

    def __init__(self, keys: Keys, device: torch.device) -> None:
        self._keys = keys
        self._device = device

    def prepare(self, ids: Ids) -> Tensor:
        return _pinned(torch.from_numpy(self._keys.gather(ids)), self._device)

    def place(self, prepared: Tensor) -> Tensor:
        return prepared.to(self._device, non_blocking=True)


def open_source(
    keys: Keys, wanted: NDArray[np.bool_], device: torch.device, resident_bytes: int | None = None
) -> Source:
    """A resident source where the wanted rows [size] fit resident_bytes, else a streamed one.

    Given None: half of the free memory of a CUDA device, and nothing on the CPU.
    """
    room = _room(device) if resident_bytes is None else resident_bytes
    if 2 * keys.dimension * int(wanted.sum()) <= room:
        return ResidentSource(keys, wanted, device)
    return StreamedSource(keys, device)


def run_ahead(make: Callable[[int], T], numbers: Iterable[int], ahead: int = _AHEAD) -> Iterator[T]:
    """make(number) for each number in order, made in one other thread, at most `ahead` before they are asked for."""
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


def _room(device: torch.device) -> int:
    if device.type == "cuda":
        return int(_CUDA_SHARE * torch.cuda.mem_get_info(device)[0])
    return _CPU_BYTES


def _pinned(tensor: Tensor, device: torch.device) -> Tensor:
    """A copy only touches the device without waiting if its memory is pinned."""
    return tensor.pin_memory() if device.type == "cuda" else tensor
