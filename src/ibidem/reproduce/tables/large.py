"""The systems with the large memory, which the tables of quality and of speed share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ibidem.reproduce import paper
from ibidem.reproduce.rows.timing import Timing

if TYPE_CHECKING:
    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Results
    from ibidem.reproduce.system import System

BASE, ADAPTIVE, CKMT, PCKMT = "base NMT", "adaptive", "CKMT*", "PCKMT*"


class Variant(NamedTuple):
    """A memory of the large corpus: adaptive, CKMT* or PCKMT* with its k and pruning rate."""

    kind: str
    k: int
    rate: float = 0.0

    @property
    def label(self) -> str:
        """What it is called in tables."""
        pruned = f", {self.rate * 100:g} % pruned" if self.rate else ""
        return f"{self.kind}, k = {self.k}{pruned}"

    def system(self, plan: Plan, seed: int) -> System:
        """Its system."""
        domain = plan.large_test
        if self.kind == ADAPTIVE:
            return plan.on_large(plan.adaptive(domain, seed, k=self.k))
        if self.kind == CKMT:
            return plan.on_large(plan.ckmt(domain, seed, k=self.k))
        return plan.on_large(plan.pruned(domain, seed, self.rate, k=self.k))


def variants(plan: Plan) -> list[Variant]:
    """For every k adaptive kNN-MT, CKMT*, and PCKMT* at the rates of the paper's two tables."""
    found = []
    for k in sorted(plan.ks, reverse=True):
        rates = sorted({paper.LATENCY_RATES[k], optimal_rate(k)})
        found += [Variant(ADAPTIVE, k), Variant(CKMT, k), *(Variant(PCKMT, k, rate) for rate in rates)]
    return found


def optimal_rate(k: int) -> float:
    """The pruning rate at which the paper's PCKMT* was best."""
    return paper.OPTIMAL[PCKMT, k][4]


def timing(plan: Plan, batch: int) -> Timing:
    """All systems in turn, the base model first."""
    systems = (plan.base(), *(variant.system(plan, plan.seeds[0]) for variant in variants(plan)))
    return Timing(systems, plan.large_test, batch, plan.timed_batches, plan.rounds)


def speeds(plan: Plan, results: Results, batch: int) -> dict[str, dict[str, Any]]:
    """What was measured of each system, by label; nothing where it was not."""
    found = results.find(timing(plan, batch))
    labels = [BASE, *(variant.label for variant in variants(plan))]
    return {} if found is None else dict(zip(labels, found["speeds"], strict=True))
