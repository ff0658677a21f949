"""Building the native index in two passes over the keys: one assigns them to lists, one writes them there.

Where they lie they are then put in order and coded.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ibidem.errors import MemoryFolderError
from ibidem.native import LANES, Centroids, Ivf, arrange
from ibidem.retrieve.ivf.file import NativeFile, Shape, create, offsets_of_guides
from ibidem.retrieve.ivf.index import NativeIndex
from ibidem.retrieve.ivf.training import ASSIGN_GROUPS, limit_threads, ranks, train_centroids
from ibidem.retrieve.keys import finite
from ibidem.retrieve.recall import draw_probe, recall_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from ibidem.retrieve.ivf.settings import NativeSettings
    from ibidem.retrieve.keys import Floats, Keys

# Keys to train on, where they fit into so many bytes, and at least. The mean of a few is off: with 24 a list a search
# reads a sixth more for the same recall.
TRAIN_PER_LIST, LEAST_PER_LIST = 128, 24
TRAIN_BYTES = 1 << 30
MOST_GAMMA = 2.0
RECALL_SAMPLES = 1024

_ELEMENTS = 1 << 24
# Keys of the sample whose numbers are looked at together.
_CHECKED = 1 << 16
# Where the target is not reached, looking farther must be worth at least this recall.
_NO_GAIN = 0.002


def build_native(
    keys: Keys,
    settings: NativeSettings,
    *,
    seed: int,
    threads: int | None,
    report: Callable[[str, int, int], None],
    scratch: Path | None = None,
) -> NativeIndex:
    """Build the index in a file without a name, in `scratch` or where the system keeps such files."""
    with limit_threads(threads):
        sample = _draw_sample(keys, settings.lists, seed)
        report("train", 0, len(sample))
        centroids = train_centroids(sample, settings.lists, seed)
        report("train", len(sample), len(sample))
        del sample
        rows = max(1, _ELEMENTS // keys.dimension)
        lists = _assign(keys, centroids, rows)
        file = _write(keys, settings.lists, centroids, lists, rows, scratch, report)
        index = NativeIndex(file, settings, threads=threads)
        return _tune(index, keys, seed, report)


def _draw_sample(keys: Keys, lists: int, seed: int) -> Floats:
    """Keys to train on, [n, d], in the order of their entries."""
    room = TRAIN_BYTES // (lists * keys.dimension * _itemsize(keys))
    wanted = min(keys.size, lists * min(TRAIN_PER_LIST, max(LEAST_PER_LIST, room)))
    ids = np.sort(np.random.default_rng(seed).choice(keys.size, wanted, replace=False, shuffle=False))
    sample = keys.gather(ids)
    for start in range(0, wanted, _CHECKED):
        finite(sample[start : start + _CHECKED], None)
    return sample


def _itemsize(keys: Keys) -> int:
    return next(iter(keys.blocks(1))).itemsize


def _assign(keys: Keys, centroids: Centroids, rows: int) -> NDArray[np.int32]:
    """Two lists [2, size] of each key, -1 where there is no second one."""
    ivf = Ivf(centroids)
    lists = np.empty((2, keys.size), np.int32)
    done = 0
    for block in keys.blocks(rows):
        if done + len(block) > keys.size:
            break
        lists[:, done : done + len(block)] = ivf.assign_twice(finite(block, done), ASSIGN_GROUPS)
        done += len(block)
    if done != keys.size:
        raise MemoryFolderError(
            f"The keys should be {keys.size}, but {done} were read. Check the memory with `ibidem verify`."
        )
    return lists


def _write(
    keys: Keys,
    list_count: int,
    centroids: Centroids,
    lists: NDArray[np.int32],
    rows: int,
    scratch: Path | None,
    report: Callable[[str, int, int], None],
) -> NativeFile:
    own_sizes = np.bincount(lists[0], minlength=centroids.places)
    sizes = own_sizes + np.bincount(lists[1][lists[1] >= 0], minlength=centroids.places)
    offsets = np.zeros(centroids.places + 1, np.int32)
    offsets[1:] = np.cumsum(-(-sizes // LANES))
    guide_offsets = offsets_of_guides(offsets)
    shape = Shape(
        size=keys.size,
        dimension=keys.dimension,
        key_bytes=_itemsize(keys),
        lists=list_count,
        regions=len(centroids.group_blocks),
        blocks=int(offsets[-1]),
        guides=int(guide_offsets[-1]),
    )
    try:
        with tempfile.TemporaryFile(dir=scratch) as unnamed:
            file = create(unnamed, shape, centroids.coding.scale)
    except OSError as error:
        raise MemoryFolderError(
            f"There is no place to build the index in ({error}): {shape.bytes >> 20} MiB are needed, "
            "and TMPDIR names another folder."
        ) from error
    for name in ("region_blocks", "group_blocks", "centroid_blocks"):
        getattr(file.centroids, name)[:] = getattr(centroids, name)
    file.centroids.coding.mean[:] = centroids.coding.mean
    file.lists.list_offsets[:] = offsets
    file.lists.guide_offsets[:] = guide_offsets
    file.lists.slots[:] = -1
    # The keys of a list stand side by side, each with the first of its lists.
    next_slots = np.cumsum(own_sizes) - own_sizes
    next_places = LANES * offsets[:-1].astype(np.int64)
    done = 0
    for block in keys.blocks(rows):
        first, second = lists[:, done : done + len(block)]
        slots = _take(next_slots, first)
        file.lists.entries[slots] = np.arange(done, done + len(block))
        file.lists.keys[slots] = block
        file.lists.slots[_take(next_places, first)] = slots
        again = second >= 0
        file.lists.slots[_take(next_places, second[again])] = slots[again]
        done += len(block)
        report("add", done, keys.size)
    arrange(file.lists, sizes.astype(np.int32))
    Ivf(file.centroids, file.lists).pack()
    return file


def _take(cursors: NDArray[np.int64], lists: NDArray[np.int32]) -> NDArray[np.int64]:
    """The next number of each of these lists [n], one after the other; cursors: [places], the next one of each list."""
    counts = np.bincount(lists, minlength=len(cursors))
    taken = cursors[lists] + ranks(lists, counts)
    cursors += counts
    return taken


def _tune(index: NativeIndex, keys: Keys, seed: int, report: Callable[[str, int, int], None]) -> NativeIndex:
    """Measure recall against exact search, and look into more lists until it is as wanted."""
    report("measure", 0, 1)
    probe = draw_probe(keys, k=16, samples=RECALL_SAMPLES, seed=seed)
    target = index.settings.target_recall
    tried = [replace(index, recall=recall_at(index, keys, probe))]
    while target is not None and _recall(tried[-1]) < target and tried[-1].settings.gamma < MOST_GAMMA:
        wider = replace(index, settings=tried[-1].settings.wider())
        tried.append(replace(wider, recall=recall_at(wider, keys, probe)))
    report("measure", 1, 1)
    best = max(map(_recall, tried))
    if target is None or best >= target:
        return tried[-1]
    chosen = next(each for each in tried if _recall(each) >= best - _NO_GAIN)
    note = f"recall@16 is {_recall(chosen):.3f}, below {target}: the setting 'exact' finds every neighbour."
    return replace(chosen, settings=replace(chosen.settings, notes=(*chosen.settings.notes, note)))


def _recall(index: NativeIndex) -> float:
    assert index.recall is not None
    return index.recall
