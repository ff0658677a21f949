"""Pruning strategies: the paper's cost clusters, the baselines of its section 4.5.2, and redundancy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.errors import UsageError
from ibidem.learn.cost import check_offsets
from ibidem.learn.prune.allocation import ALLOCATIONS
from ibidem.learn.prune.cost_clusters import can_remove, cluster_costs, fit_cost_clusters
from ibidem.learn.prune.groups import EntryGroups, group_consistent, group_entries, refine, split_by_number
from ibidem.learn.prune.redundancy import remove_redundant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from ibidem.learn.prune.pruning import PruneSettings
    from ibidem.learn.prune.redundancy import Predictor


@dataclass(frozen=True, eq=False)
class PruneEntries:
    """The entries of a memory as a pruning strategy needs them.

    Attributes:
        costs: [entries] translation costs.
        values: [tokens] the token ids of all sentences, including tokens that are no longer entries.
        offsets: [pairs + 1] the first token of each sentence, and the number of tokens.
        rows: [entries] the tokens that are entries, increasing.
        distances: [entries] distances of keys to the centre of their cluster, for the strategy spatial.
        clusters: [entries] cluster numbers inside the family or in the whole memory, negative for an entry in no
            cluster, for the strategy spatial.
        predictor: Predicts entries from the other entries, for the strategy redundant.
        neighbours: [entries, K] the nearest other entries, nearest first, -1 where there are fewer, for groups of
            consistent entries.

    Raises:
        UsageError: The arrays do not match.
    """

    costs: NDArray[np.float32]
    values: NDArray[np.integer[Any]]
    offsets: NDArray[np.int64]
    rows: NDArray[np.int64]
    distances: NDArray[np.floating[Any]] | None = None
    clusters: NDArray[np.integer[Any]] | None = None
    predictor: Predictor | None = None
    neighbours: NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        check_offsets(self.offsets, len(self.values))
        for name in ("costs", "distances", "clusters"):
            array = getattr(self, name)
            if array is not None and array.shape != self.rows.shape:
                raise UsageError(f"{name} must have one number for each of {len(self.rows)} entries: {array.shape}.")
        for name in ("costs", "distances"):
            array = getattr(self, name)
            if array is not None and not np.isfinite(array).all():
                entry = int(np.flatnonzero(~np.isfinite(array))[0])
                raise UsageError(f"{name} must be finite, but entry {entry} has {array[entry]}: extract it again.")
        if len(self.rows) and (self.rows[0] < 0 or self.rows[-1] >= len(self.values)):
            raise UsageError(f"rows must be tokens, from 0 to {len(self.values) - 1}.")
        if (self.rows[1:] <= self.rows[:-1]).any():
            raise UsageError("rows must increase: give each entry's token once, in order.")

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class PruneResult:
    """The result of a pruning strategy.

    Attributes:
        kept: [entries] bool.
        clusters: The number of clusters that were sampled.
        groups: The number of groups.
        rate: The share of entries removed.
        requested: The share that was requested.
        grouped_tokens: The length of the n-grams that grouped entries.
        consistent_neighbours: How many nearest neighbours had to have the token of an entry; 0 for other groups.
        epsilon: Half the width of the cost clusters.
    """

    kept: NDArray[np.bool_]
    clusters: int
    groups: int
    rate: float
    requested: float
    grouped_tokens: int
    consistent_neighbours: int = 0
    epsilon: float | None = None


def prune_entries(entries: PruneEntries, settings: PruneSettings) -> PruneResult:
    """Choose the entries to keep; the same entries and settings give the same result.

    Args:
        entries: The entries of a memory.
        settings: The strategy and its settings.

    Raises:
        UsageError: The strategy needs data that `entries` lacks.

    Examples:
        >>> import numpy as np
        >>> from ibidem.learn import PruneSettings
        >>> entries = PruneEntries(
        ...     costs=np.array([0.1, 0.2, 5.0, 0.1], np.float32),
        ...     values=np.array([7, 7, 7, 8]),
        ...     offsets=np.array([0, 4]),
        ...     rows=np.arange(4),
        ... )
        >>> prune_entries(entries, PruneSettings(strategy="low-probability", rate=0.25)).kept.tolist()
        [True, True, False, True]
    """
    return STRATEGIES[settings.strategy](entries, settings)


def sample_cost_clusters(entries: PruneEntries, settings: PruneSettings) -> PruneResult:
    """Keep a uniform sample of every cluster of similar cost inside a group (the paper's Algorithm 1).

    Args:
        entries: The entries of a memory.
        settings: The settings of pruning.
    """
    if settings.epsilon is None:
        groups, settings = _fit_groups(entries, settings)
        clusters, epsilon = fit_cost_clusters(entries.costs, groups, settings)
        settings = replace(settings, epsilon=epsilon)
    else:
        groups = _group(entries, settings)
        clusters = cluster_costs(entries.costs, groups, settings, settings.epsilon)
    return _make_result(_sample(clusters, _allocate(clusters, settings), settings.seed), clusters, groups, settings)


def sample_groups(entries: PruneEntries, settings: PruneSettings) -> PruneResult:
    """Keep a uniform sample of every group (the paper's RP: step 2 of Algorithm 1 alone).

    Args:
        entries: The entries of a memory.
        settings: The settings of pruning.
    """
    groups = _group(entries, settings)
    return _make_result(_sample(groups, _allocate(groups, settings), settings.seed), groups, groups, settings)


def drop_low_probabilities(entries: PruneEntries, settings: PruneSettings) -> PruneResult:
    """Drop the entries of highest cost of every group, which are probably poor translations (the paper's LTP).

    Args:
        entries: The entries of a memory.
        settings: The settings of pruning.
    """
    groups = _group(entries, settings)
    return _make_result(_keep_lowest(groups, _allocate(groups, settings), entries.costs), groups, groups, settings)


def drop_high_probabilities(entries: PruneEntries, settings: PruneSettings) -> PruneResult:
    """Drop the entries of lowest cost of every group, which the base model predicts anyway (the paper's HTP).

    Args:
        entries: The entries of a memory.
        settings: The settings of pruning.
    """
    groups = _group(entries, settings)
    return _make_result(_keep_lowest(groups, _allocate(groups, settings), -entries.costs), groups, groups, settings)


def drop_distant(entries: PruneEntries, settings: PruneSettings) -> PruneResult:
    """Drop the entries farthest from the centre of their spatial cluster (the paper's SP).

    A cluster lies inside one family. An entry in no cluster is its own cluster and is therefore kept.

    Args:
        entries: The entries of a memory, with `distances` and `clusters`.
        settings: The settings of pruning.

    Raises:
        UsageError: `entries` has no clusters or distances.
    """
    if entries.distances is None or entries.clusters is None:
        raise UsageError(
            "Spatial pruning needs each entry's cluster of keys and its distance to the centre: cluster the keys "
            "first, or use the strategy cost-clusters."
        )
    families = group_entries(entries.values, entries.offsets, entries.rows)
    clusters = refine(families, entries.clusters, split_by_number)
    kept = _keep_lowest(clusters, _allocate(clusters, settings), entries.distances)
    return _make_result(kept, clusters, families, settings)


def drop_redundant(entries: PruneEntries, settings: PruneSettings) -> PruneResult:
    """Drop the entries that the base model and the rest of the memory predict; `clusters` counts the supporters.

    Args:
        entries: The entries of a memory, with a `predictor`.
        settings: The settings of pruning.

    Raises:
        UsageError: `entries` has no predictor.
    """
    if entries.predictor is None:
        raise UsageError(
            "The strategy redundant needs the neighbours of every entry: call prune_memory with a memory, or give a "
            "predictor."
        )
    families = group_entries(entries.values, entries.offsets, entries.rows)
    remaining = remove_redundant(entries.predictor, len(entries), settings)
    result = _make_result(remaining.kept, families, families, settings)
    return replace(result, clusters=int(remaining.supporting.sum()))


STRATEGIES: dict[str, Callable[[PruneEntries, PruneSettings], PruneResult]] = {
    "cost-clusters": sample_cost_clusters,
    "redundant": drop_redundant,
    "random": sample_groups,
    "low-probability": drop_low_probabilities,
    "high-probability": drop_high_probabilities,
    "spatial": drop_distant,
}


def _group(entries: PruneEntries, settings: PruneSettings) -> EntryGroups:
    if settings.grouping != "consistent":
        return group_entries(entries.values, entries.offsets, entries.rows, settings.grouped_tokens)
    if entries.neighbours is None:
        raise UsageError(
            "Groups of consistent entries need the neighbours of every entry: call prune_memory with a memory, or give "
            "neighbours."
        )
    return group_consistent(
        entries.values[entries.rows], entries.neighbours, settings.consistent_neighbours, settings.seed
    )


def _fit_groups(entries: PruneEntries, settings: PruneSettings) -> tuple[EntryGroups, PruneSettings]:
    """Enlarge the requested groups until the rate can be removed from them."""
    wider = list(_widen(settings))
    for narrow in wider[:-1]:
        groups = _group(entries, narrow)
        if can_remove(groups, len(entries), settings.rate):
            return groups, narrow
        del groups  # before larger ones are made
    return _group(entries, wider[-1]), wider[-1]


def _widen(settings: PruneSettings) -> Iterator[PruneSettings]:
    """Yield settings with ever larger groups: fewer consistent neighbours, then shorter n-grams, finally families."""
    if settings.grouping == "consistent":
        for consistent_neighbours in range(settings.consistent_neighbours, 0, -1):
            yield replace(settings, consistent_neighbours=consistent_neighbours)
    for n in range(1 if settings.grouping == "token" else settings.group_n, 0, -1):
        yield replace(settings, groups="ngram", group_n=n)


def _allocate(clusters: EntryGroups, settings: PruneSettings) -> NDArray[np.int64]:
    return ALLOCATIONS[settings.rule](clusters.sizes, settings.kept_share)


def _sample(groups: EntryGroups, counts: NDArray[np.int64], seed: int) -> NDArray[np.bool_]:
    """Keep a uniform sample of counts [groups] entries of each group -> mask [entries]."""
    generator = np.random.default_rng(seed)
    kept = np.zeros(len(groups.order), dtype=np.bool_)
    for which, block in groups.blocks():
        shuffled = generator.permutation(len(block.order))
        shuffled = shuffled[np.argsort(block.numbers()[shuffled], kind="stable")]
        kept[block.order[shuffled[_first(block, counts[which])]]] = True
    return kept


def _keep_lowest(groups: EntryGroups, counts: NDArray[np.int64], keys: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
    """Keep the counts [groups] entries of lowest key [entries] of each group, of equals the earlier -> mask."""
    kept = np.zeros(len(groups.order), dtype=np.bool_)
    for which, block in groups.blocks():
        sorted_order = np.lexsort((block.order, keys[block.order], block.numbers()))
        kept[block.order[sorted_order[_first(block, counts[which])]]] = True
    return kept


def _first(groups: EntryGroups, counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark the first counts [groups] positions of every group [entries]."""
    return np.arange(len(groups.order)) < np.repeat(groups.bounds[:-1] + counts, groups.sizes)


def _make_result(
    kept: NDArray[np.bool_], clusters: EntryGroups, groups: EntryGroups, settings: PruneSettings
) -> PruneResult:
    removed = len(kept) - int(np.count_nonzero(kept))
    rate = removed / max(1, len(kept))
    consistent_neighbours = settings.consistent_neighbours if settings.grouping == "consistent" else 0
    return PruneResult(
        kept,
        len(clusters),
        len(groups),
        rate,
        settings.rate,
        settings.grouped_tokens,
        consistent_neighbours,
        settings.epsilon,
    )
