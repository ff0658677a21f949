"""An inverted file over codes of two bits: its arrays as the library takes them, search, assignment and packing."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ibidem.native.library import dense, require, threads_for
from ibidem.native.pages import in_large_pages

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

# Points of a block, bits of their dimensions, and the norm of a region and of a point where there is none; as in
# native/blocks.h and native/codes.h.
LANES = 16
COARSE_BITS, FINE_BITS = 4, 2
NOTHING, NOTHING_HALF = 1 << 30, 0x7C00
MOST_DIMENSIONS = 1024

# Queries that a thread should have at least, and keys to be assigned or packed.
_LEAST_QUERIES = 2
_LEAST_KEYS = 1024


class _Coding(ctypes.Structure):
    _fields_ = (("dimension", ctypes.c_int64), ("mean", ctypes.c_void_p), ("scale", ctypes.c_float))


class _Ivf(ctypes.Structure):
    """Ivf of native/ivf.h."""

    _fields_ = (
        ("coding", _Coding),
        ("regions", ctypes.c_int64),
        ("region_blocks", ctypes.c_void_p),
        ("group_blocks", ctypes.c_void_p),
        ("centroid_blocks", ctypes.c_void_p),
        ("lists", ctypes.c_void_p),
        ("guides", ctypes.c_void_p),
        ("blocks", ctypes.c_void_p),
        ("slots", ctypes.c_void_p),
        ("entries", ctypes.c_void_p),
        ("keys", ctypes.c_void_p),
        ("key_bytes", ctypes.c_int64),
    )


class _SearchSettings(ctypes.Structure):
    _fields_ = (
        ("k", ctypes.c_int64),
        ("probes", ctypes.c_int64),
        ("pool", ctypes.c_int64),
        ("patience", ctypes.c_float),
        ("block_patience", ctypes.c_float),
        ("groups", ctypes.c_int64),
    )


@dataclass(frozen=True)
class Probing:
    """How far a search looks: at most `probes` lists, none farther than `patience` times the worst of the pool, and in
    them no block farther than `block_patience` times it.

    pool: candidates by codes whose distance is then measured exactly; groups: of centroids, looked into at most.
    """

    probes: int
    pool: int
    patience: float
    block_patience: float
    groups: int

    def pool_for(self, k: int) -> int:
        """Enough candidates for k neighbours, even if every key is found in both of its places."""
        return max(self.pool, 2 * k)


def search_settings(k: int, probing: Probing) -> ctypes.Structure:
    """How to search for k neighbours, as the library takes it."""
    pool = probing.pool_for(k)
    return _SearchSettings(k, probing.probes, pool, probing.patience, probing.block_patience, probing.groups)


def search_threads(queries: int, most: int | None) -> int:
    """How many threads so many queries are worth; most: at most these, given None all that torch has."""
    return min(most or sys.maxsize, threads_for(queries, _LEAST_QUERIES))


@dataclass(frozen=True)
class Coding:
    """How numbers become codes: round((x - mean) * scale), from -127 to 127; mean: [d] float32."""

    mean: NDArray[np.float32]
    scale: float

    def packed(self) -> Any:
        return _Coding(len(self.mean), self.mean.ctypes.data, self.scale)


@dataclass(frozen=True)
class Centroids:
    """Centroids in groups and groups in regions of at most 16: the place of a centroid is the number of its list.

    region_blocks: [regions / 16, code_block_bytes], of the centres of regions; group_blocks: [regions, block_bytes], of
    those of groups; centroid_blocks: [16 x regions, block_bytes].
    """

    coding: Coding
    region_blocks: NDArray[np.int8]
    group_blocks: NDArray[np.uint8]
    centroid_blocks: NDArray[np.uint8]

    @property
    def places(self) -> int:
        """Of centroids, and so of lists; some are empty."""
        return LANES * len(self.centroid_blocks)


@dataclass(frozen=True)
class Lists:
    """Keys in lists, two for each, in blocks of such as lie close together.

    list_offsets, guide_offsets: [places + 1] int32, in blocks and in guides; guides: [guides, block_bytes], each of the
    means of 16 blocks; blocks: [blocks, block_bytes]; both as in native/blocks.h; slots: [16 x blocks] int32, where the
    key of each place stands, -1 where there is none; entries: [n] int32, of the keys [n, d] float16 or float32.
    """

    list_offsets: NDArray[np.int32]
    guide_offsets: NDArray[np.int32]
    guides: NDArray[np.uint8]
    blocks: NDArray[np.uint8]
    slots: NDArray[np.int32]
    entries: NDArray[np.int32]
    keys: NDArray[Any]


class Ivf:
    """Centroids, with or without the lists of keys.

    at_hand: for many searches, what these read most of is copied into large pages; that is all but the keys and their
    entries, a quarter of an index.
    """

    def __init__(self, centroids: Centroids, lists: Lists | None = None, *, at_hand: bool = False) -> None:
        arrays = {name: getattr(centroids, name) for name in ("region_blocks", "group_blocks", "centroid_blocks")}
        rest = {}
        if lists is not None:
            arrays["lists"] = _facts(lists)
            arrays |= {name: getattr(lists, name) for name in ("guides", "blocks", "slots")}
            rest = {"entries": lists.entries, "keys": lists.keys}
        arrays = (in_large_pages(arrays) if at_hand else arrays) | rest
        # What the library points to must live as long as this.
        self._kept = (centroids, lists, arrays)
        self._parts = _Ivf(centroids.coding.packed(), len(centroids.group_blocks))
        for name, array in arrays.items():
            setattr(self._parts, name, array.ctypes.data)
        if lists is not None:
            self._parts.key_bytes = lists.keys.itemsize

    def search(
        self,
        queries: Tensor,
        k: int,
        probing: Probing,
        live: NDArray[np.uint16] | None = None,
        threads: int | None = None,
        group_size: int = 1,
    ) -> tuple[Tensor, Tensor]:
        """Distances [q, k] float32 and entries [q, k] int64 of about the nearest keys; inf and -1 where there are none.

        queries: [q, d]; one that is not finite or too long has no neighbours. live: a bit for each place, 16 a block,
        0 for an entry that is to be passed over; threads: at most, given None all that torch has; together: so many
        queries are of one sentence, and those that are nearly the same look among what one of them has found.
        """
        plain = dense(queries)
        settings = search_settings(k, probing)
        distances = torch.empty(len(plain), k)
        entries = torch.empty(len(plain), k, dtype=torch.int64)
        done = require().ivf_search(
            ctypes.byref(self._parts),
            ctypes.byref(settings),
            None if live is None else live.ctypes.data,
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
    def address(self) -> int:
        """Where the library finds it."""
        return ctypes.addressof(self._parts)

    def assign(self, keys: NDArray[np.float32], groups: int) -> NDArray[np.int32]:
        """The list [n] of the nearest centroid found for each key [n, d]; groups: those looked into, at least."""
        return self._assign(keys, groups, 1).reshape(-1)

    def assign_twice(self, keys: NDArray[np.float32], groups: int) -> NDArray[np.int32]:
        """Two lists [2, n] for each key: as `assign`, and one that makes up for the first, -1 where there is none."""
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
        """Write the guides and blocks of all lists, whose keys are in their slots and these in their places."""
        lists = self._kept[1]
        assert lists is not None
        done = require().ivf_pack_lists(
            ctypes.byref(self._parts),
            lists.list_offsets.ctypes.data,
            lists.guides.ctypes.data,
            lists.blocks.ctypes.data,
            threads_for(len(lists.keys), _LEAST_KEYS),
        )
        _check(done)


def _facts(lists: Lists) -> NDArray[np.int32]:
    """ListFacts of native/ivf.h for every list: what lies in one line of a cache is one wait, and not three."""
    parts = (lists.list_offsets[:-1], lists.guide_offsets[:-1], lists.guide_offsets[1:])
    return np.stack(parts, axis=1)


def arrange(lists: Lists, sizes: NDArray[np.int32]) -> None:
    """Put the slots of each list, sizes [places] of them from its beginning on, in an order that makes close blocks."""
    done = require().ivf_arrange(
        lists.keys.ctypes.data,
        lists.keys.itemsize,
        lists.slots.ctypes.data,
        lists.keys.shape[1],
        lists.list_offsets.ctypes.data,
        np.ascontiguousarray(sizes, np.int32).ctypes.data,
        len(sizes),
        threads_for(len(lists.keys), _LEAST_KEYS),
    )
    _check(done)


def code_block_bytes(dimension: int) -> int:
    """Of the centres of 16 regions: their norms in int32, and codes of eight bits."""
    return LANES * (4 + dimension)


def block_bytes(dimension: int, bits: int) -> int:
    """Of 16 points as in native/blocks.h: norms and steps in float16, and numbers of so many bits in whole spans."""
    return LANES * (4 + 4 * -(-dimension // (32 // bits)))


def pack_centroids(
    coding: Coding,
    regions: NDArray[np.float32],
    groups: NDArray[np.float32],
    group_places: NDArray[np.int64],
    centroids: NDArray[np.float32],
    places: NDArray[np.int64],
) -> Centroids:
    """Centroids [n, d] in their places [n] in groups [g, d], and these in their places [g] in regions [r, d]."""
    dimension = len(coding.mean)
    packed = Centroids(
        coding,
        np.zeros((-(-len(regions) // LANES), code_block_bytes(dimension)), np.int8),
        np.empty((len(regions), block_bytes(dimension, COARSE_BITS)), np.uint8),
        np.empty((LANES * len(regions), block_bytes(dimension, COARSE_BITS)), np.uint8),
    )
    packed.region_blocks[:, : 4 * LANES] = np.full(LANES, NOTHING, "<i4").view(np.int8)
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
        raise MemoryError("there is no room to search in")
