"""The file of the native index: a header page, and arrays that are mapped in place.

The same index always has the same bytes, so a checksum of the file is a checksum of the index.
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
    EMPTY_NORM,
    EMPTY_NORM_HALF,
    FINE_BITS,
    LANES,
    MOST_DIMENSIONS,
    Centroids,
    Coding,
    Ivf,
    Lists,
    block_bytes,
    code_block_bytes,
    native,
)
from ibidem.retrieve.ivf.reference import ReferenceIvf

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_MAGIC = b"ibidem-native-5\n"
_HEADER = struct.Struct("<16s7qd")
_PAGE = 4096
_KEY_TYPES = {2: np.dtype("<f2"), 4: np.dtype("<f4")}


@dataclass(frozen=True)
class Shape:
    """The numbers from which all sizes in the file follow.

    Attributes:
        size: the number of keys.
        dimension: the number of components of a key.
        key_bytes: the bytes of a component, 2 or 4.
        lists: the number of lists.
        regions: the number of regions of centroids.
        blocks: the number of blocks, of 16 places each; most keys have two places.
        block_means: the number of blocks of 16 means of blocks.
    """

    size: int
    dimension: int
    key_bytes: int
    lists: int
    regions: int
    blocks: int
    block_means: int

    def sections(self) -> dict[str, tuple[int, np.dtype[Any], tuple[int, ...]]]:
        """Return the offset in bytes, the type and the shape of every array."""
        codes = code_block_bytes(self.dimension)
        coarse, fine = (block_bytes(self.dimension, bits) for bits in (COARSE_BITS, FINE_BITS))
        arrays: dict[str, tuple[Any, tuple[int, ...]]] = {
            "mean": ("<f4", (self.dimension,)),
            "region_blocks": ("i1", (-(-self.regions // LANES), codes)),
            "group_blocks": ("u1", (self.regions, coarse)),
            "centroid_blocks": ("u1", (LANES * self.regions, coarse)),
            "list_offsets": ("<i4", (LANES**2 * self.regions + 1,)),
            "means_offsets": ("<i4", (LANES**2 * self.regions + 1,)),
            "block_means": ("u1", (self.block_means, fine)),
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
        """The size of the file."""
        begin, dtype, shape = self.sections()["keys"]
        return begin + -(-dtype.itemsize * math.prod(shape) // _PAGE) * _PAGE


@dataclass(frozen=True)
class NativeFile:
    """A mapped file: all its bytes, and the arrays in it.

    Attributes:
        shape: the numbers of the header.
        centroids: the arrays of the centroids.
        lists: the arrays of the lists.
        bytes: the whole file.
    """

    shape: Shape
    centroids: Centroids
    lists: Lists
    bytes: NDArray[np.uint8]

    @cached_property
    def ivf(self) -> Ivf | ReferenceIvf:
        """The implementation that searches this file, shared by all its indexes."""
        if native() is None:
            return ReferenceIvf(self.centroids, self.lists)
        return Ivf(self.centroids, self.lists, in_huge_pages=True)


def create(file: IO[bytes], shape: Shape, scale: float) -> NativeFile:
    """Write a header and zeros to an empty file, and map it for writing.

    Args:
        file: the empty file.
        shape: the numbers of the header.
        scale: the steps of a code in a unit.

    Returns:
        The mapped file.
    """
    file.truncate(shape.bytes)
    file.seek(0)
    file.write(_HEADER.pack(_MAGIC, *astuple(shape), scale))
    file.flush()
    return _mapped(np.memmap(file, np.uint8, "r+"), shape, scale)


def open_file(path: Path) -> NativeFile:
    """Map a file for reading.

    Args:
        path: the file.

    Returns:
        The mapped file.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not an index file, or damaged.
    """
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


def offsets_of_means(list_offsets: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the first block of means of each list [places + 1]: a list has one for 16 blocks of keys."""
    offsets = np.zeros(len(list_offsets), np.int32)
    np.cumsum(-(-np.diff(list_offsets) // LANES), out=offsets[1:])
    return offsets


def _check_numbers(shape: Shape, size: int) -> None:
    # Every count is at most the size of the file, so a damaged header cannot request too much memory.
    sane = all(0 <= number <= size for number in astuple(shape)) and shape.key_bytes in _KEY_TYPES
    if not sane or shape.dimension % 4 or not 4 <= shape.dimension <= MOST_DIMENSIONS or not shape.regions:
        raise ValueError("its header is invalid")
    if shape.bytes != size:
        raise ValueError(f"it should have {shape.bytes} bytes and has {size}")


def _check_arrays(file: NativeFile) -> None:
    """Check the offsets and numbers that the native library follows without checks."""
    offsets = file.lists.list_offsets
    if offsets[0] != 0 or offsets[-1] != file.shape.blocks or (np.diff(offsets) < 0).any():
        raise ValueError("the offsets of its lists are not ascending")
    if not np.array_equal(file.lists.means_offsets, offsets_of_means(offsets)) or len(file.lists.block_means) != int(
        file.lists.means_offsets[-1]
    ):
        raise ValueError("the offsets of its block means do not fit those of its lists")
    regions = np.ascontiguousarray(file.centroids.region_blocks[:, : 4 * LANES]).view("<i4").reshape(-1)
    if (regions[file.shape.regions :] != EMPTY_NORM).any():
        raise ValueError("it has more regions than its header states")
    named = np.ascontiguousarray(file.lists.block_means[:, : 2 * LANES]).view("<u2").reshape(-1) != EMPTY_NORM_HALF
    firsts = LANES * file.lists.means_offsets[:-1].astype(np.int64) - offsets[:-1]
    own = np.repeat(firsts, np.diff(offsets)) + np.arange(file.shape.blocks)
    if not named[own].all() or named.sum() != len(own):
        raise ValueError("its block means do not fit its blocks")
    slots, entries, size = file.lists.slots, file.lists.entries, file.shape.size
    for numbers in (slots[slots >= 0], entries):
        if ((numbers < 0) | (numbers >= size)).any():
            raise ValueError("it refers to keys beyond its end")
        if not np.bincount(numbers, minlength=size).all():
            raise ValueError("some of its keys are in no list")
    norms = np.ascontiguousarray(file.lists.blocks[:, : 2 * LANES]).view("<u2").reshape(-1)
    if (norms[slots < 0] != EMPTY_NORM_HALF).any():
        raise ValueError("an empty place has a code")
