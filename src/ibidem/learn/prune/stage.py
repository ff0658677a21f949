"""The stage of learning that leaves redundant entries out of a memory, and the way back."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import torch

from ibidem.errors import UsageError
from ibidem.learn.card import write_card
from ibidem.learn.cluster import distances_to_centres
from ibidem.learn.cost import translation_costs
from ibidem.learn.digests import UNPRUNED, digest, space, stored
from ibidem.learn.prune.agreement import REACH
from ibidem.learn.prune.neighbourhood import NeighbourGraph, provide_surroundings, see_neighbourhood
from ibidem.learn.prune.strategies import PruneEntries, prune_entries
from ibidem.memory import check_complete
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from ibidem.learn.prune.settings import PruneSettings
    from ibidem.memory import Memory

STAGE = "prune"


def prune_digest(settings: PruneSettings, space: str, clusters: str | None, tuned: str | None) -> str:
    """What the entries that are left depend on; the others are digests of what they were chosen from, and by."""
    return digest(settings, space, {"spatial": clusters, "covered": tuned}.get(settings.strategy))


def prune_memory(
    memory: Memory,
    settings: PruneSettings,
    *,
    keep_unpruned: bool = True,
    again: bool = False,
    surroundings: NeighbourGraph | None = None,
    device: torch.device | str = "cpu",
    progress: Progress = silent,
) -> Memory:
    """Leave a share of the entries out; `restore_memory` brings them back, unless they were not to be kept.

    The combiners stay (the paper tunes before it prunes), the index is removed. A pruned memory can be pruned
    again: costs and n-grams are those of the whole sentences, which stay. The share is meant of what was there: where
    the last pruning had the same settings, nothing is done, so that a run that ended in an error can be repeated,
    whatever pairs came in between; `again` prunes what is left, and what was added since. surroundings: of every
    entry, for the strategy covered and for agreeing groups, where they were found before.
    """
    check_complete(memory)
    with memory.edit() as edit:
        memory = edit.memory
        if not memory.entries:
            raise UsageError(f"{memory.path} has no entries to prune.")
        if not settings.rate:
            raise UsageError("A rate of 0 prunes nothing: give the share to remove, such as 0.1.")
        wanted = prune_digest(settings, space(memory), stored(memory, "cluster"), stored(memory, "tune"))
        before, earlier = memory.entries, memory.manifest.stages.get(STAGE)
        if not again and earlier is not None and earlier.get("request") == wanted:
            if not keep_unpruned and UNPRUNED in memory.snapshots():
                edit.forget_snapshot(UNPRUNED)
                memory = edit.commit()
            write_card(memory)
            return memory
        progress("Pruning", None, before, "entries")
        pruned = prune_entries(
            _describe_entries(memory, settings, surroundings, torch.device(device), progress), settings
        )
        if not keep_unpruned and UNPRUNED in memory.snapshots():
            edit.forget_snapshot(UNPRUNED)
        elif keep_unpruned and earlier is None and not pruned.kept.all():
            edit.keep_snapshot(UNPRUNED)
        edit.keep_entries(pruned.kept)
        edit.remove_artefact("index")
        edit.remove_stage("index")
        notes = {
            "digest": wanted if earlier is None else digest(wanted, earlier),
            "request": wanted,
            "settings": asdict(settings),
            "entries_before": before,
            "entries": int(pruned.kept.sum()),
            "asked": pruned.asked,
            "achieved": pruned.rate,
            "groups": pruned.groups,
            "clusters": pruned.clusters,
            "grouped_tokens": pruned.grouped_tokens,
            "agreeing": pruned.agreeing,
            "epsilon": pruned.epsilon,
        }
        edit.set_stage(STAGE, notes if earlier is None else {**notes, "earlier": earlier})
        memory = edit.commit()
    write_card(memory)
    return memory


def restore_memory(memory: Memory) -> Memory:
    """The memory as it was before pruning, as a new generation."""
    with memory.edit() as edit:
        memory = edit.memory
        kept = UNPRUNED in memory.snapshots()
        if STAGE not in memory.manifest.stages or (not kept and memory.entries < memory.tokens):
            raise UsageError(
                f"{memory.path} cannot be restored: it was not pruned, or pruned without keeping what was there before."
            )
        if kept:
            edit.restore_snapshot(UNPRUNED)
            edit.forget_snapshot(UNPRUNED)
        else:  # it was so small that nothing was removed
            edit.remove_stage(STAGE)
        memory = edit.commit()
    write_card(memory)
    return memory


def _describe_entries(
    memory: Memory,
    settings: PruneSettings,
    surroundings: NeighbourGraph | None,
    device: torch.device,
    progress: Progress,
) -> PruneEntries:
    rows, offsets = memory.rows(), memory.token_offsets()
    clusters = distances = None
    if settings.strategy == "spatial":
        labels = memory.clusters()
        if labels is None:
            raise UsageError(f"{memory.path} is not clustered: run `ibidem cluster` first.")
        clusters, distances = distances_to_centres(
            memory.search_keys, memory.values(), labels, device=device, progress=progress
        )
    coverage = near = None
    if settings.strategy == "covered":
        coverage = see_neighbourhood(memory, surroundings, device, progress)
    elif settings.grouping == "agreeing":
        near = provide_surroundings(memory, REACH, surroundings, device=device, progress=progress).entries
    costs = translation_costs(memory.token_log_probs(), offsets, settings.n)[rows]
    return PruneEntries(costs, memory.token_values(), offsets, rows, distances, clusters, coverage, near)
