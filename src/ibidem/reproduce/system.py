"""Systems of the paper's tables, and the stages that each is built from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from ibidem.learn import ClusterSettings, CompactSettings, MetaKSettings, PruneSettings, count_graph_neighbours
from ibidem.reproduce.stages import (
    SHARED_SEED,
    Clustered,
    Compacted,
    Extracted,
    Indexed,
    Neighbourhoods,
    Pruned,
    Trained,
    Tuned,
)

if TYPE_CHECKING:
    from ibidem.reproduce.workspace import Stage

EXACT = "exact"
# Neighbours of an entry that are searched at once, enough for every k of the tables.
_NEIGHBOURS = 32


@dataclass(frozen=True)
class System:
    """Declare the base model, alone or with a memory of a corpus and the adaptive combiner.

    Args:
        corpus: Domains whose training text makes the memory; empty for the base model alone.
        dev: Domain whose dev set the combiner is tuned on.
        k: Number of neighbours.
        compact: Compactor of the searched space; None is the model's own space.
        compact_corpus: Corpus that the compactor was trained on, where it is not the memory's own.
        prune: Pruning after tuning, which is the paper's order.
        index: "exact", or a setting of `ibidem index`.
        metak: Settings of the Meta-k Network.
        cluster: Settings of the clusters of keys.
        seed: Seed of the compactor, the Meta-k Network and the pruning; all seeds share extraction, clusters and
            indexes.
    """

    corpus: tuple[str, ...] = ()
    dev: str = ""
    k: int = 4
    compact: CompactSettings | None = None
    compact_corpus: tuple[str, ...] = ()
    prune: PruneSettings | None = None
    index: str = EXACT
    metak: MetaKSettings = field(default_factory=MetaKSettings)
    cluster: ClusterSettings = field(default_factory=lambda: ClusterSettings(seed=SHARED_SEED))
    seed: int = 1


class Parts(NamedTuple):
    """The memory that a system searches, and the tuned memory whose combiner it uses."""

    memory: Stage
    tuned: Tuned


BASE = System(seed=0)


def assemble(system: System) -> Parts | None:
    """Return the last stages of a system; None for the base model alone."""
    if not system.corpus:
        return None
    space = _space(system)
    searched = space if system.index == EXACT else Indexed(space, system.index)
    tuned = Tuned(searched, system.dev, system.k, replace(system.metak, seed=system.seed))
    if system.prune is None:
        return Parts(tuned, tuned)
    settings = replace(system.prune, seed=system.seed)
    neighbourhoods = Neighbourhoods(space, max(_NEIGHBOURS, count_graph_neighbours(system.k)))
    if settings.strategy == "redundant":  # it evaluates the tuned combiner on the neighbours of every entry
        pruned = Pruned(tuned, settings, neighbourhoods)
    else:
        pruned = Pruned(space, settings, neighbourhoods if settings.grouping == "consistent" else None)
    return Parts(pruned if system.index == EXACT else Indexed(pruned, system.index), tuned)


def compactor_of(system: System) -> Trained | None:
    """Return the compactor of a system; None for the model's own space."""
    if system.compact is None:
        return None
    # Compactors without random draws are the same for every seed.
    draws = system.compact.method == "network" or (system.compact.method == "pca" and system.compact.share < 1)
    settings = replace(system.compact, seed=system.seed if draws else 0)
    corpus = Extracted(system.compact_corpus or system.corpus)
    return Trained(Clustered(corpus, system.cluster) if settings.needs_clusters else corpus, settings)


def _space(system: System) -> Extracted | Clustered | Compacted:
    own = Extracted(system.corpus)
    compactor = compactor_of(system)
    spatial = system.prune is not None and system.prune.strategy == "spatial"
    shares = compactor is not None and compactor.memory.sources == (own,)
    keys = Clustered(own, system.cluster) if spatial or shares else own
    return keys if compactor is None else Compacted(keys, compactor)
