"""Target-side clustering of keys, family by family (the paper's section 3.1, "cluster family"), and its settings."""

from __future__ import annotations

import contextlib
import math
import zlib
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ibidem.errors import MismatchError, UsageError
from ibidem.learn.cluster.birch import birch, derive_threshold
from ibidem.learn.cluster.checkpoint import Checkpoint
from ibidem.learn.cluster.dbscan import CELL_BYTES, dbscan, dbscan_families
from ibidem.learn.cluster.eps_estimation import derive_eps
from ibidem.learn.cluster.families import (
    EXCLUDED,
    NOISE,
    UNSAMPLED,
    Families,
    gather_families,
    gather_points,
    group_by_value,
)
from ibidem.learn.limits import LARGEST_INT32, check_count, check_room
from ibidem.learn.provenance import contents, digest, extracted, is_done, write_card
from ibidem.memory import check_complete
from ibidem.progress import Progress, silent
from ibidem.retrieve import check_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ibidem.learn.jobs import Distribution
    from ibidem.memory import Memory
    from ibidem.retrieve import Keys

    # (batches of families, the entries of a batch's families, sizes, method and distances) -> labels of each family
    FamilyRunner = Callable[
        [list[list[int]], Callable[[list[int]], list[NDArray[np.int64]]], NDArray[np.int64], dict[str, Any]],
        Iterable[tuple[int, NDArray[np.int32]]],
    ]

STAGE = "cluster"
METHODS = ("auto", "dbscan", "birch", "none")
# The paper clusters memories of 100M entries and more with BIRCH (section 4.2, "Clustering Algorithm Selection").
BIRCH_FROM = 100_000_000
# Families up to this size are clustered in batches.
SMALL = 512
# Bytes of the distances, and of the keys, of a batch of small families: on a CPU they must fit its cache.
_CPU_BATCH_BYTES = 4 << 20
_CUDA_BATCH_BYTES = 256 << 20
# Keys that identify a memory in a checkpoint.
_PROBED_KEYS = 64
_QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
_CHUNK = 1 << 22


@dataclass(frozen=True)
class ClusterSettings:
    """Hold the settings of the clustering; all defaults but the distances are the authors'.

    Distances are in the units of the model's own keys. The authors' distances fit the 1024-dimensional keys of their
    model only, so by default they are derived from the memory.

    Attributes:
        method: "dbscan", "birch", "auto" (the paper's choice, section 4.2: DBSCAN below 100 million entries, BIRCH
            above), or "none" (each family is one cluster).
        eps: Radius of DBSCAN's neighbourhoods (the authors': 10). None derives it from the keys: `derive_eps`.
        min_samples: Number of entries within eps, the entry itself included, that make an entry a core point of
            DBSCAN. BIRCH clusters of fewer entries are noise.
        threshold: Largest radius of a BIRCH cluster (the authors': 0.5 for keys divided by 10, which is half their
            eps). None takes eps (min_samples - 1) / min_samples.
        family_bound: Largest number of entries of a family that are clustered; a larger family is sampled. The
            authors take 100,000, and 20,000 for large memories.
        smallest: Families of fewer entries are one cluster each.
        eps_quantile: Share of the entries that a derived eps makes core points. A high share leaves little noise, as
            the authors' eps does.
        seed: Seed of all random draws.

    Raises:
        UsageError: A setting is out of its range.

    Examples:
        >>> ClusterSettings().choose_method(entries=3_000_000)
        'dbscan'
    """

    method: str = "auto"
    eps: float | None = None
    min_samples: int = 4
    threshold: float | None = None
    family_bound: int = 20_000
    smallest: int = 5
    eps_quantile: float = 0.9
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UsageError(f"Unknown clustering method '{self.method}': use one of {', '.join(METHODS)}.")
        for name, distance in (("eps", self.eps), ("threshold", self.threshold)):
            if distance is not None and not (distance > 0 and math.isfinite(distance)):
                raise UsageError(f"Invalid {name} {distance}: give a distance above 0, or none to derive it.")
        for name, least in (("min_samples", 1), ("family_bound", 2), ("smallest", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise UsageError(f"Invalid {name} {getattr(self, name)}: give a whole number of {least} or more.")
        if not 0 < self.eps_quantile <= 1:
            raise UsageError(f"Invalid eps_quantile {self.eps_quantile}: give a share above 0 and up to 1.")

    def choose_method(self, entries: int) -> str:
        """Resolve "auto" for a memory of this many entries.

        Args:
            entries: The number of entries of the memory.

        Returns:
            "dbscan", "birch" or "none".
        """
        if self.method != "auto":
            return self.method
        return "dbscan" if entries < BIRCH_FROM else "birch"


@dataclass(frozen=True)
class Clustering:
    """Hold the cluster of every entry.

    Attributes:
        labels: [entries] int32: clusters numbered from 0, family by family in the order of values, or NOISE,
            UNSAMPLED, EXCLUDED.
        eps: The radius of DBSCAN, or the one that BIRCH's threshold was derived from; None if it was not needed.
        report: Figures for the memory's card, as JSON.
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
    run: FamilyRunner | None = None,
    progress: Progress = silent,
) -> Clustering:
    """Cluster the keys of each family.

    The labels depend neither on the order of the work nor, for a given eps, on the device. The keys of at most a
    batch of families are in memory at once.

    Args:
        keys: The keys of the memory.
        values: [entries], the token id of each key.
        settings: The settings; None takes the defaults.
        excluded: Token ids that are not clustered.
        device: Device of the computation.
        workspace: Folder for a checkpoint, from which an interrupted run resumes with the same labels. A checkpoint of
            other settings or another memory is discarded.
        run: Clusters the batches of families elsewhere; None clusters them in this process.
        progress: Progress callback.

    Returns:
        The labels, eps and a report.

    Raises:
        MismatchError: `values` has not one value a key.
        MemoryFolderError: The checkpoint cannot be written.

    Examples:
        >>> from ibidem.retrieve import ArrayKeys
        >>> keys = ArrayKeys(np.array([[0.0], [5.0], [0.1], [9.0], [9.1], [0.2]], np.float32))
        >>> values = np.array([3, 8, 3, 3, 3, 8], np.int32)
        >>> cluster_keys(keys, values, ClusterSettings(eps=1.0, min_samples=2, smallest=3)).labels.tolist()
        [0, 2, 0, 1, 1, 2]
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
        checkpoint = None
        if workspace is not None and method != "none":
            identity = _identify(keys, values, settings, excluded)
            checkpoint = stack.enter_context(Checkpoint(workspace, identity))
        if method != "none":
            notes |= _find_distances(keys, families, settings, method, place, checkpoint, progress)
        counts = _cluster_families(keys, families, settings, notes, place, checkpoint, run, progress, labels)
    _number_globally(families, counts, labels)
    report = notes | describe(labels, families, counts)
    return Clustering(labels, notes["eps"], report | {"device": str(place), "seconds": perf_counter() - started})


def _find_distances(
    keys: Keys,
    families: Families,
    settings: ClusterSettings,
    method: str,
    device: torch.device,
    checkpoint: Checkpoint | None,
    progress: Progress,
) -> dict[str, Any]:
    """Return eps and threshold: as set, or derived, or as an interrupted run derived them."""
    if checkpoint is not None and checkpoint.notes is not None:
        return checkpoint.notes
    notes: dict[str, Any] = {"eps": settings.eps}
    if settings.eps is None and (method == "dbscan" or settings.threshold is None):
        notes["eps"], notes["scale"] = derive_eps(keys, families, settings, device=device, progress=progress)
    if method == "birch":
        derived = None if notes["eps"] is None else derive_threshold(notes["eps"], settings.min_samples)
        notes["threshold"] = derived if settings.threshold is None else settings.threshold
    if checkpoint is not None:
        checkpoint.begin(notes)
    return notes


def _cluster_families(
    keys: Keys,
    families: Families,
    settings: ClusterSettings,
    notes: dict[str, Any],
    device: torch.device,
    checkpoint: Checkpoint | None,
    run: FamilyRunner | None,
    progress: Progress,
    labels: NDArray[np.int32],
) -> NDArray[np.int64]:
    """Fill in the labels, numbered from 0 in each family; returns the number of clusters of each family."""
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
    for value, found in checkpoint.read() if checkpoint is not None else ():
        if value in waiting:
            write(waiting.pop(value), found)
    left = np.array(list(waiting.values()), np.int64)
    total, done, entries = max(1.0, float(np.square(sizes[left], dtype=float).sum())), 0.0, 0
    batches = plan_batches(sizes, left, keys.dimension, notes["method"], device)

    def members_of(batch: list[int]) -> list[NDArray[np.int64]]:
        return [families.sample(family, settings.family_bound, settings.seed) for family in batch]

    if run is not None:
        for family, found in run(list(batches), members_of, sizes, notes):
            write(family, found)
        return counts
    for batch in batches:
        found_labels = cluster_batch(keys, members_of(batch), settings, notes, device)
        for family, found in zip(batch, found_labels, strict=True):
            write(family, found)
            if checkpoint is not None:
                checkpoint.append(int(families.values[family]), found)
            done += float(sizes[family]) ** 2
            entries += int(sizes[family])
        if checkpoint is not None:
            checkpoint.flush()
        progress("Clustering", done / total, entries, "entries")
    return counts


def cluster_batch(
    keys: Keys,
    members: Sequence[NDArray[np.int64]],
    settings: ClusterSettings,
    notes: dict[str, Any],
    device: torch.device,
) -> Iterator[NDArray[np.int32]]:
    """Cluster one large or several small families.

    Args:
        keys: The keys of the memory.
        members: The entries of each family.
        settings: The clustering settings.
        notes: The method, eps and threshold.
        device: Device of the computation.

    Yields:
        The labels of each family, [n] int32.
    """
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
    """Order families by size, and group small ones into batches within the bytes allowed.

    Args:
        sizes: [all families] the number of entries of each family that are clustered.
        families: [f] the numbers of the families to cluster.
        dimension: The dimension of the keys.
        method: "dbscan" or "birch"; BIRCH clusters one family at a time.
        device: Device of the computation, which determines the bytes allowed.

    Yields:
        The family numbers of each batch; a family above SMALL entries is a batch of its own.
    """
    room = _CUDA_BATCH_BYTES if device.type == "cuda" else _CPU_BATCH_BYTES
    batch: list[int] = []
    for family in families[np.argsort(sizes[families], kind="stable")].tolist():
        size = int(sizes[family])
        # Sizes ascend: a batch is padded to the width of its last family.
        each = size * max(4 * dimension, CELL_BYTES * size)
        if batch and (size > SMALL or method == "birch" or (len(batch) + 1) * each > room):
            yield batch
            batch = []
        batch.append(family)
    if batch:
        yield batch


def _number_globally(families: Families, counts: NDArray[np.int64], labels: NDArray[np.int32]) -> None:
    """Number all clusters from 0, family by family, in place."""
    first = 0
    for family, count in enumerate(counts.tolist()):
        entries = families.entries(family)
        own = labels[entries]
        labels[entries] = np.where(own >= 0, own + first, own)
        first += count


def _identify(
    keys: Keys, values: NDArray[np.int32], settings: ClusterSettings, excluded: Sequence[int]
) -> dict[str, Any]:
    """Describe all that the labels depend on; a few keys are read to identify the model."""
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


def describe(labels: NDArray[np.int32], families: Families, counts: NDArray[np.int64]) -> dict[str, Any]:
    """Summarise a clustering in figures.

    Args:
        labels: [entries].
        families: The families that were clustered.
        counts: [families], the number of clusters of each.

    Returns:
        Numbers of families and clusters, quantiles of cluster sizes, and shares of all entries, as JSON.
    """
    sizes = _count_members(labels, int(counts.sum()))
    entries = max(1, len(labels))
    return {
        "entries": len(labels),
        "families": len(families),
        "families_without_cluster": int(np.count_nonzero(counts == 0)),
        "clusters": len(sizes),
        "clusters_per_family": {
            "mean": float(counts.mean()) if len(counts) else 0.0,
            "median": float(np.median(counts)) if len(counts) else 0.0,
            "max": int(counts.max(initial=0)),
        },
        "cluster_sizes": {str(q): float(np.quantile(sizes, q)) for q in _QUANTILES} if len(sizes) else {},
        "noise_share": int(np.count_nonzero(labels == NOISE)) / entries,
        "unsampled_share": int(np.count_nonzero(labels == UNSAMPLED)) / entries,
        "excluded_share": int(np.count_nonzero(labels == EXCLUDED)) / entries,
    }


def _count_members(labels: NDArray[np.int32], clusters: int) -> NDArray[np.int64]:
    """Count the entries of each cluster: [clusters]."""
    sizes = np.zeros(clusters, np.int64)
    for start in range(0, len(labels), _CHUNK):
        chunk = labels[start : start + _CHUNK]
        sizes += np.bincount(chunk[chunk >= 0], minlength=clusters)
    return sizes


def cluster_digest(settings: ClusterSettings, base: str) -> str:
    """Return the digest of all that the clusters depend on.

    Args:
        settings: The settings of the clustering.
        base: The digest of the extraction.
    """
    return digest(settings, base)


def cluster_memory(
    memory: Memory,
    settings: ClusterSettings,
    *,
    again: bool = False,
    device: torch.device | str = "cpu",
    distribution: Distribution | None = None,
    progress: Progress = silent,
) -> Memory:
    """Cluster the model's own keys, and store the cluster of each entry in the memory.

    An interrupted call resumes when it is repeated. Special tokens (padding, unknown) belong to no cluster.

    Args:
        memory: An unpruned memory that holds the model's own keys.
        settings: The clustering settings.
        again: Cluster again even if the stored clusters have these settings and the memory has not changed since.
        device: Device of the computation.
        distribution: Clusters the families in tasks; None clusters them in this process, with the same result.
        progress: Progress callback.

    Returns:
        The memory, in its new generation.

    Raises:
        UsageError: The memory is pruned, or its own keys were dropped.

    Examples:
        >>> cluster_memory(Memory.open("memories/it"), ClusterSettings())    # doctest: +SKIP
    """
    check_complete(memory)
    with memory.edit() as edit:
        memory = edit.memory
        if memory.entries < memory.tokens:
            raise UsageError(f"{memory.path} is pruned: run `ibidem restore` first, and prune it again afterwards.")
        wanted = cluster_digest(settings, extracted(memory))
        if not again and is_done(memory, STAGE, wanted):
            edit.clear_workspace(STAGE)
            write_card(memory)
            return memory
        check_room("cluster", memory.entries, memory.path)
        check_count(
            "entries", memory.entries, LARGEST_INT32, "cluster smaller memories; the clusters of one have int32 numbers"
        )
        workspace, run = edit.workspace(STAGE, wanted), None
        if distribution is not None:
            from ibidem.learn.cluster.clustering_tasks import runner

            run = runner(memory, settings, workspace, torch.device(device), distribution, progress)
        found = cluster_keys(
            memory.keys,
            memory.values(),
            settings,
            excluded=memory.manifest.stages["extract"].get("special_tokens", ()),
            device=torch.device(device),
            workspace=workspace,
            run=run,
            progress=progress,
        )
        edit.put_array("clusters", lambda start, stop: found.labels[start:stop])
        made = {"digest": wanted, "contents": contents(memory), "settings": asdict(settings)}
        edit.set_stage(STAGE, {**made, **found.report})
        memory = edit.commit()
        edit.clear_workspace(STAGE)
    write_card(memory)
    return memory
