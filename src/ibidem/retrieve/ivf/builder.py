"""Build the native index: train centroids, assign each key to two lists, order each list and encode its keys.

Plain k-means compares every key with every centroid. Here the sample is first divided into about √lists cells, and
k-means inside a cell makes its share of the centroids. The borders between cells are then smoothed by rounds in which a
key is compared, by codes, only with the centroids of the nearest groups.
"""

from __future__ import annotations

import math
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from ibidem.errors import MemoryFolderError
from ibidem.native import LANES, Centroids, Coding, Ivf, arrange, pack_centroids
from ibidem.retrieve.ivf.index import NativeFile, NativeIndex, Shape, create, offsets_of_means, stored_keys
from ibidem.retrieve.keys import check_complete, draw_sample, finite
from ibidem.retrieve.recall import draw_probe, recall_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.native import StoredKeys
    from ibidem.retrieve.index_settings import NativeSettings
    from ibidem.retrieve.keys import Floats, Keys

# Keys to train on for each list: the most, and the fewest where those do not fit into TRAIN_BYTES. With fewer keys the
# means are less accurate, and a search reads more for the same recall.
TRAIN_PER_LIST, LEAST_PER_LIST = 128, 24
TRAIN_BYTES = 1 << 30
MOST_PRUNE_RATIO = 2.0
RECALL_SAMPLES = 1024
# Groups of centroids with which a key is compared when it is assigned to a list.
ASSIGN_GROUPS = 20
# Centroids in a group, and groups in a region, on average. Both have room for sixteen; if nearly all were full, some
# centroids would end up in a distant group.
PER_GROUP = 13

_ELEMENTS = 1 << 24
# Keys of the sample that are converted to float32 at once.
_CHECKED_ROWS = 1 << 16
# Where the target recall is not reached, a wider search must gain at least this much.
_NO_GAIN = 0.002
# One component in this many is clipped by its code.
_CLIPPED = 2000
_CODING_KEYS = 1 << 16
_KEYS_PER_CELL = 256
_LARGE_CELL = 4096
_CELL_ROUNDS = 8
_INNER_ROUNDS = 6
_SMOOTHING_ROUNDS = 4
_GROUP_ROUNDS = 8
# Groups in which a place is tried for a centroid.
_NEAR_GROUPS = 8
# Distances in memory at once.
_DISTANCES = 1 << 23


def build_native(
    keys: Keys,
    settings: NativeSettings,
    *,
    seed: int,
    threads: int | None,
    report: Callable[[str, int, int], None],
    scratch: Path | None = None,
) -> NativeIndex:
    """Build the native index in an unnamed file.

    Args:
        keys: the keys, at least one.
        settings: how to build and search the index.
        seed: of training and of the measurement.
        threads: the most threads; None for as many as torch uses.
        report: called with the stage, the keys done and the keys in total.
        scratch: the folder of the file; None for the temporary folder of the system.

    Returns:
        The index, with its recall@16.

    Raises:
        MemoryFolderError: A key is missing or not finite, or there is no room for the file.
    """
    with limit_torch_threads(threads):
        sample = _draw_sample(keys, settings.lists, seed)
        report("train", 0, len(sample))
        centroids = train_centroids(sample, settings.lists, seed)
        report("train", len(sample), len(sample))
        del sample
        rows = max(1, _ELEMENTS // keys.dimension)
        lists = _assign(keys, centroids, rows)
        stored = stored_keys(keys)
        file = _write(stored, settings.lists, centroids, lists, rows, scratch, report)
        index = NativeIndex(file, stored, settings, threads=threads)
        return _tune(index, keys, seed, report)


def train_centroids(sample: Floats, lists: int, seed: int) -> Centroids:
    """Train the centroids of the lists on a sample of the keys.

    Args:
        sample: [n, d], n >= lists.
        lists: the number of lists.
        seed: of k-means.

    Returns:
        The centroids, in the layout of the native library.
    """
    generator = torch.Generator().manual_seed(seed)
    points = torch.from_numpy(sample)
    tree = CentroidTree(fit_coding(sample), _cluster_in_cells(points, lists, generator), generator)
    for _ in range(_SMOOTHING_ROUNDS):
        tree.smooth(points)
    return tree.packed()


@contextmanager
def limit_torch_threads(threads: int | None) -> Iterator[None]:
    """Limit the threads of torch and of the native library inside the block.

    Args:
        threads: the most threads; None for no change.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(before if threads is None else threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class CentroidTree:
    """Centroids in groups and groups in regions, each the mean of its members, while they are trained.

    Args:
        coding: how components become codes.
        centres: [lists, d] float32.
        generator: draws the initial groups and regions.
    """

    def __init__(self, coding: Coding, centres: Tensor, generator: torch.Generator) -> None:
        self._coding = coding
        self._centres = centres
        self._groups = cluster(centres, -(-len(centres) // PER_GROUP), _GROUP_ROUNDS, generator)
        self._regions = cluster(self._groups, -(-len(self._groups) // PER_GROUP), _GROUP_ROUNDS, generator)
        places = torch.from_numpy(assign_places(centres, self._groups))
        self._group_of = places // LANES
        self._group_places = torch.from_numpy(assign_places(self._groups, self._regions))
        self._places = LANES * self._group_places[self._group_of] + places % LANES
        self._number_of_place = torch.zeros(LANES**2 * len(self._regions), dtype=torch.int64)
        self._number_of_place[self._places] = torch.arange(len(centres))

    def packed(self) -> Centroids:
        """Return the centroids in the layout of the native library."""
        points = (self._regions, self._groups, self._group_places, self._centres, self._places)
        return pack_centroids(self._coding, *(each.numpy() for each in points))

    def smooth(self, points: Tensor) -> None:
        """Move every centroid to the mean of the points that are assigned to its list.

        Args:
            points: [n, d].
        """
        ivf = Ivf(self.packed())
        near = [ivf.assign(part.float().numpy(), ASSIGN_GROUPS) for part in _parts(points, points.shape[1])]
        numbers = self._number_of_place[torch.from_numpy(np.concatenate(near)).long()]
        self._centres = _means(points, numbers, self._centres)
        self._groups = _means(self._centres, self._group_of, self._groups)
        self._regions = _means(self._groups, self._group_places // LANES, self._regions)


def fit_coding(sample: Floats) -> Coding:
    """Fit codes that span nearly all components of a sample.

    Args:
        sample: [n, d], n at least 1.

    Returns:
        The mean of the sample and a scale, for codes from -127 to 127.
    """
    some = sample[:: max(1, len(sample) // _CODING_KEYS)].astype(np.float32)
    mean = some.mean(axis=0, dtype=np.float64).astype(np.float32)
    deviations = np.abs(some - mean).reshape(-1)
    last = max(0, deviations.size - 1 - deviations.size // _CLIPPED)
    span = float(np.partition(deviations, last)[last]) or float(deviations.max()) or 1.0
    return Coding(mean, 127.0 / span)


def cluster(points: Tensor, count: int, rounds: int, generator: torch.Generator) -> Tensor:
    """Compute k-means centres.

    Args:
        points: [n, d], n >= count.
        count: the number of centres.
        rounds: of k-means.
        generator: draws the initial centres, and a new point for a centre that has none.

    Returns:
        [count, d].
    """
    centres = points[torch.randperm(len(points), generator=generator)[:count]].clone()
    for _ in range(rounds):
        assigned = _nearest(points, centres)
        centres = _means(points, assigned, points[torch.randint(len(points), (count,), generator=generator)])
    return centres


def apportion(counts: list[int], total: int) -> list[int]:
    """Divide a total in proportion to counts, with no share above its count.

    Args:
        counts: the most that each share can be.
        total: to divide; at most the sum of the counts.

    Returns:
        A share for each count; their sum is the total.
    """
    exact = np.array(counts) * (total / sum(counts))
    shares = np.floor(exact).astype(np.int64)
    # The remainder goes to the shares that lost most by rounding; a share below its count has room for one more.
    order = np.argsort(shares - exact, kind="stable")
    open_ = order[shares[order] < np.array(counts)[order]]
    shares[open_[: total - int(shares.sum())]] += 1
    return [int(share) for share in shares]


def assign_places(points: Tensor, groups: Tensor) -> NDArray[np.int64]:
    """Assign points to places in near groups that have room for sixteen each.

    A group takes the points nearest to it first. A point that does not fit goes to its next nearest group, and the last
    ones to any group with room.

    Args:
        points: [n, d].
        groups: [count, d], 16 x count >= n.

    Returns:
        [n], the place of each point: 16 times the number of its group, and its rank there.
    """
    near = min(_NEAR_GROUPS, len(groups))
    half_squares = groups.square().sum(1) / 2
    found = [
        torch.addmm(half_squares, part, groups.T, alpha=-1).topk(near, largest=False)
        for part in _parts(points, len(groups))
    ]
    nearest = torch.cat([each.indices for each in found]).numpy()
    scores = torch.cat([each.values for each in found])
    # Points of one group are compared by distance, so the square of the point is needed too.
    distances = (scores + points.square().sum(1, keepdim=True) / 2).numpy()
    places, taken = np.full(len(points), -1, np.int64), np.zeros(len(groups), np.int64)
    for choice in range(near):
        open_ = np.flatnonzero(places < 0)
        open_ = open_[np.argsort(distances[open_, choice], kind="stable")]
        group = nearest[open_, choice]
        rank = taken[group] + ranks(group, np.bincount(group, minlength=len(groups)))
        fits = rank < LANES
        places[open_[fits]] = LANES * group[fits] + rank[fits]
        taken = np.minimum(LANES, taken + np.bincount(group, minlength=len(groups)))
    free = np.setdiff1d(np.arange(LANES * len(groups)), places)
    open_ = np.flatnonzero(places < 0)
    places[open_] = free[: len(open_)]
    return places


def ranks(bins: NDArray[np.integer], sizes: NDArray[np.integer]) -> NDArray[np.int64]:
    """Count, for each item, the earlier items in the same bin.

    Args:
        bins: [n], the bin of each item.
        sizes: [bins], the number of items in each bin.

    Returns:
        [n] int64.
    """
    order = np.argsort(bins, kind="stable")
    begins = np.cumsum(sizes) - sizes
    found = np.empty(len(bins), np.int64)
    found[order] = np.arange(len(bins)) - begins[bins[order]]
    return found


def _draw_sample(keys: Keys, lists: int, seed: int) -> Floats:
    """Draw the keys to train on, [n, d], in their own type."""
    room = TRAIN_BYTES // (lists * keys.dimension * _itemsize(keys))
    wanted = min(keys.size, lists * min(TRAIN_PER_LIST, max(LEAST_PER_LIST, room)))
    sample = draw_sample(keys, wanted, seed)
    for start in range(0, wanted, _CHECKED_ROWS):
        finite(sample[start : start + _CHECKED_ROWS], None)
    return sample


def _itemsize(keys: Keys) -> int:
    return next(iter(keys.blocks(1))).itemsize


def _cluster_in_cells(points: Tensor, lists: int, generator: torch.Generator) -> Tensor:
    """Compute centres [lists, d]; each cell has its share of them by its number of points."""
    cells = max(1, round(math.sqrt(lists)))
    some = points[torch.randperm(len(points), generator=generator)[: _KEYS_PER_CELL * cells]].float()
    cell_of = _nearest(points, cluster(some, cells, _CELL_ROUNDS, generator))
    counts = torch.bincount(cell_of, minlength=cells)
    order = torch.argsort(cell_of, stable=True)
    members = torch.split(order, counts.tolist())
    # The products of a small cell take less time than a second thread needs to start.
    with limit_torch_threads(1 if len(points) < _LARGE_CELL * cells else None):
        parts = [
            cluster(points[own].float(), share, _INNER_ROUNDS, generator)
            for own, share in zip(members, apportion(counts.tolist(), lists), strict=True)
            if share
        ]
    return torch.cat(parts)


def _nearest(points: Tensor, centres: Tensor) -> Tensor:
    """Return the nearest centre [n] of each point [n, d]."""
    half_squares = centres.square().sum(1) / 2
    parts = _parts(points, len(centres))
    return torch.cat([torch.addmm(half_squares, part.float(), centres.T, alpha=-1).argmin(1) for part in parts])


def _means(points: Tensor, assigned: Tensor, otherwise: Tensor) -> Tensor:
    """Return the mean of the points assigned to each centre [count, d], and `otherwise` where there are none."""
    sums, width = torch.zeros_like(otherwise), points.shape[1]
    for part, own in zip(_parts(points, width), _parts(assigned, width), strict=True):
        sums.index_add_(0, own, part.float())
    counts = torch.bincount(assigned, minlength=len(otherwise))[:, None]
    return torch.where(counts > 0, sums / counts.clamp_min(1), otherwise)


def _parts(rows: Tensor, width: int) -> tuple[Tensor, ...]:
    """Split rows into parts, for a computation that takes `width` numbers for each row."""
    return torch.split(rows, max(1, _DISTANCES // width))


def _assign(keys: Keys, centroids: Centroids, rows: int) -> NDArray[np.int32]:
    """Assign each key to two lists [2, size], -1 where there is no second one."""
    ivf = Ivf(centroids)
    lists = np.empty((2, keys.size), np.int32)
    done = 0
    for block in keys.blocks(rows):
        if done + len(block) > keys.size:
            break
        lists[:, done : done + len(block)] = ivf.assign_twice(finite(block, done), ASSIGN_GROUPS)
        done += len(block)
    check_complete(keys, done)
    return lists


def _write(
    keys: StoredKeys,
    list_count: int,
    centroids: Centroids,
    lists: NDArray[np.int32],
    rows: int,
    scratch: Path | None,
    report: Callable[[str, int, int], None],
) -> NativeFile:
    """Write centroids and lists to an unnamed file, and order and encode the keys of each list."""
    sizes = np.zeros(centroids.places, np.int64)
    for begin in range(0, keys.size, rows):
        some = lists[:, begin : begin + rows]
        sizes += np.bincount(some[some >= 0], minlength=centroids.places)
    offsets = np.zeros(centroids.places + 1, np.int32)
    offsets[1:] = np.cumsum(-(-sizes // LANES))
    means_offsets = offsets_of_means(offsets)
    shape = Shape(
        size=keys.size,
        dimension=keys.dimension,
        lists=list_count,
        regions=len(centroids.group_blocks),
        blocks=int(offsets[-1]),
        block_means=int(means_offsets[-1]),
    )
    try:
        with tempfile.TemporaryFile(dir=scratch) as unnamed:
            file = create(unnamed, shape, centroids.coding.scale)
    except OSError as error:
        raise MemoryFolderError(
            f"The file of the index could not be created ({error}): it needs {shape.bytes >> 20} MiB. "
            "Make room, or set TMPDIR to another folder."
        ) from error
    for name in ("region_blocks", "group_blocks", "centroid_blocks"):
        getattr(file.centroids, name)[:] = getattr(centroids, name)
    file.centroids.coding.mean[:] = centroids.coding.mean
    file.lists.list_offsets[:] = offsets
    file.lists.means_offsets[:] = means_offsets
    file.lists.entries[:] = -1
    next_places = LANES * offsets[:-1].astype(np.int64)
    for begin in range(0, keys.size, rows):
        first, second = lists[:, begin : begin + rows]
        entries = np.arange(begin, begin + len(first))
        file.lists.entries[_take(next_places, first)] = entries
        again = second >= 0
        file.lists.entries[_take(next_places, second[again])] = entries[again]
    report("add", 0, keys.size)
    arrange(file.lists, keys, sizes.astype(np.int32))
    Ivf(file.centroids, file.lists, keys).pack()
    report("add", keys.size, keys.size)
    return file


def _take(cursors: NDArray[np.int64], lists: NDArray[np.int32]) -> NDArray[np.int64]:
    """Take the next number of each of these lists [n], in order, and advance the cursors [places]."""
    counts = np.bincount(lists, minlength=len(cursors))
    taken = cursors[lists] + ranks(lists, counts)
    cursors += counts
    return taken


def _tune(index: NativeIndex, keys: Keys, seed: int, report: Callable[[str, int, int], None]) -> NativeIndex:
    """Measure recall against exact search, and search wider until the target is reached."""
    report("measure", 0, 1)
    probe = draw_probe(keys, k=16, samples=RECALL_SAMPLES, seed=seed)
    target = index.settings.target_recall
    recall = recall_at(index, keys, probe)
    tried = [(recall, index)]
    while target is not None and recall < target and index.settings.prune_ratio < MOST_PRUNE_RATIO:
        index = index.searching(index.settings.wider())
        recall = recall_at(index, keys, probe)
        tried.append((recall, index))
    report("measure", 1, 1)
    best = max(recall for recall, _ in tried)
    if target is None or best >= target:
        return index.searching(index.settings, recall)
    recall, index = next(each for each in tried if each[0] >= best - _NO_GAIN)
    note = f"recall@16 is {recall:.3f}, below {target}: the setting 'exact' finds every neighbour."
    settings = replace(index.settings, notes=(*index.settings.notes, note))
    return index.searching(settings, recall)
