"""The stage of learning that clusters a memory's keys, family by family."""

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
    """What the clusters depend on; `base` is the digest of what was extracted."""
    return digest(settings, base)


def cluster_memory(
    memory: Memory,
    settings: ClusterSettings,
    *,
    again: bool = False,
    device: torch.device | str = "cpu",
    progress: Progress = silent,
) -> Memory:
    """Cluster the model's own keys and store each entry's cluster; killed, the same call goes on.

    The tokens that extraction noted as special (padding, unknown) belong to no cluster. Where these settings were
    used last, and nothing was added or removed since, nothing is done, unless `again`.
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
