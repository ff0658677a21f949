"""A system: what translates, in the words of the paper's tables, and the stages that it is made of."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ibidem.learn import ClusterSettings, CompactSettings, MetaKSettings, PruneSettings, count_needed
from ibidem.reproduce.stages import (
    SHARED_SEED,
    Clustered,
    Compacted,
    Extracted,
    Indexed,
    Pruned,
    Stage,
    Surrounded,
    Trained,
    Tuned,
)

EXACT = "exact"
# Neighbours of an entry that are found at once, for all k of the tables.
_SURROUNDED = 32


@dataclass(frozen=True)
class System:
    """The base model, alone or with a memory of a corpus and the adaptive combiner.

    corpus: the domains whose training text makes the memory; none: the base model alone.
    dev: the domain whose dev set the combiner is tuned on.
    compact: the space that is searched; None is the model's own. compact_corpus: what the compactor was trained on,
    where that is not the memory's own corpus.
    prune: what is left out after tuning (the paper's order). index: "exact", or a setting of `ibidem index`.
    seed: of the compactor, the Meta-k Network and the pruning; extraction, clusters and indexes are shared by all.
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
    """The memory that a system searches, and the tuned one whose combiner it uses."""

    memory: Stage
    tuned: Tuned


BASE = System(seed=0)


def assemble(system: System) -> Parts | None:
    """The last stages of a system; None for the base model alone."""
    if not system.corpus:
        return None
    space = _space(system)
    searched = space if system.index == EXACT else Indexed(space, system.index)
    tuned = Tuned(searched, system.dev, system.k, replace(system.metak, seed=system.seed))
    if system.prune is None:
        return Parts(tuned, tuned)
    settings = replace(system.prune, seed=system.seed)
    surroundings = Surrounded(space, max(_SURROUNDED, count_needed(system.k)))
    if settings.strategy == "covered":  # which the tuned combiner tells by the neighbours of every entry
        pruned = Pruned(tuned, settings, surroundings)
    else:
        pruned = Pruned(space, settings, surroundings if settings.grouping == "agreeing" else None)
    return Parts(pruned if system.index == EXACT else Indexed(pruned, system.index), tuned)


def compactor_of(system: System) -> Trained | None:
    """The compactor of a system, None for the model's own space."""
    if system.compact is None:
        return None
    # Rivals that draw nothing at random are the same for every seed.
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
