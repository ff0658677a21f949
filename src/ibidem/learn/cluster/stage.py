"""The learning stage that clusters the keys of a memory."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import torch

from ibidem.errors import UsageError
from ibidem.learn.card import write_card
from ibidem.learn.cluster.clustering import cluster_keys
from ibidem.learn.digests import contents, digest, extracted, is_done
from ibidem.memory import check_complete
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from ibidem.learn.cluster.settings import ClusterSettings
    from ibidem.memory import Memory

STAGE = "cluster"


def cluster_digest(settings: ClusterSettings, base: str) -> str:
    """Compute the digest of all that the clusters depend on; `base` is the digest of the extraction."""
    return digest(settings, base)


def cluster_memory(
    memory: Memory,
    settings: ClusterSettings,
    *,
    again: bool = False,
    device: torch.device | str = "cpu",
    progress: Progress = silent,
) -> Memory:
    """Cluster the model's own keys, and store the cluster of each entry in the memory.

    An interrupted call resumes when it is repeated. Special tokens (padding, unknown) belong to no cluster.

    Args:
        memory: An unpruned memory that holds the model's own keys.
        settings: The clustering settings.
        again: Cluster again even if the stored clusters have these settings and the memory has not changed since.
        device: Device of the computation.
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
        found = cluster_keys(
            memory.keys,
            memory.values(),
            settings,
            excluded=memory.manifest.stages["extract"].get("special_tokens", ()),
            device=torch.device(device),
            workspace=edit.workspace(STAGE, wanted),
            progress=progress,
        )
        edit.put_array("clusters", lambda start, stop: found.labels[start:stop])
        made = {"digest": wanted, "contents": contents(memory), "settings": asdict(settings)}
        edit.set_stage(STAGE, {**made, **found.report})
        memory = edit.commit()
        edit.clear_workspace(STAGE)
    write_card(memory)
    return memory
