"""The native index: its file, which is mapped and which no search changes, and the search in it.

The file has a header page, and arrays that are mapped in place. The same index always has the same bytes, so a checksum
of the file is a checksum of the index.
"""

from __future__ import annotations

import math
import struct
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ibidem.errors import MemoryFolderError
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
    SearchLimits,
    SearchMode,
    StoredKeys,
    block_bytes,
    code_block_bytes,
    native,
)
from ibidem.retrieve.index import REBUILD, Neighbours, check_search, check_shape, write_file
from ibidem.retrieve.index_settings import NATIVE, NativeSettings
from ibidem.retrieve.ivf.reference import ReferenceIvf

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.retrieve.keys import Keys

_MAGIC = b"ibidem-native-6\n"
_HEADER = struct.Struct("<16s6qd")
_PAGE = 4096
# A file is copied in pieces of this size.
_COPY_BYTES = 1 << 26


@dataclass(frozen=True)
class Shape:
    """The numbers from which all sizes in the file follow.

    Attributes:
        size: the number of keys.
        dimension: the number of components of a key.
        lists: the number of lists.
        regions: the number of regions of centroids.
        blocks: the number of blocks, of 16 places each; most keys have two places.
        block_means: the number of blocks of 16 means of blocks.
    """

    size: int
    dimension: int
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
            "entries": ("<i4", (LANES * self.blocks,)),
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
        begin, dtype, shape = self.sections()["entries"]
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

    def without(self, gone: NDArray[np.int64]) -> NativeFile:
        """Return the file without the entries that a memory no longer has; later ones move down.

        Args:
            gone: [n] ascending entries.
        """
        if not len(gone):
            return self
        entries = self.lists.entries
        left = np.where(np.isin(entries, gone), -1, entries - np.searchsorted(gone, entries)).astype(np.int32)
        return replace(self, lists=replace(self.lists, entries=left))

    def occupied(self) -> NDArray[np.uint16]:
        """Return one bit for each place, 1 for a place that holds an entry, [blocks] uint16."""
        places = (self.lists.entries >= 0).reshape(-1, LANES)
        return np.packbits(places, axis=1, bitorder="little").view("<u2").reshape(-1)


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
    """Compute the first block of means of each list; a list has one block of means for 16 blocks of keys.

    Args:
        list_offsets: [places + 1] int32, the first block of keys of each list.

    Returns:
        [places + 1] int32.
    """
    offsets = np.zeros(len(list_offsets), np.int32)
    np.cumsum(-(-np.diff(list_offsets) // LANES), out=offsets[1:])
    return offsets


def _check_numbers(shape: Shape, size: int) -> None:
    # Every count is at most the size of the file, so a damaged header cannot request too much memory.
    sane = all(0 <= number <= size for number in astuple(shape))
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
    empty, size = file.lists.entries < 0, file.shape.size
    numbers = file.lists.entries[~empty]
    if (numbers >= size).any():
        raise ValueError("it refers to keys beyond its end")
    counts = np.bincount(numbers, minlength=size)
    if not counts.all():
        raise ValueError("some of its keys are in no list")
    if counts.max(initial=1) > 2:
        raise ValueError("some of its keys are in more than two lists")
    norms = np.ascontiguousarray(file.lists.blocks[:, : 2 * LANES]).view("<u2").reshape(-1)
    if (norms[empty] != EMPTY_NORM_HALF).any():
        raise ValueError("an empty place has a code")


@dataclass(frozen=True)
class NativeIndex:
    """An inverted file of 2-bit codes and its search settings.

    Candidates are found by codes and reranked by the distance to the keys as the memory holds them.

    Attributes:
        file: the mapped file.
        keys: the keys of its entries, where the memory stores them.
        settings: how it was built and is searched.
        recall: recall@16, None if it was not measured.
        threads: the most threads of a search; None for as many as torch uses.
        live: [blocks] uint16, one bit for each place, 0 for an entry that must not be found; None for all.
    """

    file: NativeFile
    keys: StoredKeys
    settings: NativeSettings
    recall: float | None = None
    threads: int | None = None
    live: NDArray[np.uint16] | None = None

    @property
    def supports_cuda_graph(self) -> bool:
        """False: the index is searched on the CPU."""
        return False

    @property
    def size(self) -> int:
        """The number of keys, including hidden ones."""
        return self.keys.size

    @property
    def dimension(self) -> int:
        """The number of components of a key."""
        return self.file.shape.dimension

    @property
    def description(self) -> str:
        """One line for memory cards and logs."""
        settings = self.settings
        parts = [
            f"native IVF of {settings.lists} lists, 2-bit residuals",
            f"{self.size} keys of {self.dimension} dimensions",
            f"nprobe {settings.nprobe}, prune ratio {settings.prune_ratio:.3g}, rerank {settings.rerank}",
        ]
        parts += [] if self.recall is None else [f"recall@16 {self.recall:.3f}"]
        return ", ".join(parts)

    @cached_property
    def ivf(self) -> Ivf | ReferenceIvf:
        """The implementation that searches the file: the native library, or numpy where there is none."""
        parts = self.file.centroids, self.file.lists, self.keys
        return ReferenceIvf(*parts) if native() is None else Ivf(*parts, in_huge_pages=True)

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """Find about the k nearest keys of each query [q, d]; see `Index.search`."""
        check_search(queries, k, self.dimension)
        distances, entries = self.ivf.search(queries, k, self.probing(k), self.live, self.threads)
        return Neighbours(distances.to(queries.device), entries.to(queries.device))

    def search_rows(self, queries: Tensor, modes: Tensor, group_size: int, k: int) -> Neighbours:
        """Find about the k nearest keys of the rows of a decoding step.

        Args:
            queries: [rows, d] float32.
            modes: [rows] uint8, the `SearchMode` of each row.
            group_size: This many consecutive rows are hypotheses of one sentence.
            k: neighbours for each row.

        Returns:
            Distances and entries, each [rows, k].
        """
        if isinstance(self.ivf, Ivf):
            limits = self.probing(k), self.probing(k, reduced=True)
            return Neighbours(*self.ivf.search_rows(queries, modes, group_size, k, *limits, self.live, self.threads))
        searched = queries.masked_fill((modes == SearchMode.SKIP)[:, None], np.nan)
        return Neighbours(*self.ivf.search(searched, k, self.probing(k), self.live, self.threads))

    def probing(self, k: int, *, reduced: bool = False) -> SearchLimits:
        """Return the search parameters of the native library.

        Args:
            k: neighbours for each query.
            reduced: search a quarter of the lists.

        Returns:
            The parameters.
        """
        settings = self.settings.reduced if reduced else self.settings
        return SearchLimits(
            settings.nprobe, settings.rerank_for(k), settings.prune_ratio, settings.block_prune_ratio, settings.groups
        )

    def without(self, entries: NDArray[np.int64]) -> NativeIndex:
        """Return an index of the same file that does not find these entries."""
        live = (self.file.occupied() if self.live is None else self.live).copy()
        places = self._places[:, entries].reshape(-1)
        np.bitwise_and.at(live, places // LANES, ~(1 << (places % LANES)).astype(np.uint16))
        return self._sharing(live=live)

    def searching(self, settings: NativeSettings, recall: float | None = None) -> NativeIndex:
        """Return an index of the same file with other search settings."""
        return self._sharing(settings=settings, recall=recall)

    def _sharing(self, **changes: Any) -> NativeIndex:
        """Return a changed copy that shares what searches the file, since that has a copy of its arrays."""
        changed = replace(self, **changes)
        changed.__dict__["ivf"] = self.ivf
        return changed

    def save(self, path: str | Path) -> dict[str, Any]:
        """Write the index to a file, atomically.

        Args:
            path: the file to write or replace.

        Returns:
            The description that `load_native` needs, for JSON.

        Raises:
            MemoryFolderError: The file cannot be written.
        """
        content = self.file.bytes

        def write(target: Path) -> None:
            with target.open("wb") as file:
                for begin in range(0, len(content), _COPY_BYTES):
                    file.write(content[begin : begin + _COPY_BYTES].data)

        write_file(Path(path), write)
        settings = self.settings
        return {
            "kind": NATIVE,
            "lists": settings.lists,
            "nprobe": settings.nprobe,
            "prune_ratio": settings.prune_ratio,
            "rerank": settings.rerank,
            "notes": list(settings.notes),
            "size": self.file.shape.size,
            "dimension": self.dimension,
            "recall": self.recall,
        }

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        """The first and the last place of each entry, [2, size]; they are equal for an entry that has only one."""
        taken = np.flatnonzero(self.file.lists.entries >= 0)
        entries = self.file.lists.entries[taken]
        places = np.empty((2, self.size), np.int64)
        places[0, entries[::-1]] = taken[::-1]
        places[1, entries] = taken
        return places


def load_native(
    path: str | Path,
    info: Mapping[str, Any],
    keys: Keys,
    gone: NDArray[np.int64] | None = None,
    *,
    threads: int | None = None,
) -> NativeIndex:
    """Map an index that `NativeIndex.save` wrote; without the native library its search is slow.

    Args:
        path: the file.
        info: the description that `save` returned.
        keys: the keys that the index was built from, without those of the entries `gone`.
        gone: [n] ascending, entries that were removed since the index was built; None for none. The index numbers the
            others as `keys` does.
        threads: the most threads of a search; None for as many as torch uses.

    Returns:
        The index.

    Raises:
        MemoryFolderError: The file or its description is damaged, or belongs to other keys.
    """
    try:
        settings = NativeSettings(
            lists=_at_least_one(int(info["lists"])),
            nprobe=_at_least_one(int(info["nprobe"])),
            prune_ratio=_at_least_one(float(info["prune_ratio"])),
            rerank=_at_least_one(int(info["rerank"])),
            notes=tuple(str(note) for note in info["notes"]),
        )
        recall = None if info["recall"] is None else float(info["recall"])
    except (KeyError, TypeError, ValueError) as error:
        raise MemoryFolderError(f"The description of the index {path} is incomplete ({error!r}). {REBUILD}.") from error
    try:
        file = open_file(Path(path))
    except (OSError, ValueError) as error:
        raise MemoryFolderError(f"The index {path} cannot be read: {error}. {REBUILD}.") from error
    lost = np.empty(0, np.int64) if gone is None else gone
    check_shape(f"index {path}", file.shape.size - len(lost), file.shape.dimension, keys)
    file = file.without(lost)
    return NativeIndex(file, stored_keys(keys), settings, recall, threads, live=file.occupied() if len(lost) else None)


def stored_keys(keys: Keys) -> StoredKeys:
    """Return keys where they are stored, as the native library reads them."""
    coding = keys.coding
    chunks = keys.chunks() or [np.empty((0, keys.dimension), np.float16)]
    return StoredKeys(chunks, *(() if coding is None else (coding.offset, coding.step)))


def _at_least_one(value: Any) -> Any:
    if not value >= 1:
        raise ValueError(f"{value!r} is below 1")
    return value
