"""The keys of a memory: how an index reads them, and how it keeps them resident on a device."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ibidem.errors import MemoryFolderError, UsageError
from ibidem.retrieve.index import LARGEST_SQUARE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ibidem.memory import KeyCoding

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]

# Keys are scanned in tiles of this many.
TILE = 128

_CPU_RESIDENT_BYTES = 2 << 30
_CUDA_RESIDENT_SHARE = 0.8
_READ_ELEMENTS = 2**22


class Keys(Protocol):
    """The keys of a memory, numbered from 0 in the order of `blocks`, which yields float16 or float32."""

    @property
    def size(self) -> int:
        """The number of keys."""
        ...

    @property
    def dimension(self) -> int:
        """The number of components of a key."""
        ...

    def blocks(self, rows: int) -> Iterator[Floats]:
        """Yield all keys in order, block by block.

        Args:
            rows: the most keys of a block, at least 1.

        Yields:
            Arrays [at most rows, d].
        """
        ...

    def gather(self, ids: Ids) -> Floats:
        """Return some keys.

        Args:
            ids: [n] int64, numbers of keys, in any order.

        Returns:
            [n, d].
        """
        ...

    @property
    def coding(self) -> KeyCoding | None:
        """The codes of int8 keys; None for others. `blocks` and `gather` decode."""
        ...

    def chunks(self) -> Sequence[NDArray[Any]]:
        """Return all keys in order as they are stored: one or more arrays [n, d], int8, float16 or float32."""
        ...


class ArrayKeys:
    """Keys in one array.

    Args:
        array: [size, d], float16 or float32; or int8 codes.
        coding: the coding of int8 codes; None for others.

    Raises:
        UsageError: The array has another shape or type.

    Examples:
        >>> import numpy as np
        >>> keys = ArrayKeys(np.zeros((3, 2), np.float16))
        >>> keys.size, keys.dimension
        (3, 2)
    """

    def __init__(self, array: NDArray[Any], coding: KeyCoding | None = None) -> None:
        types = (np.float16, np.float32) if coding is None else (np.int8,)
        if array.ndim != 2 or array.dtype not in types:
            raise UsageError(
                f"Keys came as an array of shape {list(array.shape)} and type {array.dtype}. "
                "Give a float16 or float32 array of shape [keys, dimensions]."
            )
        self._array = array
        self.coding = coding

    @property
    def size(self) -> int:
        """The number of keys."""
        return len(self._array)

    @property
    def dimension(self) -> int:
        """The number of components of a key."""
        return int(self._array.shape[1])

    def blocks(self, rows: int) -> Iterator[Floats]:
        """Yield all keys in order, as arrays [at most rows, d]."""
        for start in range(0, self.size, rows):
            yield self._decoded(self._array[start : start + rows])

    def gather(self, ids: Ids) -> Floats:
        """Return the keys [n, d] of some numbers [n] int64."""
        return self._decoded(self._array[ids])

    def chunks(self) -> Sequence[NDArray[Any]]:
        """Return the array."""
        return [self._array]

    def _decoded(self, keys: NDArray[Any]) -> Floats:
        return keys if self.coding is None else self.coding.decode(keys)


class FirstKeys:
    """The first `size` keys of a larger source.

    Args:
        keys: the larger source.
        size: how many of its keys to use, at most all.
    """

    def __init__(self, keys: Keys, size: int) -> None:
        self._keys = keys
        self.size = size
        self.dimension = keys.dimension

    def blocks(self, rows: int) -> Iterator[Floats]:
        """Yield these keys in order, as arrays [at most rows, d]."""
        left = self.size
        for block in self._keys.blocks(rows):
            if left <= 0:
                return
            yield block[:left]
            left -= len(block)

    def gather(self, ids: Ids) -> Floats:
        """Return the keys [n, d] of some numbers [n] int64."""
        return self._keys.gather(ids)

    @property
    def coding(self) -> KeyCoding | None:
        """The codes of int8 keys; None for others."""
        return self._keys.coding

    def chunks(self) -> Sequence[NDArray[Any]]:
        """Return these keys in order as they are stored."""
        chunks, left = [], self.size
        for chunk in self._keys.chunks():
            chunks.append(chunk[:left])
            left -= len(chunks[-1])
            if not left:
                break
        return chunks


class StoredKeySource(Protocol):
    """Keys on disk of which any range can be read."""

    @property
    def dimension(self) -> int:
        """The number of components of a key."""
        ...

    @property
    def coding(self) -> KeyCoding | None:
        """The codes of int8 keys; None for others."""
        ...

    def read(self, start: int, stop: int) -> Floats:
        """Return the keys start:stop, decoded."""
        ...

    def gather(self, ids: Ids) -> Floats:
        """Return the keys of some numbers."""
        ...

    def chunks(self, start: int = 0, stop: int | None = None) -> Sequence[NDArray[Any]]:
        """Return the keys start:stop as they are stored."""
        ...


class RangeKeys:
    """Consecutive keys of a larger source, of which no others are read.

    Args:
        keys: the larger source.
        first: its first key here.
        last: the key after the last.
    """

    def __init__(self, keys: StoredKeySource, first: int, last: int) -> None:
        self._keys = keys
        self._first = first
        self.size = last - first
        self.dimension = keys.dimension

    def blocks(self, rows: int) -> Iterator[Floats]:
        """Yield these keys in order, as arrays [at most rows, d]."""
        for start in range(0, self.size, rows):
            yield self._keys.read(self._first + start, self._first + min(start + rows, self.size))

    def gather(self, ids: Ids) -> Floats:
        """Return the keys [n, d] of some numbers [n] int64, counted from the first key here."""
        return self._keys.gather(ids + self._first)

    @property
    def coding(self) -> KeyCoding | None:
        """The codes of int8 keys; None for others."""
        return self._keys.coding

    def chunks(self) -> Sequence[NDArray[Any]]:
        """Return these keys in order as they are stored."""
        return self._keys.chunks(self._first, self._first + self.size)


def finite(block: Floats, first: int | None) -> NDArray[np.float32]:
    """Copy keys to float32 and reject those that are not finite, since they spoil a k-means or a graph.

    Args:
        block: [n, d] keys.
        first: the entry of the first key where the keys are consecutive, else None.

    Returns:
        [n, d] float32, contiguous.

    Raises:
        MemoryFolderError: A key is not finite.
    """
    plain = np.ascontiguousarray(block, dtype=np.float32)
    good = np.isfinite(plain).all(axis=1)
    if not good.all():
        where = "" if first is None else f", the first of them entry {first + int(np.argmin(good))}"
        raise MemoryFolderError(
            f"{int((~good).sum())} keys are not finite numbers{where}. "
            "Check the memory with `ibidem verify`, or use the index setting 'exact', which ignores them."
        )
    return plain


def draw_sample(keys: Keys, wanted: int, seed: int) -> Floats:
    """Draw keys to train on, without repetition.

    Args:
        keys: the keys to draw from.
        wanted: keys to draw, at most all.
        seed: of the draw.

    Returns:
        [wanted, d], in the order of their entries.
    """
    ids = np.sort(np.random.default_rng(seed).choice(keys.size, wanted, replace=False, shuffle=False))
    return keys.gather(ids)


def check_complete(keys: Keys, read: int) -> None:
    """Reject a source that yielded another number of keys than it announced.

    Args:
        keys: the source.
        read: keys that it yielded.

    Raises:
        MemoryFolderError: The number differs from the size of the source.
    """
    if read != keys.size:
        raise MemoryFolderError(
            f"The keys should be {keys.size} of {keys.dimension} dimensions, but {read} were read. "
            "Check the memory with `ibidem verify`."
        )


class Block(NamedTuple):
    """Consecutive keys, padded to whole tiles.

    Attributes:
        start: the entry of the first key.
        keys: [n, d], n a multiple of TILE, zeros where there is no usable key.
        squares: [n] float32, squared lengths, inf where there is no usable key.
    """

    start: int
    keys: Tensor
    squares: Tensor


class ResidentKeys:
    """Keys with their squared lengths, scanned in blocks on a device.

    Float16 keys remain float16 on CUDA; on the CPU all keys become float32, since its matrix products need that.
    The squared lengths (4 bytes a key) are always resident. The keys are resident if they fit into `resident_bytes`;
    otherwise every scan reads them from the source again.

    Args:
        source: the keys.
        device: where they are scanned.
        resident_bytes: the most bytes of resident keys; None for 2 GiB on the CPU and four fifths of the free memory
            on CUDA.
        read_rows: the most keys read from the source at once; None for a default.

    Raises:
        MemoryFolderError: The source yields fewer keys than it announces.
    """

    def __init__(
        self, source: Keys, device: torch.device, *, resident_bytes: int | None, read_rows: int | None = None
    ) -> None:
        self._source = source
        self._device = device
        self._read_rows = read_rows or max(TILE, _READ_ELEMENTS // source.dimension)
        self.key_type = resident_type(device, source)
        self._squares = torch.full((_whole_tiles(source.size),), torch.inf, device=device)
        room = _free_bytes(device) if resident_bytes is None else resident_bytes
        self._resident = self._allocate() if _resident_bytes(source, self.key_type) <= room else None
        self._read()
        finite = self._squares[torch.isfinite(self._squares)]
        self.longest = float(finite.max().double().sqrt()) if len(finite) else 0.0

    @property
    def whole(self) -> Block:
        """All keys as one block; only for resident keys."""
        return next(self._runs())

    @property
    def resident(self) -> bool:
        """Whether the keys themselves are resident."""
        return self._resident is not None

    def blocks(self, rows: int) -> Iterator[Block]:
        """Yield all keys in order, block by block.

        Args:
            rows: the most keys of a block, a multiple of TILE.
        """
        for run in self._runs():
            for low in range(0, len(run.keys), rows):
                piece = slice(low, low + rows)
                yield Block(run.start + low, run.keys[piece], run.squares[piece])

    def gather(self, entries: Tensor) -> Tensor:
        """Return the keys of some entries.

        Args:
            entries: [n] int64.

        Returns:
            [n, d] float64.
        """
        if self._resident is not None:
            return self._resident[entries].double()
        ids, places = np.unique(entries.cpu().numpy(), return_inverse=True)
        found = torch.from_numpy(self._source.gather(ids).astype(np.float64))
        return found[torch.from_numpy(places)].to(self._device)

    def without(self, entries: Tensor) -> ResidentKeys:
        """Return a view that shares the keys, and in which some entries are not found.

        Args:
            entries: [n] int64, the entries to hide.
        """
        copied = copy.copy(self)
        copied._squares = self._squares.clone()
        copied._squares[entries.to(self._device)] = torch.inf
        return copied

    def _allocate(self) -> Tensor:
        shape = (_whole_tiles(self._source.size), self._source.dimension)
        return torch.zeros(shape, dtype=self.key_type, device=self._device)

    def _read(self) -> None:
        """Read all keys once, for their squared lengths and, where they fit, for the resident copy."""
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
        check_complete(self._source, read)

    def _runs(self) -> Iterator[Block]:
        """Yield the keys in the largest blocks available: all at once if resident, else as they are read."""
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
        # The copy is needed: torch cannot take arrays of a read-only mapped file.
        return torch.from_numpy(np.array(part)).to(self._device, self.key_type)


def resident_type(device: torch.device, source: Keys) -> torch.dtype:
    """Return the type of resident keys: float16 on CUDA if the source has float16, else float32.

    Args:
        device: where the keys are scanned.
        source: the keys.
    """
    first = next(iter(source.blocks(1)), None)
    half = first is not None and first.dtype == np.float16
    return torch.float16 if half and device.type == "cuda" else torch.float32


def fits_as_float16(keys: Keys, device: torch.device, copies: float = 1.0) -> bool:
    """Return whether a device is a GPU with room for this many float16 copies of the keys.

    Args:
        keys: the keys; others than float16 never fit.
        device: where they are searched.
        copies: how many times their bytes are needed.
    """
    if device.type != "cuda" or resident_type(device, keys) != torch.float16:
        return False
    return copies * _resident_bytes(keys, torch.float16) <= _free_bytes(device)


def check_device(device: str | torch.device) -> torch.device:
    """Return a device on which search can run.

    Args:
        device: 'cpu', 'cuda', 'cuda:1' and so on.

    Raises:
        UsageError: There is no such device, or search does not run on it.

    Examples:
        >>> check_device("cpu")
        device(type='cpu')
    """
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise UsageError(f"There is no device {device!r}. Use 'cpu', 'cuda' or 'cuda:1'.") from error
    if chosen.type not in ("cpu", "cuda"):
        raise UsageError(f"Search runs on 'cpu' and 'cuda', not on {str(chosen)!r}. Choose one of these.")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"Search cannot run on {str(chosen)!r}: PyTorch finds no CUDA device. Use 'cpu'.")
    return chosen


def _resident_bytes(source: Keys, key_type: torch.dtype) -> int:
    return _whole_tiles(source.size) * source.dimension * key_type.itemsize


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0] * _CUDA_RESIDENT_SHARE)
    return _CPU_RESIDENT_BYTES


def _whole_tiles(count: int) -> int:
    return -(-count // TILE) * TILE
