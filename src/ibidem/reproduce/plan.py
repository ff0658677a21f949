"""Systems and plans: what a system is built from, and the domains, seeds and sizes of all tables."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from ibidem.learn import (
    AdaptSettings,
    ClusterSettings,
    CompactSettings,
    ContextualSettings,
    MetaKSettings,
    PruneSettings,
    count_graph_neighbours,
)
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
    from ibidem.reproduce.data import Data
    from ibidem.reproduce.workspace import Stage

EXACT = "exact"
# Neighbours of an entry that are searched at once, enough for every k of the tables.
_NEIGHBOURS = 32
# The paper's Compact Network at its best: static pivots, NCE, triplets from clusters ([ST] CKMT+NCE+CL).
STAR = CompactSettings(pivots="static", objectives=(("nce", 1.0),), clusters=True)
# Adapters of every linear layer; the learning rate is ten times that of all weights, as in short trials on a CPU.
LORA = AdaptSettings(lora_rank=16, learning_rate=4e-3)


@dataclass(frozen=True)
class System:
    """Declare the base model, alone or with a memory of a corpus and the adaptive combiner.

    Attributes:
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
    """The last stages of a system.

    Attributes:
        memory: Memory that the system searches.
        tuned: Tuned memory whose combiner it uses; the same as `memory` where nothing is pruned.
    """

    memory: Stage
    tuned: Tuned


BASE = System(seed=0)


def assemble(system: System) -> Parts | None:
    """Return the last stages of a system; None for the base model alone.

    Args:
        system: The system; equal systems give equal stages.
    """
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
    """Return the compactor of a system; None for the model's own space.

    Args:
        system: The system.

    Returns:
        The stage that trains the compactor; None where the system searches the model's own space.
    """
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


@dataclass(frozen=True)
class Plan:
    """Declare what the tables measure.

    Attributes:
        seeds: Seeds of what is trained and pruned.
        domain: Domain of the paper's ablations.
        domains: Domains with a memory of their own.
        elsewhere: Test sets of other domains.
        large: Corpus of the large memory.
        large_test: Domain that the large memory is tuned and tested on.
        general: Corpus of G-CKMT*'s compactor.
        star: Compactor of CKMT*.
        metak: Settings of the Meta-k Network.
        contextual: Settings of the contextual combiner.
        indexes: Searches that `compact` and `domains` compare.
        shares: Shares of the entries in `limited-data`.
        rates: Pruning rates of `pruning-curve`.
        ks: Numbers of neighbours on the large memory.
        dimensions: Dimensions of `dimensions`.
        timed_batches: Number of batches that are timed.
        rounds: Number of times that each batch is timed.
        fine_tuning: Settings of fine-tuning all weights.
        lora: Settings of fine-tuning with low-rank adapters.
        points: Entries of each token in `visualise`.
        smoke: Whether figures mean nothing.
    """

    seeds: tuple[int, ...] = (1, 2, 3)
    domain: str = "it"
    domains: tuple[str, ...] = ("it", "koran", "law", "medical", "games", "suttas")
    elsewhere: tuple[str, ...] = ("news", "medical")
    large: tuple[str, ...] = ("it", "it-large")
    large_test: str = "it"
    general: tuple[str, ...] = ("general",)
    star: CompactSettings = STAR
    metak: MetaKSettings = field(default_factory=MetaKSettings)
    contextual: ContextualSettings = field(default_factory=ContextualSettings)
    indexes: tuple[str, ...] = ("exact", "paper")
    shares: tuple[float, ...] = (1.0, 0.8, 0.6, 0.4, 0.2, 0.01)
    rates: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    ks: tuple[int, ...] = (4, 8, 16)
    dimensions: tuple[int, ...] = (128, 64, 32, 16)
    timed_batches: int = 8
    rounds: int = 3
    fine_tuning: AdaptSettings = field(default_factory=AdaptSettings)
    lora: AdaptSettings = LORA
    points: int = 200
    smoke: bool = False

    def base(self) -> System:
        """Return the base model alone, which is the same for every seed."""
        return System(seed=0)

    def adaptive(self, domain: str, seed: int, **changes: object) -> System:
        """Return adaptive kNN-MT: a memory in the model's own space.

        Args:
            domain: Domain of the memory and of its dev set.
            seed: Seed of what is trained.
            **changes: Other fields of the system.
        """
        return replace(System((domain,), domain, metak=self.metak, seed=seed), **changes)  # type: ignore[arg-type]

    def ckmt(self, domain: str, seed: int, **changes: object) -> System:
        """Return CKMT*: adaptive kNN-MT with the compactor of the plan.

        Args:
            domain: Domain of the memory and of its dev set.
            seed: Seed of what is trained.
            **changes: Other fields of the system.
        """
        return self.adaptive(domain, seed, **{"compact": self.star, **changes})

    def pruned(self, domain: str, seed: int, rate: float, strategy: str = "cost-clusters", **changes: object) -> System:
        """Return PCKMT*: CKMT* with a share of its entries pruned.

        Args:
            domain: Domain of the memory and of its dev set.
            seed: Seed of what is trained and pruned.
            rate: Share of the entries that is removed, from 0 to 1.
            strategy: Pruning strategy of `ibidem prune`.
            **changes: Other fields of the system.
        """
        return self.ckmt(domain, seed, prune=PruneSettings(strategy=strategy, rate=rate), **changes)

    def on_large(self, system: System) -> System:
        """Return the same system with the large memory.

        Args:
            system: System with a memory of its own domain.
        """
        return replace(system, corpus=self.large, dev=self.large_test)


def full_plan(data: Data | None, seeds: tuple[int, ...] = ()) -> Plan:
    """Return the plan of full runs.

    Args:
        data: Texts; where they include Subtitles, that is the large memory, as in the paper.
        seeds: Further seeds.

    Examples:
        >>> full_plan(None, seeds=(7,)).seeds
        (1, 2, 3, 7)
    """
    plan = Plan()
    plan = replace(plan, seeds=tuple(sorted({*plan.seeds, *seeds})))
    if data is not None and data.has("subtitles", "train") and data.has("subtitles", "test"):
        plan = replace(plan, large=("subtitles",), large_test="subtitles")
    return plan


def quick_plan() -> Plan:
    """Return the plan of quick runs: every table in minutes on a CPU, with figures that mean nothing."""
    star = replace(STAR, dimension=16, updates=40, validate_every=20, batch=64)
    return Plan(
        seeds=(1,),
        domains=("it", "koran"),
        elsewhere=("news",),
        star=star,
        metak=MetaKSettings(updates=100, validate_every=50, learning_rate=0.01),
        contextual=ContextualSettings(updates=50),
        shares=(1.0, 0.2),
        rates=(0.3, 0.7),
        ks=(4, 8),
        dimensions=(32, 16),
        timed_batches=1,
        rounds=1,
        fine_tuning=AdaptSettings(updates=6, batch_tokens=256, measurements=2),
        lora=replace(LORA, updates=6, batch_tokens=256, measurements=2),
        points=20,
        smoke=True,
    )
