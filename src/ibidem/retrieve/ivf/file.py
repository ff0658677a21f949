"""The native index as one file: a page of numbers, and arrays that are mapped where they lie.

The same index is always the same bytes, so that a checksum of the file is one of the index.
"""

from __future__ import annotations

import math
import struct
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ibidem.native import (
    COARSE_BITS,
    FINE_BITS,
    LANES,
    MOST_DIMENSIONS,
    NOTHING,
    NOTHING_HALF,
    Centroids,
    Coding,
    Ivf,
    Lists,
    block_bytes,
    code_block_bytes,
    native,
)
from ibidem.retrieve.ivf.plain import PlainIvf

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_MAGIC = b"ibidem-native-5\n"
_HEADER = struct.Struct("<16s7qd")
_PAGE = 4096
_KEY_TYPES = {2: np.dtype("<f2"), 4: np.dtype("<f4")}


@dataclass(frozen=True)
class Shape:
    """The numbers that all follows from.

    key_bytes: of a component, 2 or 4; blocks: of 16 places, two of which most keys have; guides: of 16 means.
    """

    size: int
    dimension: int
    key_bytes: int
    lists: int
    regions: int
    blocks: int
    guides: int

    def sections(self) -> dict[str, tuple[int, np.dtype[Any], tuple[int, ...]]]:
        """Of every array where it begins, its type and its shape."""
        codes = code_block_bytes(self.dimension)
        coarse, fine = (block_bytes(self.dimension, bits) for bits in (COARSE_BITS, FINE_BITS))
        arrays: dict[str, tuple[Any, tuple[int, ...]]] = {
            "mean": ("<f4", (self.dimension,)),
            "region_blocks": ("i1", (-(-self.regions // LANES), codes)),
            "group_blocks": ("u1", (self.regions, coarse)),
            "centroid_blocks": ("u1", (LANES * self.regions, coarse)),
            "list_offsets": ("<i4", (LANES**2 * self.regions + 1,)),
            "guide_offsets": ("<i4", (LANES**2 * self.regions + 1,)),
            "guides": ("u1", (self.guides, fine)),
            "blocks": ("u1", (self.blocks, fine)),
            "slots": ("<i4", (LANES * self.blocks,)),
            "entries": ("<i4", (self.size,)),
            "keys": (_KEY_TYPES[self.key_bytes], (self.size, self.dimension)),
        }
        sections = {}
        begin = _PAGE
        for name, (kind, shape) in arrays.items():
            dtype = np.dtype(kind)
            sections[name] = (begin, dtype, shape)
            begin += -(-dtype.itemsize * math.prod(shape) // _PAGE) * _PAGE
        return sections

    @property
    def bytes(self) -> int:
        """Of the file."""
        begin, dtype, shape = self.sections()["keys"]
        return begin + -(-dtype.itemsize * math.prod(shape) // _PAGE) * _PAGE


@dataclass(frozen=True)
class NativeFile:
    """A mapped file: all its bytes, and the arrays in it."""

    shape: Shape
    centroids: Centroids
    lists: Lists
    bytes: NDArray[np.uint8]

    @cached_property
    def ivf(self) -> Ivf | PlainIvf:
        """What does the searching, for all indexes of this file."""
        if native() is None:
            return PlainIvf(self.centroids, self.lists)
        return Ivf(self.centroids, self.lists, at_hand=True)


def create(file: IO[bytes], shape: Shape, scale: float) -> NativeFile:
    """Fill an empty file with zeros under a header, mapped for writing."""
    file.truncate(shape.bytes)
    file.seek(0)
    file.write(_HEADER.pack(_MAGIC, *astuple(shape), scale))
    file.flush()
    return _mapped(np.memmap(file, np.uint8, "r+"), shape, scale)


def open_file(path: Path) -> NativeFile:
    """Map a file for reading; raises ValueError for what is no such file, or not whole."""
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        raise ValueError("it is too short")
    magic, *numbers, scale = _HEADER.unpack(header)
    if magic != _MAGIC:
        raise ValueError("it is of another kind or version")
    shape = Shape(*numbers)
    _check_numbers(shape, path.stat().st_size)
    mapped = _mapped(np.memmap(path, np.uint8, "r"), shape, scale)
    _check_arrays(mapped)
    return mapped


def _mapped(everything: NDArray[np.uint8], shape: Shape, scale: float) -> NativeFile:
    arrays = {
        name: everything[begin : begin + dtype.itemsize * math.prod(size)].view(dtype).reshape(size)
        for name, (begin, dtype, size) in shape.sections().items()
    }
    coding = Coding(arrays.pop("mean"), scale)
    centroids = Centroids(coding, *(arrays.pop(f"{name}_blocks") for name in ("region", "group", "centroid")))
    return NativeFile(shape, centroids, Lists(**arrays), everything)


def offsets_of_guides(list_offsets: NDArray[np.int32]) -> NDArray[np.int32]:
    """Where the guides of each list begin [places + 1], in blocks of guides: one for sixteen blocks of keys."""
    offsets = np.zeros(len(list_offsets), np.int32)
    np.cumsum(-(-np.diff(list_offsets) // LANES), out=offsets[1:])
    return offsets


def _check_numbers(shape: Shape, size: int) -> None:
    # Every count is bound by the bytes that are there, so nothing absurd is asked of memory on a header's word.
    sane = all(0 <= number <= size for number in astuple(shape)) and shape.key_bytes in _KEY_TYPES
    if not sane or shape.dimension % 4 or not 4 <= shape.dimension <= MOST_DIMENSIONS or not shape.regions:
        raise ValueError("its numbers cannot be meant")
    if shape.bytes != size:
        raise ValueError(f"it should have {shape.bytes} bytes and has {size}")


def _check_arrays(file: NativeFile) -> None:
    """What the library follows without looking must lead into the file."""
    offsets = file.lists.list_offsets
    if offsets[0] != 0 or offsets[-1] != file.shape.blocks or (np.diff(offsets) < 0).any():
        raise ValueError("its lists do not follow one another")
    if not np.array_equal(file.lists.guide_offsets, offsets_of_guides(offsets)) or len(file.lists.guides) != int(
        file.lists.guide_offsets[-1]
    ):
        raise ValueError("its guides do not follow its lists")
    regions = np.ascontiguousarray(file.centroids.region_blocks[:, : 4 * LANES]).view("<i4").reshape(-1)
    if (regions[file.shape.regions :] != NOTHING).any():
        raise ValueError("it names regions that are not there")
    named = np.ascontiguousarray(file.lists.guides[:, : 2 * LANES]).view("<u2").reshape(-1) != NOTHING_HALF
    firsts = LANES * file.lists.guide_offsets[:-1].astype(np.int64) - offsets[:-1]
    own = np.repeat(firsts, np.diff(offsets)) + np.arange(file.shape.blocks)
    if not named[own].all() or named.sum() != len(own):
        raise ValueError("its guides name other blocks than it has")
    slots, entries, size = file.lists.slots, file.lists.entries, file.shape.size
    for numbers in (slots[slots >= 0], entries):
        if ((numbers < 0) | (numbers >= size)).any():
            raise ValueError("it names keys that are not there")
        if not np.bincount(numbers, minlength=size).all():
            raise ValueError("it has keys that it does not name")
    norms = np.ascontiguousarray(file.lists.blocks[:, : 2 * LANES]).view("<u2").reshape(-1)
    if (norms[slots < 0] != NOTHING_HALF).any():
        raise ValueError("it has places for keys that are not there")
