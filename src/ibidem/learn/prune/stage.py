"""The pruning stage: remove entries from a memory, and restore them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import torch

from ibidem.errors import UsageError
from ibidem.learn.card import write_card
from ibidem.learn.cluster import distances_to_centres
from ibidem.learn.cost import translation_costs
from ibidem.learn.digests import UNPRUNED, digest, space, stored
from ibidem.learn.prune.groups import MAX_NEIGHBOURS
from ibidem.learn.prune.neighbour_graph import NeighbourGraph, ensure_neighbour_graph
from ibidem.learn.prune.redundancy import make_predictor
from ibidem.learn.prune.strategies import PruneEntries, prune_entries
from ibidem.memory import INDEX_ARTEFACT, check_complete
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from ibidem.learn.prune.settings import PruneSettings
    from ibidem.memory import Memory

STAGE = "prune"


def prune_digest(settings: PruneSettings, space: str, clusters: str | None, tuned: str | None) -> str:
    """Return the digest of the entries that pruning leaves.

    Args:
        settings: The settings of pruning.
        space: The digest of the keys.
        clusters: The digest of the clusters; only the strategy spatial depends on it.
        tuned: The digest of the combiners; only the strategy redundant depends on it.
    """
    return digest(settings, space, {"spatial": clusters, "redundant": tuned}.get(settings.strategy))


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
    """Remove a share of a memory's entries (the paper's section 3.2).

    The sentences and the combiners stay: the paper tunes before it prunes. The index is removed. A pruned memory can
    be pruned again, since costs and n-grams are computed from the whole sentences.

    If the last pruning had the same settings, nothing is done, whatever pairs were added or removed since. A command
    that ended in an error can therefore be repeated.

    Args:
        memory: The memory to prune.
        settings: The strategy, the rate and their details.
        keep_unpruned: Keep a snapshot of the unpruned memory for `restore_memory`.
        again: Prune the remaining entries and the entries added since, even with the same settings.
        surroundings: The neighbours of every entry, for the strategy redundant and for consistent groups. They are
            searched where none are given.
        device: Where to search and compute.
        progress: Receives the progress.

    Returns:
        The pruned memory, committed.

    Raises:
        UsageError: The rate is 0, or the memory is empty, incomplete, or lacks clusters or a tuned combiner that the
            strategy needs.

    Examples:
        >>> from ibidem.learn import PruneSettings, prune_memory, restore_memory
        >>> from ibidem.memory import Memory
        >>> pruned = prune_memory(Memory.open("memories/mine"), PruneSettings(rate=0.3))
        >>> round(pruned.entries / pruned.tokens, 2)
        0.7
        >>> restored = restore_memory(pruned)
        >>> restored.entries == restored.tokens
        True
    """
    check_complete(memory)
    with memory.edit() as edit:
        memory = edit.memory
        if not memory.entries:
            raise UsageError(f"{memory.path} has no entries to prune: add pairs first.")
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
        entries = _read_entries(memory, settings, surroundings, torch.device(device), progress)
        result = prune_entries(entries, settings)
        if not keep_unpruned and UNPRUNED in memory.snapshots():
            edit.forget_snapshot(UNPRUNED)
        elif keep_unpruned and earlier is None and not result.kept.all():
            edit.keep_snapshot(UNPRUNED)
        edit.keep_entries(result.kept)
        edit.remove_artefact(INDEX_ARTEFACT)
        edit.remove_stage("index")
        notes = {
            "digest": wanted if earlier is None else digest(wanted, earlier),
            "request": wanted,
            "settings": asdict(settings),
            "entries_before": before,
            "entries": int(result.kept.sum()),
            "asked": result.requested,
            "achieved": result.rate,
            "groups": result.groups,
            "clusters": result.clusters,
            "grouped_tokens": result.grouped_tokens,
            "consistent_neighbours": result.consistent_neighbours,
            "epsilon": result.epsilon,
        }
        edit.set_stage(STAGE, notes if earlier is None else {**notes, "earlier": earlier})
        memory = edit.commit()
    write_card(memory)
    return memory


def restore_memory(memory: Memory) -> Memory:
    """Restore the entries that pruning removed, as a new generation.

    Raises:
        UsageError: The memory was not pruned, or was pruned without a snapshot.
    """
    with memory.edit() as edit:
        memory = edit.memory
        has_snapshot = UNPRUNED in memory.snapshots()
        if STAGE not in memory.manifest.stages or (not has_snapshot and memory.entries < memory.tokens):
            raise UsageError(
                f"{memory.path} cannot be restored: it was not pruned, or was pruned without keeping a snapshot. "
                "Learn it again to get all entries."
            )
        if has_snapshot:
            edit.restore_snapshot(UNPRUNED)
            edit.forget_snapshot(UNPRUNED)
        else:  # pruning a very small memory removed nothing, and took no snapshot
            edit.remove_stage(STAGE)
        memory = edit.commit()
    write_card(memory)
    return memory


def _read_entries(
    memory: Memory,
    settings: PruneSettings,
    graph: NeighbourGraph | None,
    device: torch.device,
    progress: Progress,
) -> PruneEntries:
    """Read or compute what the strategy needs."""
    rows, offsets = memory.rows(), memory.token_offsets()
    clusters = distances = None
    if settings.strategy == "spatial":
        labels = memory.clusters()
        if labels is None:
            raise UsageError(f"{memory.path} is not clustered: run `ibidem cluster` first.")
        clusters, distances = distances_to_centres(
            memory.search_keys, memory.values(), labels, device=device, progress=progress
        )
    predictor = neighbours = None
    if settings.strategy == "redundant":
        predictor = make_predictor(memory, graph, device, progress)
    elif settings.grouping == "consistent":
        graph = ensure_neighbour_graph(memory, MAX_NEIGHBOURS, graph, device=device, progress=progress)
        neighbours = graph.entries
    costs = translation_costs(memory.token_log_probs(), offsets, settings.n)[rows]
    return PruneEntries(costs, memory.token_values(), offsets, rows, distances, clusters, predictor, neighbours)
