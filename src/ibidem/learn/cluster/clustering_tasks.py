"""Clustering in tasks: each clusters some batches of families with the eps of the whole memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.learn.cluster.clustering import ClusterSettings, cluster_batch
from ibidem.learn.jobs import Context, Job, Task, save_array
from ibidem.learn.provenance import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import torch
    from numpy.typing import NDArray

    from ibidem.learn.cluster.clustering import FamilyRunner
    from ibidem.learn.jobs import Distribution
    from ibidem.memory import Memory
    from ibidem.progress import Progress


@dataclass(frozen=True)
class FamilyOrder:
    """The argument of a task of clustering.

    Attributes:
        members: The entries of each family of each batch.
        settings: The clustering settings.
        notes: The method, eps and threshold.
    """

    members: list[list[NDArray[np.int64]]]
    settings: ClusterSettings
    notes: Mapping[str, Any]


def cluster_part(order: FamilyOrder, context: Context, folder: Path) -> dict[str, Any]:
    """Cluster some batches of families.

    Args:
        order: The entries and the settings.
        context: The memory.
        folder: The folder of the part.

    Returns:
        The number of families.
    """
    assert context.memory is not None
    keys, notes = context.memory.keys, dict(order.notes)
    found = [
        labels
        for members in order.members
        for labels in cluster_batch(keys, members, order.settings, notes, context.device)
    ]
    save_array(folder, "labels", np.concatenate(found).astype(np.int32))
    return {"families": len(found)}


def runner(
    memory: Memory,
    settings: ClusterSettings,
    folder: Path,
    device: torch.device,
    distribution: Distribution,
    progress: Progress,
) -> FamilyRunner:
    """Return a function that clusters batches of families in tasks.

    Args:
        memory: The memory, whose generation the workers read.
        settings: The clustering settings.
        folder: The work folder of the stage.
        device: Where to compute.
        distribution: Runs the tasks.
        progress: Receives the number of entries.
    """

    def run(
        batches: list[list[int]],
        members_of: Callable[[list[int]], list[NDArray[np.int64]]],
        sizes: NDArray[np.int64],
        notes: dict[str, Any],
    ) -> Iterator[tuple[int, NDArray[np.int32]]]:
        groups = group_batches(batches, sizes, distribution.task_pairs)
        costs = [float(sum(np.square(sizes[batch], dtype=float).sum() for batch in group)) for group in groups]
        ends, total = np.cumsum(costs), max(1.0, sum(costs))
        plain = {name: notes.get(name) for name in ("method", "eps", "threshold")}
        shared = digest(asdict(settings), plain)

        def tasks() -> Iterator[Task]:
            for number, group in enumerate(groups):
                members = [members_of(batch) for batch in group]
                content = sha256(shared.encode())
                for entries in (entries for batch in members for entries in batch):
                    content.update(len(entries).to_bytes(8, "little") + entries.tobytes())
                units = sum(len(entries) for batch in members for entries in batch)
                order = FamilyOrder(members, settings, plain)
                yield Task(number, content.hexdigest(), cluster_part, order, units, float(ends[number]) / total)

        job = Job(distribution, folder, "Clustering", "entries", memory=memory, device=device.type, progress=progress)
        for task, part in job.run(tasks()):
            labels, start = part.array("labels"), 0
            for family in (family for batch in groups[task.number] for family in batch):
                yield family, labels[start : start + int(sizes[family])]
                start += int(sizes[family])

    return run


def group_batches(batches: list[list[int]], sizes: NDArray[np.int64], pairs: int) -> list[list[list[int]]]:
    """Group batches of families into tasks of similar cost.

    Args:
        batches: The numbers of the families of each batch.
        sizes: [all families] the entries of each family that are clustered.
        pairs: About how many pairs of keys a task compares.

    Returns:
        The batches of each task.

    Examples:
        >>> group_batches([[0, 1], [2], [3]], np.array([1, 1, 3, 4]), pairs=10)
        [[[0, 1]], [[2]], [[3]]]
        >>> group_batches([[0, 1], [2], [3]], np.array([1, 1, 3, 4]), pairs=11)
        [[[0, 1], [2]], [[3]]]
    """
    groups: list[list[list[int]]] = []
    cost = 0.0
    for batch in batches:
        own = float(np.square(sizes[batch], dtype=float).sum())
        if not groups or cost + own > pairs:
            groups.append([])
            cost = 0.0
        groups[-1].append(batch)
        cost += own
    return groups
