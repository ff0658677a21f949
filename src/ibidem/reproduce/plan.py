"""Plans: the domains, seeds and sizes of all tables; one for full runs, one for quick runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ibidem.learn import CompactSettings, MetaKSettings, PruneSettings
from ibidem.reproduce.fine_tuning import FineTuningSettings
from ibidem.reproduce.system import System

if TYPE_CHECKING:
    from ibidem.reproduce.data import Data

# The paper's Compact Network at its best: static pivots, NCE, triplets from clusters ([ST] CKMT+NCE+CL).
STAR = CompactSettings(pivots="static", objectives=(("nce", 1.0),), clusters=True)


@dataclass(frozen=True)
class Plan:
    """Declare what the tables measure.

    Args:
        seeds: Seeds of what is trained and pruned.
        domain: Domain of the paper's ablations.
        domains: Domains with a memory of their own.
        elsewhere: Test sets of other domains.
        large: Corpus of the large memory.
        large_test: Domain that the large memory is tuned and tested on.
        general: Corpus of G-CKMT*'s compactor.
        star: Compactor of CKMT*.
        metak: Settings of the Meta-k Network.
        indexes: Searches that `compact` and `domains` compare.
        shares: Shares of the entries in `limited-data`.
        rates: Pruning rates of `pruning-curve`.
        ks: Numbers of neighbours on the large memory.
        dimensions: Dimensions of `dimensions`.
        timed_batches: Number of batches that are timed.
        rounds: Number of times that each batch is timed.
        fine_tuning: Settings of full fine-tuning.
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
    indexes: tuple[str, ...] = ("exact", "paper")
    shares: tuple[float, ...] = (1.0, 0.8, 0.6, 0.4, 0.2, 0.01)
    rates: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    ks: tuple[int, ...] = (4, 8, 16)
    dimensions: tuple[int, ...] = (128, 64, 32, 16)
    timed_batches: int = 8
    rounds: int = 3
    fine_tuning: FineTuningSettings = field(default_factory=FineTuningSettings)
    points: int = 200
    smoke: bool = False

    def base(self) -> System:
        """Return the base model alone, which is the same for every seed."""
        return System(seed=0)

    def adaptive(self, domain: str, seed: int, **changes: object) -> System:
        """Return adaptive kNN-MT: a memory in the model's own space."""
        return replace(System((domain,), domain, metak=self.metak, seed=seed), **changes)  # type: ignore[arg-type]

    def ckmt(self, domain: str, seed: int, **changes: object) -> System:
        """Return CKMT*, with other fields of the system in `changes`."""
        return self.adaptive(domain, seed, **{"compact": self.star, **changes})

    def pruned(self, domain: str, seed: int, rate: float, strategy: str = "cost-clusters", **changes: object) -> System:
        """Return PCKMT*: CKMT* with a share of its entries pruned."""
        return self.ckmt(domain, seed, prune=PruneSettings(strategy=strategy, rate=rate), **changes)

    def on_large(self, system: System) -> System:
        """Return the same system with the large memory."""
        return replace(system, corpus=self.large, dev=self.large_test)


def full_plan(data: Data | None, seeds: tuple[int, ...] = ()) -> Plan:
    """Return the plan of full runs.

    Args:
        data: Texts; where they include Subtitles, that is the large memory, as in the paper.
        seeds: Further seeds.
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
        shares=(1.0, 0.2),
        rates=(0.3, 0.7),
        ks=(4, 8),
        dimensions=(32, 16),
        timed_batches=1,
        rounds=1,
        fine_tuning=FineTuningSettings(updates=6, warmup=2, judge_every=3),
        points=20,
        smoke=True,
    )
