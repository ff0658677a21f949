"""Target-side clustering: the keys of each family, family by family (the paper's section 3.1, "cluster family")."""

from __future__ import annotations

import contextlib
import zlib
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.errors import MismatchError
from ibidem.learn.cluster.birch import birch, derive_threshold
from ibidem.learn.cluster.dbscan import CELL_BYTES, dbscan, dbscan_families
from ibidem.learn.cluster.families import Families, group_by_value
from ibidem.learn.cluster.gathering import gather_families, gather_points
from ibidem.learn.cluster.journal import Journal
from ibidem.learn.cluster.labels import EXCLUDED, UNSAMPLED
from ibidem.learn.cluster.report import describe
from ibidem.learn.cluster.scale import derive_eps
from ibidem.learn.cluster.settings import ClusterSettings
from ibidem.progress import Progress, silent
from ibidem.retrieve import check_device

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import torch
    from numpy.typing import NDArray

    from ibidem.retrieve import Keys

# Families up to this size are clustered many at once.
SMALL = 512
# Bytes of distances, and of keys, of small families at once. On the CPU what fits its cache: 4,300 families of a memory
# took 2.1 s so, 4.3 s one by one, 6.0 s in batches of 128 MiB, and more with a pool of threads.
_CPU_BATCH_BYTES = 4 << 20
_CUDA_BATCH_BYTES = 256 << 20
_PROBED_KEYS = 64


@dataclass(frozen=True)
class Clustering:
    """The cluster of every entry.

    labels: [entries] int32, clusters numbered from 0, family by family in the order of values, or NOISE, UNSAMPLED,
    EXCLUDED; eps: the distance of DBSCAN, or from which BIRCH's threshold came, None where it was not needed;
    report: what was found, for the memory's card.
    """

    labels: NDArray[np.int32]
    eps: float | None
    report: dict[str, Any]


def cluster_keys(
    keys: Keys,
    values: NDArray[np.int32],
    settings: ClusterSettings | None = None,
    *,
    excluded: Sequence[int] = (),
    device: str | torch.device = "cpu",
    workspace: Path | None = None,
    progress: Progress = silent,
) -> Clustering:
    """Cluster the keys of each family; values: [entries], the token id of each key.

    excluded: token ids that are not clustered. workspace: a folder for a journal, with which a killed run goes on and
    gives the same labels; one begun with other settings or another memory is discarded. The labels depend neither on
    the order of work nor, given eps, on the device; at most a few families' keys are held at once.
    """
    started = perf_counter()
    settings = settings or ClusterSettings()
    place = check_device(device)
    if len(values) != keys.size:
        raise MismatchError(f"There are {keys.size} keys, but {len(values)} values: give those of one memory.")
    families = group_by_value(values, excluded)
    method = settings.choose_method(keys.size)
    labels = np.full(keys.size, EXCLUDED, np.int32)
    notes: dict[str, Any] = {"method": method, "eps": None}
    with contextlib.ExitStack() as stack:
        journal = None
        if workspace is not None and method != "none":
            identity = _identify(keys, values, settings, excluded)
            journal = stack.enter_context(Journal(workspace, identity))
        if method != "none":
            notes |= _find_scale(keys, families, settings, method, place, journal, progress)
        counts = _cluster_families(keys, families, settings, notes, place, journal, progress, labels)
    _number_globally(families, counts, labels)
    report = notes | describe(labels, families, counts)
    return Clustering(labels, notes["eps"], report | {"device": str(place), "seconds": perf_counter() - started})


def _find_scale(
    keys: Keys,
    families: Families,
    settings: ClusterSettings,
    method: str,
    device: torch.device,
    journal: Journal | None,
    progress: Progress,
) -> dict[str, Any]:
    """The distances to cluster with: given, derived, or as an interrupted run had derived them."""
    if journal is not None and journal.notes is not None:
        return journal.notes
    notes: dict[str, Any] = {"eps": settings.eps}
    if settings.eps is None and (method == "dbscan" or settings.threshold is None):
        notes["eps"], notes["scale"] = derive_eps(keys, families, settings, device=device, progress=progress)
    if method == "birch":
        derived = None if notes["eps"] is None else derive_threshold(notes["eps"], settings.min_samples)
        notes["threshold"] = derived if settings.threshold is None else settings.threshold
    if journal is not None:
        journal.begin(notes)
    return notes


def _cluster_families(
    keys: Keys,
    families: Families,
    settings: ClusterSettings,
    notes: dict[str, Any],
    device: torch.device,
    journal: Journal | None,
    progress: Progress,
    labels: NDArray[np.int32],
) -> NDArray[np.int64]:
    """Fill in the labels, each family's numbered from 0; gives the number of clusters of each family."""
    counts = np.ones(len(families), np.int64)
    whole = (families.sizes < settings.smallest) | (notes["method"] == "none")
    waiting = dict(zip(families.values[~whole].tolist(), np.flatnonzero(~whole).tolist(), strict=True))
    for family in np.flatnonzero(whole).tolist():
        labels[families.entries(family)] = 0

    def write(family: int, found: NDArray[np.int32]) -> None:
        labels[families.entries(family)] = UNSAMPLED
        labels[families.sample(family, settings.family_bound, settings.seed)] = found
        counts[family] = found.max(initial=-1) + 1

    sizes = np.minimum(families.sizes, settings.family_bound)
    for value, found in journal.read() if journal is not None else ():
        if value in waiting:
            write(waiting.pop(value), found)
    left = np.array(list(waiting.values()), np.int64)
    total, done, entries = max(1.0, float(np.square(sizes[left], dtype=float).sum())), 0.0, 0
    for batch in plan_batches(sizes, left, keys.dimension, notes["method"], device):
        members = [families.sample(family, settings.family_bound, settings.seed) for family in batch]
        for family, found in zip(batch, _cluster(keys, members, settings, notes, device), strict=True):
            write(family, found)
            if journal is not None:
                journal.append(int(families.values[family]), found)
            done += float(sizes[family]) ** 2
            entries += int(sizes[family])
        if journal is not None:
            journal.flush()
        progress("Clustering", done / total, entries, "entries")
    return counts


def _cluster(
    keys: Keys,
    members: Sequence[NDArray[np.int64]],
    settings: ClusterSettings,
    notes: dict[str, Any],
    device: torch.device,
) -> Iterator[NDArray[np.int32]]:
    """The labels of one large or several small families, given the entries of each."""
    if notes["method"] == "birch":
        for entries in members:
            yield birch(keys.gather(entries), notes["threshold"], settings.min_samples).astype(np.int32)
    elif len(members) == 1:
        points = gather_points(keys, members[0], device)
        yield dbscan(points, notes["eps"], settings.min_samples).cpu().numpy().astype(np.int32)
    else:
        found = dbscan_families(gather_families(keys, members, device), notes["eps"], settings.min_samples)
        for entries, row in zip(members, found.cpu().numpy().astype(np.int32), strict=True):
            yield row[: len(entries)]


def plan_batches(
    sizes: NDArray[np.int64], families: NDArray[np.int64], dimension: int, method: str, device: torch.device
) -> Iterator[list[int]]:
    """Order families by size, and put small ones together, as many as their keys and distances leave room for."""
    room = _CUDA_BATCH_BYTES if device.type == "cuda" else _CPU_BATCH_BYTES
    batch: list[int] = []
    for family in families[np.argsort(sizes[families], kind="stable")].tolist():
        size = int(sizes[family])
        # Rising sizes: this one is as wide as the batch would be.
        each = size * max(4 * dimension, CELL_BYTES * size)
        if batch and (size > SMALL or method == "birch" or (len(batch) + 1) * each > room):
            yield batch
            batch = []
        batch.append(family)
    if batch:
        yield batch


def _number_globally(families: Families, counts: NDArray[np.int64], labels: NDArray[np.int32]) -> None:
    """Number all clusters through, family by family, in place."""
    first = 0
    for family, count in enumerate(counts.tolist()):
        entries = families.entries(family)
        own = labels[entries]
        labels[entries] = np.where(own >= 0, own + first, own)
        first += count


def _identify(
    keys: Keys, values: NDArray[np.int32], settings: ClusterSettings, excluded: Sequence[int]
) -> dict[str, Any]:
    """All that the labels depend on; of the keys themselves a few are read, lest they be of another model."""
    probe = np.unique(np.linspace(0, max(0, keys.size - 1), min(_PROBED_KEYS, keys.size)).astype(np.int64))
    return {
        "format": 1,
        "settings": asdict(settings),
        "excluded": sorted(set(excluded)),
        "entries": keys.size,
        "dimension": keys.dimension,
        "values": zlib.crc32(np.ascontiguousarray(values).data),
        "keys": zlib.crc32(np.ascontiguousarray(keys.gather(probe)).data),
    }
