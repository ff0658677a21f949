"""Which entries a memory keeps: the paper's cost clusters, and the baselines of its pruning table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.errors import UsageError
from ibidem.learn.cost import check_offsets
from ibidem.learn.prune.agreement import group_agreeing
from ibidem.learn.prune.clusters import can_give_up, cluster_costs, cluster_finely
from ibidem.learn.prune.covering import remove_covered
from ibidem.learn.prune.groups import group_entries
from ibidem.learn.prune.keeping import COUNTERS
from ibidem.learn.prune.parts import EntryGroups, refine, split_by_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from ibidem.learn.prune.covering import Coverage
    from ibidem.learn.prune.settings import PruneSettings


@dataclass(frozen=True, eq=False)
class PruneEntries:
    """What pruning looks at, checked when made; raises UsageError.

    costs [entries]; values [tokens] and offsets [pairs + 1] of all tokens, also of those that are no entries
    any more; rows [entries] the tokens that are entries, increasing. For the spatial strategy also distances
    [entries] of keys to the centre of their cluster, and clusters [entries], numbered inside the family or
    through the whole memory, negative for an entry that is in none. For the strategy covered, who covers whom. For
    groups of agreeing entries, near [entries, K]: the nearest others of each, nearest first, -1 where there is none.
    """

    costs: NDArray[np.float32]
    values: NDArray[np.integer[Any]]
    offsets: NDArray[np.int64]
    rows: NDArray[np.int64]
    distances: NDArray[np.floating[Any]] | None = None
    clusters: NDArray[np.integer[Any]] | None = None
    coverage: Coverage | None = None
    near: NDArray[np.int32] | None = None

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
        if (np.diff(self.rows) <= 0).any():
            raise UsageError("rows must increase: give each entry's token once, in order.")

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class Pruned:
    """Which entries are kept [entries], in how many clusters and groups, and the share removed, and asked for.

    grouped_tokens, agreeing (0 where nothing had to agree), epsilon: of the groups and the cost clusters, where they
    were found by the rate.
    """

    kept: NDArray[np.bool_]
    clusters: int
    groups: int
    rate: float
    asked: float
    grouped_tokens: int
    agreeing: int = 0
    epsilon: float | None = None


def prune_entries(entries: PruneEntries, settings: PruneSettings) -> Pruned:
    """Choose what to keep; the same entries and settings give the same choice."""
    return STRATEGIES[settings.strategy](entries, settings)


def sample_cost_clusters(entries: PruneEntries, settings: PruneSettings) -> Pruned:
    """Keep a uniform sample of every cluster of similar cost inside a group: Algorithm 1."""
    if settings.epsilon is None:
        groups, settings = _group_as_needed(entries, settings)
        clusters, epsilon = cluster_finely(entries.costs, groups, settings)
        settings = replace(settings, epsilon=epsilon)
    else:
        groups = _group(entries, settings)
        clusters = cluster_costs(entries.costs, groups, settings, settings.epsilon)
    return _report(_keep_sample(clusters, _count(clusters, settings), settings.seed), clusters, groups, settings)


def sample_groups(entries: PruneEntries, settings: PruneSettings) -> Pruned:
    """Keep a uniform sample of every group (the paper's RP: Algorithm 1 without its first step)."""
    groups = _group(entries, settings)
    return _report(_keep_sample(groups, _count(groups, settings), settings.seed), groups, groups, settings)


def drop_low_probabilities(entries: PruneEntries, settings: PruneSettings) -> Pruned:
    """Drop the entries of highest cost of every group, as doubtful translations (the paper's LTP)."""
    groups = _group(entries, settings)
    return _report(_keep_lowest(groups, _count(groups, settings), entries.costs), groups, groups, settings)


def drop_high_probabilities(entries: PruneEntries, settings: PruneSettings) -> Pruned:
    """Drop the entries of lowest cost of every group, which the base model knows anyway (the paper's HTP)."""
    groups = _group(entries, settings)
    return _report(_keep_lowest(groups, _count(groups, settings), -entries.costs), groups, groups, settings)


def drop_distant(entries: PruneEntries, settings: PruneSettings) -> Pruned:
    """Drop the entries farthest from the centre of their spatial cluster (the paper's SP).

    A cluster never reaches over its family; an entry that is in no cluster is one of its own, and so is kept.
    """
    if entries.distances is None or entries.clusters is None:
        raise UsageError(
            "Spatial pruning needs each entry's cluster of keys and its distance to the centre: cluster the keys "
            "first, or use the strategy cost-clusters."
        )
    families = group_entries(entries.values, entries.offsets, entries.rows)
    clusters = refine(families, entries.clusters, split_by_number)
    kept = _keep_lowest(clusters, _count(clusters, settings), entries.distances)
    return _report(kept, clusters, families, settings)


def drop_covered(entries: PruneEntries, settings: PruneSettings) -> Pruned:
    """Drop what the base model and the rest of the memory say anyway; clusters are those that stand for others."""
    if entries.coverage is None:
        raise UsageError("What is covered depends on the neighbours of every entry: prune a memory, not bare entries.")
    families = group_entries(entries.values, entries.offsets, entries.rows)
    left = remove_covered(entries.coverage, len(entries), settings)
    return replace(_report(left.kept, families, families, settings), clusters=int(left.supporting.sum()))


STRATEGIES: dict[str, Callable[[PruneEntries, PruneSettings], Pruned]] = {
    "cost-clusters": sample_cost_clusters,
    "covered": drop_covered,
    "random": sample_groups,
    "low-probability": drop_low_probabilities,
    "high-probability": drop_high_probabilities,
    "spatial": drop_distant,
}


def _group(entries: PruneEntries, settings: PruneSettings) -> EntryGroups:
    if settings.grouping != "agreeing":
        return group_entries(entries.values, entries.offsets, entries.rows, settings.grouped_tokens)
    if entries.near is None:
        raise UsageError("Which entries agree depends on the nearest of each: prune a memory, not bare entries.")
    return group_agreeing(entries.values[entries.rows], entries.near, settings.agreeing, settings.seed)


def _group_as_needed(entries: PruneEntries, settings: PruneSettings) -> tuple[EntryGroups, PruneSettings]:
    """The first groups, from those asked for to ever larger ones, that can give up as much as is asked for."""
    for wider in _widen(settings):
        groups = _group(entries, wider)
        if can_give_up(groups, len(entries), settings.rate):
            break
    return groups, wider


def _widen(settings: PruneSettings) -> Iterator[PruneSettings]:
    """The same with ever larger groups: fewer neighbours that must agree, then shorter n-grams, at last families."""
    if settings.grouping == "agreeing":
        for agreeing in range(settings.agreeing, 0, -1):
            yield replace(settings, agreeing=agreeing)
    for n in range(1 if settings.grouping == "token" else settings.group_n, 0, -1):
        yield replace(settings, groups="ngram", group_n=n)


def _count(clusters: EntryGroups, settings: PruneSettings) -> NDArray[np.int64]:
    return COUNTERS[settings.rule](clusters.sizes, settings.kept_share)


def _keep_sample(parts: EntryGroups, counts: NDArray[np.int64], seed: int) -> NDArray[np.bool_]:
    """Keep counts [parts] entries of each part, every choice of so many equally likely -> mask [entries]."""
    generator = np.random.default_rng(seed)
    kept = np.zeros(len(parts.order), dtype=np.bool_)
    for which, block in parts.blocks():
        shuffled = generator.permutation(len(block.order))
        shuffled = shuffled[np.argsort(block.numbers()[shuffled], kind="stable")]
        kept[block.order[shuffled[_first(block, counts[which])]]] = True
    return kept


def _keep_lowest(parts: EntryGroups, counts: NDArray[np.int64], keys: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
    """Keep the counts [parts] entries of lowest key [entries] of each part, of equals the earlier -> mask."""
    kept = np.zeros(len(parts.order), dtype=np.bool_)
    for which, block in parts.blocks():
        sorted_order = np.lexsort((block.order, keys[block.order], block.numbers()))
        kept[block.order[sorted_order[_first(block, counts[which])]]] = True
    return kept


def _first(parts: EntryGroups, counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark the first counts [parts] places of every part [entries]."""
    return np.arange(len(parts.order)) < np.repeat(parts.bounds[:-1] + counts, parts.sizes)


def _report(kept: NDArray[np.bool_], clusters: EntryGroups, groups: EntryGroups, settings: PruneSettings) -> Pruned:
    removed = len(kept) - int(np.count_nonzero(kept))
    rate = removed / max(1, len(kept))
    agreeing = settings.agreeing if settings.grouping == "agreeing" else 0
    return Pruned(
        kept, len(clusters), len(groups), rate, settings.rate, settings.grouped_tokens, agreeing, settings.epsilon
    )
