"""The inverted file (IVF) with 2-bit residual codes: its arrays, search, assignment and packing in native code."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ibidem.native.library import dense, require, threads_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

# Points of a block, bits of a dimension, and the norms of an empty place among regions and among other points; as in
# native/index/blocks.h and native/index/codes.h.
LANES = 16
COARSE_BITS, FINE_BITS = 4, 2
EMPTY_NORM, EMPTY_NORM_HALF = 1 << 30, 0x7C00
MOST_DIMENSIONS = 1024

# The least queries of a thread, and the least keys when keys are assigned or packed.
_LEAST_QUERIES = 2
_LEAST_KEYS = 1024

# Low bits of an entry that the table of chunks leaves out, at most and at least; and chunks that a lookup passes.
_MOST_SHIFT, _LEAST_SHIFT = 16, 6
_FEW_CHUNKS = 4

_CACHE_LINE = 64
_HUGE_PAGE = 2 << 20


class _Coding(ctypes.Structure):
    _fields_ = (("dimension", ctypes.c_int64), ("mean", ctypes.c_void_p), ("scale", ctypes.c_float))


class _KeyChunk(ctypes.Structure):
    _fields_ = (("keys", ctypes.c_void_p), ("first", ctypes.c_int64))


class _Keys(ctypes.Structure):
    """Keys of native/index/keys.h."""

    _fields_ = (
        ("chunks", ctypes.c_void_p),
        ("first_chunks", ctypes.c_void_p),
        ("shift", ctypes.c_int64),
        ("dimension", ctypes.c_int64),
        ("component_bytes", ctypes.c_int64),
        ("offset", ctypes.c_void_p),
        ("step", ctypes.c_void_p),
    )


class _Ivf(ctypes.Structure):
    """Ivf of native/index/ivf.h."""

    _fields_ = (
        ("coding", _Coding),
        ("regions", ctypes.c_int64),
        ("region_blocks", ctypes.c_void_p),
        ("group_blocks", ctypes.c_void_p),
        ("centroid_blocks", ctypes.c_void_p),
        ("lists", ctypes.c_void_p),
        ("block_means", ctypes.c_void_p),
        ("blocks", ctypes.c_void_p),
        ("entries", ctypes.c_void_p),
        ("keys", _Keys),
    )


class _SearchSettings(ctypes.Structure):
    _fields_ = (
        ("k", ctypes.c_int64),
        ("nprobe", ctypes.c_int64),
        ("rerank", ctypes.c_int64),
        ("prune_ratio", ctypes.c_float),
        ("block_prune_ratio", ctypes.c_float),
        ("groups", ctypes.c_int64),
    )


class SearchMode(IntEnum):
    """How a query is searched for: SearchMode of native/index/query_groups.h."""

    SKIP = 0
    REDUCED = 1
    FULL = 2


@dataclass(frozen=True)
class SearchLimits:
    """How much of an index a search reads.

    Attributes:
        nprobe: The most lists that are probed.
        rerank: Candidates by codes that are reranked by their exact distances.
        prune_ratio: Lists farther than this times the worst candidate are skipped.
        block_prune_ratio: Blocks farther than this times the worst candidate are skipped.
        groups: The most groups of centroids that are opened.
    """

    nprobe: int
    rerank: int
    prune_ratio: float
    block_prune_ratio: float
    groups: int

    def rerank_for(self, k: int) -> int:
        """Return enough candidates for k neighbours even if every key is found in both of its places.

        Args:
            k: Neighbours of a query.
        """
        return max(self.rerank, 2 * k)


def search_settings(k: int, probing: SearchLimits) -> ctypes.Structure:
    """Pack the settings of a search for the library.

    Args:
        k: Neighbours of a query.
        probing: How much of the index is read.
    """
    pool = probing.rerank_for(k)
    return _SearchSettings(k, probing.nprobe, pool, probing.prune_ratio, probing.block_prune_ratio, probing.groups)


def search_threads(queries: int, most: int | None) -> int:
    """Return the number of threads of a search.

    Args:
        queries: The number of queries.
        most: The most threads; None: all that torch has.
    """
    return min(most or sys.maxsize, threads_for(queries, _LEAST_QUERIES))


@dataclass(frozen=True)
class Coding:
    """Codes of numbers: round((x - mean) * scale), from -127 to 127.

    Attributes:
        mean: [d] float32.
        scale: Steps of a code in a unit.
    """

    mean: NDArray[np.float32]
    scale: float

    def packed(self) -> Any:
        """Pack it for the library."""
        return _Coding(len(self.mean), self.mean.ctypes.data, self.scale)


@dataclass(frozen=True)
class Centroids:
    """Centroids in groups and groups in regions of at most 16; the place of a centroid is the number of its list.

    Attributes:
        coding: The codes of keys.
        region_blocks: Centres of regions [regions / 16, code_block_bytes].
        group_blocks: Centres of groups [regions, block_bytes].
        centroid_blocks: Centroids [16 x regions, block_bytes].
    """

    coding: Coding
    region_blocks: NDArray[np.int8]
    group_blocks: NDArray[np.uint8]
    centroid_blocks: NDArray[np.uint8]

    @property
    def places(self) -> int:
        """The number of places of centroids, which is that of lists; some are empty."""
        return LANES * len(self.centroid_blocks)


@dataclass(frozen=True)
class Lists:
    """Keys in lists, each key in two of them, in blocks of 16 keys that lie close together.

    Attributes:
        list_offsets: The first block of each list [places + 1] int32.
        means_offsets: The first block of means of each list [places + 1] int32.
        block_means: Blocks of the means of 16 blocks each [n, block_bytes], as in native/index/blocks.h.
        blocks: Blocks of keys [blocks, block_bytes].
        entries: The entry in each place [16 x blocks] int32, -1 for an empty place.
    """

    list_offsets: NDArray[np.int32]
    means_offsets: NDArray[np.int32]
    block_means: NDArray[np.uint8]
    blocks: NDArray[np.uint8]
    entries: NDArray[np.int32]


class StoredKeys:
    """The keys of all entries where they are stored, in chunks of consecutive entries."""

    def __init__(
        self,
        chunks: Sequence[NDArray[Any]],
        offset: NDArray[np.float32] | None = None,
        step: NDArray[np.float32] | None = None,
    ) -> None:
        """Take the arrays.

        Args:
            chunks: One or more arrays [n, d], all int8, float16 or float32.
            offset: [d], for int8 keys: a component is offset + step * code.
            step: [d], for int8 keys.
        """
        self._chunks = [np.ascontiguousarray(chunk) for chunk in chunks]
        self._coding = tuple(
            None if each is None else np.ascontiguousarray(each, np.float32) for each in (offset, step)
        )
        self._firsts = np.cumsum([0] + [len(chunk) for chunk in self._chunks], dtype=np.int64)
        self._shift, self._first_chunks = _chunk_table(self._firsts)
        addresses = [*(chunk.ctypes.data for chunk in self._chunks), None]
        places = [_KeyChunk(address, first) for address, first in zip(addresses, self._firsts.tolist(), strict=True)]
        self._table = (_KeyChunk * len(places))(*places)

    @property
    def size(self) -> int:
        """The number of keys."""
        return int(self._firsts[-1])

    @property
    def dimension(self) -> int:
        """The number of components of a key."""
        return int(self._chunks[0].shape[1])

    def gather(self, entries: NDArray[np.integer]) -> NDArray[np.float32]:
        """Decode some keys.

        Args:
            entries: [n].

        Returns:
            [n, d].
        """
        numbers = np.searchsorted(self._firsts, entries, side="right") - 1
        keys = np.empty((len(entries), self.dimension), np.float32)
        for number in np.unique(numbers).tolist():
            own = numbers == number
            keys[own] = self._chunks[number][entries[own] - self._firsts[number]]
        offset, step = self._coding
        return keys if offset is None or step is None else offset + step * keys

    def packed(self) -> Any:
        """Pack them for the library, which then points to the arrays of this object."""
        coding = (None if each is None else each.ctypes.data for each in self._coding)
        kind = self._chunks[0].dtype.itemsize
        return _Keys(
            ctypes.addressof(self._table), self._first_chunks.ctypes.data, self._shift, self.dimension, kind, *coding
        )


class Ivf:
    """An index of keys in lists, or only centroids that keys are assigned to."""

    def __init__(
        self,
        centroids: Centroids,
        lists: Lists | None = None,
        keys: StoredKeys | None = None,
        *,
        in_huge_pages: bool = False,
    ) -> None:
        """Take the arrays.

        Args:
            centroids: The tree of centroids.
            lists: The lists; None: the index only assigns keys to lists.
            keys: The keys of the entries in the lists; None where there are no lists.
            in_huge_pages: Whether all arrays but the keys are copied to huge pages; this pays for many searches.
        """
        arrays = {name: getattr(centroids, name) for name in ("region_blocks", "group_blocks", "centroid_blocks")}
        if lists is not None:
            arrays["lists"] = _pack_list_info(lists)
            arrays |= {name: getattr(lists, name) for name in ("block_means", "blocks", "entries")}
        arrays = copy_to_huge_pages(arrays) if in_huge_pages else arrays
        # The library points to these.
        self._kept = (centroids, lists, keys, arrays)
        self._parts = _Ivf(centroids.coding.packed(), len(centroids.group_blocks))
        for name, array in arrays.items():
            setattr(self._parts, name, array.ctypes.data)
        if keys is not None:
            self._parts.keys = keys.packed()

    def search(
        self,
        queries: Tensor,
        k: int,
        probing: SearchLimits,
        live: NDArray[np.uint16] | None = None,
        threads: int | None = None,
        group_size: int = 1,
    ) -> tuple[Tensor, Tensor]:
        """Find about the k nearest keys of each query.

        Args:
            queries: [q, d]; a query that is not finite or too long has no neighbours.
            k: Neighbours of a query.
            probing: How much of the index is read.
            live: One bit for each place [blocks], 0 for an entry that is skipped; None: no entry is.
            threads: The most threads; None: all that torch has.
            group_size: Consecutive queries that belong to one sentence. Those that are nearly equal share a search.

        Returns:
            Squared distances [q, k] float32 and entries [q, k] int64; inf and -1 where there are fewer keys.
        """
        return self._search(queries, None, group_size, k, probing, probing, live, threads)

    def search_rows(
        self,
        queries: Tensor,
        modes: Tensor,
        group_size: int,
        k: int,
        full: SearchLimits,
        reduced: SearchLimits,
        alive_mask: NDArray[np.uint16] | None = None,
        threads: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Find what a `RetrievalStep` finds for these queries.

        Args:
            queries: [rows, d]; a query that is not finite or too long has no neighbours.
            modes: `SearchMode` of each query [rows] uint8; a query that is skipped has no neighbours.
            group_size: As for `search`.
            k: Neighbours of a query.
            full: How far a full search goes.
            reduced: How far a reduced search goes.
            alive_mask: As `live` of `search`.
            threads: The most threads; None: all that torch has.

        Returns:
            Squared distances [rows, k] float32 and entries [rows, k] int64; inf and -1 where there are fewer keys.

        Raises:
            ValueError: The shapes or the type of the modes are wrong.
        """
        shape = [len(modes), self.dimension]
        if list(queries.shape) != shape or modes.ndim != 1 or modes.dtype != torch.uint8 or group_size < 1 or k < 1:
            raise ValueError(
                f"Queries {list(queries.shape)}, modes {list(modes.shape)} {modes.dtype}, groups of {group_size} and "
                f"{k} neighbours were given; queries must be {shape}, modes [rows] torch.uint8, the others at least 1."
            )
        return self._search(queries, dense(modes, torch.uint8), group_size, k, full, reduced, alive_mask, threads)

    def _search(
        self,
        queries: Tensor,
        modes: Tensor | None,
        group_size: int,
        k: int,
        full: SearchLimits,
        reduced: SearchLimits,
        alive_mask: NDArray[np.uint16] | None,
        threads: int | None,
    ) -> tuple[Tensor, Tensor]:
        plain = dense(queries)
        distances = torch.empty(len(plain), k, dtype=torch.float32)
        entries = torch.empty(len(plain), k, dtype=torch.int64)
        done = require().ivf_search(
            ctypes.byref(self._parts),
            ctypes.byref(search_settings(k, full)),
            ctypes.byref(search_settings(k, reduced)),
            None if modes is None else modes.data_ptr(),
            None if alive_mask is None else alive_mask.ctypes.data,
            plain.data_ptr(),
            len(plain),
            group_size,
            distances.data_ptr(),
            entries.data_ptr(),
            search_threads(len(plain), threads),
        )
        _check(done)
        return distances, entries

    @property
    def dimension(self) -> int:
        """The number of components of a key."""
        return int(self._parts.coding.dimension)

    @property
    def address(self) -> int:
        """The address of the arrays' descriptor."""
        return ctypes.addressof(self._parts)

    def assign(self, keys: NDArray[np.float32], groups: int) -> NDArray[np.int32]:
        """Find the list of the nearest centroid of each key.

        Args:
            keys: [n, d].
            groups: The most groups of centroids that are opened for a key.

        Returns:
            Lists [n].
        """
        return self._assign(keys, groups, 1).reshape(-1)

    def assign_twice(self, keys: NDArray[np.float32], groups: int) -> NDArray[np.int32]:
        """Find two lists for each key.

        Args:
            keys: [n, d].
            groups: The most groups of centroids that are opened for a key.

        Returns:
            Lists [2, n]: that of `assign`, and one with a nearly orthogonal residual, or -1.
        """
        return self._assign(keys, groups, 2)

    def _assign(self, keys: NDArray[np.float32], groups: int, times: int) -> NDArray[np.int32]:
        plain = np.ascontiguousarray(keys, np.float32)
        settings = _SearchSettings(1, 1, 1, 1.0, 1.0, groups)
        lists = np.empty((times, len(plain)), np.int32)
        done = require().ivf_assign(
            ctypes.byref(self._parts),
            ctypes.byref(settings),
            plain.ctypes.data,
            len(plain),
            lists[0].ctypes.data,
            lists[1].ctypes.data if times > 1 else None,
            threads_for(len(plain), _LEAST_KEYS),
        )
        _check(done)
        return lists

    def pack(self) -> None:
        """Write the blocks of all lists and their means, from the entries and keys."""
        _, lists, keys, _ = self._kept
        assert lists is not None
        assert keys is not None
        done = require().ivf_pack_lists(
            ctypes.byref(self._parts),
            lists.list_offsets.ctypes.data,
            lists.block_means.ctypes.data,
            lists.blocks.ctypes.data,
            threads_for(keys.size, _LEAST_KEYS),
        )
        _check(done)


def _pack_list_info(lists: Lists) -> NDArray[np.int32]:
    """Return ListInfo of native/index/ivf.h for every list."""
    parts = (lists.list_offsets[:-1], lists.means_offsets[:-1], lists.means_offsets[1:])
    return np.stack(parts, axis=1)


def arrange(lists: Lists, keys: StoredKeys, sizes: NDArray[np.int32]) -> None:
    """Order the entries of each list so that the keys of a block are close together.

    Args:
        lists: The lists; their entries are changed.
        keys: The keys of the entries.
        sizes: The number of entries in each list [places].
    """
    counts = np.ascontiguousarray(sizes, np.int32)
    done = require().ivf_arrange(
        ctypes.byref(keys.packed()),
        lists.entries.ctypes.data,
        lists.list_offsets.ctypes.data,
        counts.ctypes.data,
        len(counts),
        threads_for(keys.size, _LEAST_KEYS),
    )
    _check(done)


def _chunk_table(firsts: NDArray[np.int64]) -> tuple[int, NDArray[np.int32]]:
    """Return a shift, and the chunk of every 2^shift-th entry; firsts: [chunks + 1], the first entry of each chunk.

    The shift is so small that few chunks begin between two of these entries, where that is possible.
    """
    starts = np.unique(firsts)
    shift = _MOST_SHIFT
    while shift > _LEAST_SHIFT and np.bincount(starts >> shift).max() > _FEW_CHUNKS:
        shift -= 1
    entries = np.arange((int(firsts[-1]) >> shift) + 1, dtype=np.int64) << shift
    return shift, (np.searchsorted(firsts, entries, side="right") - 1).astype(np.int32)


def code_block_bytes(dimension: int) -> int:
    """Return the bytes of 16 centres of regions: norms in int32 and 8-bit codes.

    Args:
        dimension: Components of a key.
    """
    return LANES * (4 + dimension)


def block_bytes(dimension: int, bits: int) -> int:
    """Return the bytes of 16 points as in native/index/blocks.h: norms and steps in float16, and codes.

    Args:
        dimension: Components of a point.
        bits: Of the code of a component, COARSE_BITS or FINE_BITS.
    """
    return LANES * (4 + 4 * -(-dimension // (32 // bits)))


def pack_centroids(
    coding: Coding,
    regions: NDArray[np.float32],
    groups: NDArray[np.float32],
    group_places: NDArray[np.int64],
    centroids: NDArray[np.float32],
    places: NDArray[np.int64],
) -> Centroids:
    """Pack a tree of centroids.

    Args:
        coding: The codes of keys.
        regions: Centres of regions [r, d].
        groups: Centres of groups [g, d].
        group_places: The place of each group in the regions [g].
        centroids: [n, d].
        places: The place of each centroid in the groups [n].

    Returns:
        The tree in the layout of the library.
    """
    dimension = len(coding.mean)
    packed = Centroids(
        coding,
        np.zeros((-(-len(regions) // LANES), code_block_bytes(dimension)), np.int8),
        np.empty((len(regions), block_bytes(dimension, COARSE_BITS)), np.uint8),
        np.empty((LANES * len(regions), block_bytes(dimension, COARSE_BITS)), np.uint8),
    )
    packed.region_blocks[:, : 4 * LANES] = np.full(LANES, EMPTY_NORM, "<i4").view(np.int8)
    points = [np.ascontiguousarray(each, np.float32) for each in (regions, groups, centroids)]
    where = [np.ascontiguousarray(each, np.int64) for each in (group_places, places)]
    done = require().ivf_pack_tree(
        ctypes.byref(coding.packed()),
        *(points[0].ctypes.data, len(points[0])),
        *(points[1].ctypes.data, where[0].ctypes.data, len(points[1])),
        *(points[2].ctypes.data, where[1].ctypes.data, len(points[2])),
        *(each.ctypes.data for each in (packed.region_blocks, packed.group_blocks, packed.centroid_blocks)),
        threads_for(len(centroids), _LEAST_KEYS),
    )
    _check(done)
    return packed


def _check(done: int) -> None:
    if not done:
        raise MemoryError("Out of memory in the native index.")


def copy_to_huge_pages(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Copy arrays next to each other into huge pages where the system has them, which saves TLB misses.

    Args:
        arrays: The arrays by name.

    Returns:
        The copies by name; the arrays themselves where they would not fill one page.
    """
    ends = list(accumulate(-(-array.nbytes // _CACHE_LINE) * _CACHE_LINE for array in arrays.values()))
    if not ends or ends[-1] < _HUGE_PAGE:
        return dict(arrays)
    pages = mmap.mmap(-1, ends[-1] + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a hint: without huge pages small ones are used
        pages.madvise(mmap.MADV_HUGEPAGE)
    space = np.frombuffer(pages, np.uint8)
    space = space[-space.ctypes.data % _HUGE_PAGE :]
    copies = {}
    for (name, array), begin in zip(arrays.items(), [0, *ends], strict=False):
        copies[name] = space[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
        copies[name][...] = array
    return copies
