"""The keys of an exact index where they are searched: held whole on a device, or read block by block."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ibidem.errors import MemoryFolderError, UsageError
from ibidem.retrieve.neighbours import LARGEST_SQUARE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.retrieve.keys import Floats, Keys

TILE = 128

_CPU_RESIDENT_BYTES = 2 << 30
_CUDA_RESIDENT_SHARE = 0.8
_READ_ELEMENTS = 2**22


class Block(NamedTuple):
    """A run of keys, filled up to whole tiles.

    start: the entry of the first key; keys: [n, d], n a multiple of TILE; squares: [n] float32, their squared
    lengths, inf where there is no key or none that can be a neighbour (then the key is zeros).
    """

    start: int
    keys: Tensor
    squares: Tensor


class HeldKeys:
    """Keys with their squared lengths, ready to be scanned in blocks.

    On CUDA float16 keys stay float16; on the CPU keys become float32, which its products are made for.
    Squared lengths (4 bytes a key) are always held; the keys too where they fit resident_bytes (given None:
    2 GiB on the CPU, four fifths of the free memory on CUDA), and otherwise they are read anew in every scan.
    """

    def __init__(
        self, source: Keys, device: torch.device, *, resident_bytes: int | None, read_rows: int | None = None
    ) -> None:
        self._source = source
        self._device = device
        self._read_rows = read_rows or max(TILE, _READ_ELEMENTS // source.dimension)
        self.key_type = held_type(device, source)
        self._squares = torch.full((_whole_tiles(source.size),), torch.inf, device=device)
        room = _room(device) if resident_bytes is None else resident_bytes
        self._resident = self._allocate() if held_bytes(source, self.key_type) <= room else None
        self._read()
        finite = self._squares[torch.isfinite(self._squares)]
        self.longest = float(finite.max().double().sqrt()) if len(finite) else 0.0

    @property
    def whole(self) -> Block:
        """All keys as one block, where they are held."""
        return next(self._runs())

    @property
    def resident(self) -> bool:
        """Whether the keys are held whole."""
        return self._resident is not None

    def blocks(self, rows: int) -> Iterator[Block]:
        """Give all keys in order, in blocks of at most rows, a multiple of TILE."""
        for run in self._runs():
            for low in range(0, len(run.keys), rows):
                piece = slice(low, low + rows)
                yield Block(run.start + low, run.keys[piece], run.squares[piece])

    def gather(self, entries: Tensor) -> Tensor:
        """Give the keys of these entries as float64; entries: [n] int64, gives [n, d]."""
        if self._resident is not None:
            return self._resident[entries].double()
        ids, places = np.unique(entries.cpu().numpy(), return_inverse=True)
        found = torch.from_numpy(self._source.gather(ids).astype(np.float64))
        return found[torch.from_numpy(places)].to(self._device)

    def without(self, entries: Tensor) -> HeldKeys:
        """These keys, of which some [n] are nobody's neighbours; the keys themselves are shared."""
        copied = copy.copy(self)
        copied._squares = self._squares.clone()
        copied._squares[entries.to(self._device)] = torch.inf
        return copied

    def _allocate(self) -> Tensor:
        shape = (_whole_tiles(self._source.size), self._source.dimension)
        return torch.zeros(shape, dtype=self.key_type, device=self._device)

    def _read(self) -> None:
        """Read all keys once: keep the squared lengths, and the keys where they are to be held."""
        read = 0
        for part in self._source.blocks(self._read_rows):
            if part.shape[1] != self._source.dimension or read + len(part) > self._source.size:
                break
            keys = self._convert(part)
            squares = keys.double().square().sum(1)
            usable = squares < LARGEST_SQUARE
            self._squares[read : read + len(part)] = squares.masked_fill(~usable, torch.inf).float()
            if self._resident is not None:
                self._resident[read : read + len(part)] = keys.masked_fill(~usable[:, None], 0.0)
            read += len(part)
        if read != self._source.size:
            raise MemoryFolderError(
                f"The keys should be {self._source.size} of {self._source.dimension} dimensions, but reading "
                f"them broke off after {read}. Check the memory with `ibidem verify`."
            )

    def _runs(self) -> Iterator[Block]:
        """Give the keys in the largest blocks at hand: all if held, else as they are read."""
        if self._resident is not None:
            yield Block(0, self._resident, self._squares)
            return
        start = 0
        for part in self._source.blocks(self._read_rows):
            own = self._squares[start : start + len(part)]
            squares = torch.full((_whole_tiles(len(part)),), torch.inf, device=self._device)
            squares[: len(part)] = own
            keys = torch.zeros(len(squares), part.shape[1], dtype=self.key_type, device=self._device)
            keys[: len(part)] = self._convert(part).masked_fill(torch.isinf(own)[:, None], 0.0)
            yield Block(start, keys, squares)
            start += len(part)

    def _convert(self, part: Floats) -> Tensor:
        """Copy keys [n, d] to the device in the held type; the copy also frees us from read-only maps."""
        return torch.from_numpy(np.array(part)).to(self._device, self.key_type)


def held_type(device: torch.device, source: Keys) -> torch.dtype:
    """Say in which type keys are held: float16 on CUDA where they come so, else float32."""
    first = next(iter(source.blocks(1)), None)
    halves = first is not None and first.dtype == np.float16
    return torch.float16 if halves and device.type == "cuda" else torch.float32


def held_bytes(source: Keys, key_type: torch.dtype) -> int:
    """The bytes that keys take when they are held."""
    return _whole_tiles(source.size) * source.dimension * key_type.itemsize


def fits(source: Keys, device: torch.device, times: float = 1.0) -> bool:
    """Whether a device has room for all keys, so many times."""
    return times * held_bytes(source, held_type(device, source)) <= _room(device)


def check_device(device: str | torch.device) -> torch.device:
    """Refuse a device that exact search cannot use."""
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise UsageError(f"There is no device {device!r}. Use 'cpu', 'cuda' or 'cuda:1'.") from error
    if chosen.type not in ("cpu", "cuda"):
        raise UsageError(f"Exact search runs on 'cpu' and 'cuda', not on {str(chosen)!r}. Choose one.")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"Search was asked for on {str(chosen)!r}, but PyTorch sees no CUDA. Use 'cpu'.")
    return chosen


def _room(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0] * _CUDA_RESIDENT_SHARE)
    return _CPU_RESIDENT_BYTES


def _whole_tiles(count: int) -> int:
    return -(-count // TILE) * TILE
