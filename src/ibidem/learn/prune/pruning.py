"""Pruning of a memory: the settings, the stage that removes entries, and their restoration."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import torch

from ibidem.combine import load_combiner
from ibidem.errors import UsageError
from ibidem.learn.cluster import distances_to_centres
from ibidem.learn.cost import translation_costs
from ibidem.learn.limits import LARGEST_INT32, STAGE_BYTES, check_count, check_room
from ibidem.learn.provenance import UNPRUNED, digest, space, stored, write_card
from ibidem.learn.prune.groups import MAX_NEIGHBOURS
from ibidem.learn.prune.neighbour_graph import NeighbourGraph, ensure_neighbour_graph
from ibidem.learn.prune.redundancy import make_predictor
from ibidem.learn.prune.strategies import PruneEntries, prune_entries
from ibidem.memory import check_complete
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from ibidem.learn.jobs import Distribution
    from ibidem.learn.prune.neighbour_graph import GraphTasks
    from ibidem.memory import Memory


STAGE = "prune"
_SEARCHES = "neighbours"
STRATEGIES = ("cost-clusters", "redundant", "random", "low-probability", "high-probability", "spatial")
GROUPS = ("token", "ngram", "consistent")
METHODS = ("greedy", "dbscan", "birch")
RULES = ("exact", "floor")
SCALES = ("log", "perplexity")
_RATE_DENOMINATOR = 10**6


@dataclass(frozen=True)
class PruneSettings:
    """Settings of pruning.

    "The paper" is its section 3.2 with Algorithm 1; "the code" is the code that its authors published.

    Attributes:
        strategy: "cost-clusters" is the paper's method. "redundant" is ours: it removes the entries that the tuned
            memory predicts without them. "random" (RP), "low-probability" (LTP), "high-probability" (HTP) and
            "spatial" (SP) are the baselines of the paper's section 4.5.2.
        rate: The share of entries to remove, from 0 to below 1; 0.1 as in the paper's comparison of strategies. The
            code takes the share to keep instead.
        n: The longest n-gram of the translation cost. The paper (section 4.3) and the code use 2. The default is 1,
            since the minimum over several lengths gives a hard token after an easy one a low cost.
        groups: Which entries are compared: those of one "token" (the paper), of one "ngram" (the code), or "consistent"
            ones (ours), whose nearest neighbours have the same token. None: "ngram" for cost-clusters, and "token" for
            the other strategies.
        group_n: The length of the n-grams that group entries; the code uses 2.
        consistent_neighbours: How many of an entry's nearest neighbours must have its token, for
            consistent groups.
        epsilon: Half the width of a cost cluster; the paper gives none, the code uses 1.5. None: as small as the rate
            allows, with larger groups (fewer consistent neighbours, shorter n-grams) where these are too small for the
            rate.
        scale: The scale on which costs are compared: "perplexity" (the paper) or "log" (the code).
        method: The clustering of costs: "greedy" (the paper and the code); "dbscan", which chains the costs of a
            frequent token into one cluster, so that pruning becomes random; or "birch", which depends on the order of
            entries and needs scikit-learn.
        min_samples: The neighbours of a DBSCAN core point, itself included; the code uses 4 for keys.
        rule: "exact" removes the requested share; "floor" is the rounding of the code, which leaves clusters of two
            alone.
        seed: The seed of all random choices.

    Raises:
        UsageError: A setting is invalid.

    Examples:
        >>> PruneSettings(rate=0.3, groups="token").kept_share
        Fraction(7, 10)
    """

    strategy: str = "cost-clusters"
    rate: float = 0.1
    n: int = 1
    groups: str | None = None
    group_n: int = 3
    consistent_neighbours: int = 3
    epsilon: float | None = None
    scale: str = "perplexity"
    method: str = "greedy"
    min_samples: int = 4
    rule: str = "exact"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, chosen, options in (
            ("pruning strategy", self.strategy, STRATEGIES),
            ("grouping of entries", self.groups or "token", GROUPS),
            ("clustering of costs", self.method, METHODS),
            ("allocation rule", self.rule, RULES),
            ("scale of costs", self.scale, SCALES),
        ):
            if chosen not in options:
                raise UsageError(f"Unknown {name} '{chosen}': use one of {', '.join(options)}.")
        if not 0 <= self.rate < 1:
            raise UsageError(
                f"The pruning rate is the share of entries removed, from 0 to below 1, not {self.rate}: "
                "0.1 removes one in ten."
            )
        if self.strategy in ("redundant", "spatial") and self.grouping != "token":
            raise UsageError(
                f"groups has no effect on the pruning strategy {self.strategy}: leave it out, or set the strategy to "
                "cost-clusters, random, low-probability or high-probability."
            )
        if self.epsilon is not None and not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise UsageError(f"epsilon is a difference of costs above 0, not {self.epsilon}: use 1.5, the authors'.")
        for name, number, least in (
            ("n", self.n, 1),
            ("group_n", self.group_n, 1),
            ("consistent_neighbours", self.consistent_neighbours, 1),
            ("min_samples", self.min_samples, 1),
            ("seed", self.seed, 0),
        ):
            if not isinstance(number, int) or number < least:
                raise UsageError(f"{name} must be a whole number from {least} up, not {number}.")
        if self.consistent_neighbours > MAX_NEIGHBOURS:
            raise UsageError(
                f"consistent_neighbours is at most {MAX_NEIGHBOURS}, the number of neighbours that are compared, not "
                f"{self.consistent_neighbours}: use 3, the default."
            )

    @property
    def kept_share(self) -> Fraction:
        """The exact share of entries to keep; in floating point 1 - 0.9 is less than 0.1, and ten entries keep none."""
        return 1 - Fraction(self.rate).limit_denominator(_RATE_DENOMINATOR)

    @property
    def grouping(self) -> str:
        """The kind of groups, with the strategy's default where `groups` is None."""
        return self.groups or ("ngram" if self.strategy == "cost-clusters" else "token")

    @property
    def grouped_tokens(self) -> int:
        """How many tokens the entries of one group share: 1 for families, more for n-grams."""
        return self.group_n if self.grouping == "ngram" else 1


PAPER_SETTINGS = PruneSettings(n=2, groups="token", group_n=2, epsilon=1.5, scale="log")
"""Algorithm 1 of the paper with the values of the authors' code."""


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
    graph: NeighbourGraph | None = None,
    device: torch.device | str = "cpu",
    distribution: Distribution | None = None,
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
        graph: The neighbours of every entry, for the strategy redundant and for consistent groups; None searches them.
        device: Where to search and compute.
        distribution: Searches neighbours in tasks; None searches in this process, with the same result.
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
        _check_limits(memory, settings)
        progress("Pruning", None, before, "entries")
        tasks = None
        if distribution is not None:
            from ibidem.learn.prune.graph_tasks import graph_tasks

            tasks = graph_tasks(edit, torch.device(device), distribution)
        entries = _read_entries(memory, settings, graph, torch.device(device), tasks, progress)
        result = prune_entries(entries, settings)
        if not keep_unpruned and UNPRUNED in memory.snapshots():
            edit.forget_snapshot(UNPRUNED)
        elif keep_unpruned and earlier is None and not result.kept.all():
            edit.keep_snapshot(UNPRUNED)
        edit.keep_entries(result.kept)
        edit.remove_index()
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
        edit.clear_workspace(_SEARCHES)
    write_card(memory)
    return memory


def restore_memory(memory: Memory) -> Memory:
    """Restore the entries that pruning removed, as a new generation.

    Args:
        memory: A pruned memory with the snapshot that `prune_memory` took.

    Returns:
        The memory, in its new generation.

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


def default_strategy(memory: Memory) -> str:
    """Return the strategy that loses least: "redundant" for a tuned memory, and "cost-clusters" for another one.

    Args:
        memory: The memory to prune.
    """
    return "cost-clusters" if load_combiner(memory, context=False) is None else "redundant"


def _check_limits(memory: Memory, settings: PruneSettings) -> None:
    """Refuse a memory whose arrays do not fit into RAM or into their types."""
    kind = settings.strategy if settings.strategy in ("redundant", "spatial") else settings.grouping
    stage = f"prune {kind}"
    check_room(stage if stage in STAGE_BYTES else "prune", memory.entries, memory.path)
    if kind in ("redundant", "consistent"):
        remedy = "the neighbours of entries have int32 numbers; prune smaller memories, or by cost-clusters of n-grams"
        check_count("entries", memory.entries, LARGEST_INT32, remedy)


def _read_entries(
    memory: Memory,
    settings: PruneSettings,
    graph: NeighbourGraph | None,
    device: torch.device,
    tasks: GraphTasks | None,
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
        predictor = make_predictor(memory, graph, device, progress, tasks)
    elif settings.grouping == "consistent":
        graph = ensure_neighbour_graph(
            memory, MAX_NEIGHBOURS, graph, device=device, tasks=tasks, scratch=memory.path, progress=progress
        )
        neighbours = graph.entries
    costs = translation_costs(memory.token_log_probs(), offsets, settings.n)[rows]
    return PruneEntries(costs, memory.token_values(), offsets, rows, distances, clusters, predictor, neighbours)
