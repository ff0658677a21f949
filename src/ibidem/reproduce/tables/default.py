"""The table of the default configuration, which is not in the paper."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ibidem.learn import PruneSettings
from ibidem.reproduce.grid import Cell, Grid, lay_out_grid
from ibidem.reproduce.rows.translation import DefaultTranslation, Translation
from ibidem.reproduce.stages import DefaultMemory
from ibidem.reproduce.tables import grid_table
from ibidem.reproduce.tables.quality import ADAPTIVE, DEFAULT, NMT

if TYPE_CHECKING:
    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Results

FIXED_ENTRIES, ADAPTIVE_ENTRIES = "fixed, default memory", "adaptive, default memory"
PRUNED = "default memory, 30 % pruned"
DEFAULT_PAIRS = (
    (NMT, DEFAULT),
    *((label, DEFAULT) for label in (ADAPTIVE, FIXED_ENTRIES, ADAPTIVE_ENTRIES)),
    (DEFAULT, PRUNED),
)
PRUNING = PruneSettings("redundant", rate=0.3)


class DefaultColumn(NamedTuple):
    """A memory of the defaults, and the text that it translates.

    Attributes:
        corpus: Domains of the memory.
        dev: Domain of the dev set.
        test: Domain of the test set.
    """

    corpus: tuple[str, ...]
    dev: str
    test: str

    @property
    def label(self) -> str:
        """Return the heading of the column: the test set, and the memory where it is another one."""
        corpus = "+".join(self.corpus)
        return self.test if corpus == self.test else f"{self.test} ({corpus})"


def default_columns(plan: Plan) -> list[DefaultColumn]:
    """Return the domains with their own memories, the large memory, and other text with the memory of one domain.

    Args:
        plan: Gives the domains.
    """
    own = [DefaultColumn((domain,), domain, domain) for domain in plan.domains]
    foreign = [DefaultColumn((plan.domain,), plan.domain, test) for test in plan.elsewhere]
    return [*own, DefaultColumn(plan.large, plan.large_test, plan.large_test), *foreign]


def build_default(plan: Plan) -> Grid:
    """Return the default memory beside the base model, adaptive kNN-MT in the full space, and its other combiners.

    Args:
        plan: Gives the domains and seeds.
    """
    columns = default_columns(plan)

    def cell(label: str, column: DefaultColumn) -> Cell:
        memory = DefaultMemory(column.corpus, column.dev, None, plan.metak, plan.contextual)
        seeded = [replace(memory, seed=seed) for seed in plan.seeds]
        if label == NMT:
            return Cell((Translation(plan.base(), column.test),))
        if label == ADAPTIVE:
            systems = [plan.adaptive(column.dev, seed, corpus=column.corpus) for seed in plan.seeds]
            return Cell(tuple(Translation(system, column.test) for system in systems))
        if label == FIXED_ENTRIES:
            return Cell((DefaultTranslation(memory, column.test, "fixed"),))
        if label == ADAPTIVE_ENTRIES:
            return Cell(tuple(DefaultTranslation(found, column.test, "adaptive") for found in seeded))
        if label == PRUNED:
            seeded = [replace(found, prune=PRUNING) for found in seeded]
        return Cell(tuple(DefaultTranslation(found, column.test) for found in seeded))

    labels = (NMT, ADAPTIVE, FIXED_ENTRIES, ADAPTIVE_ENTRIES, DEFAULT, PRUNED)
    own = {column.label for column in columns if column.corpus == (column.test,)}
    pruned = {column.label for column in columns if column.test == plan.large_test}
    lines = {
        label: {
            column.label: cell(label, column)
            for column in columns
            if (label != PRUNED or column.label in pruned)
            and (label not in (FIXED_ENTRIES, ADAPTIVE_ENTRIES) or column.label in own)
        }
        for label in labels
    }
    return Grid(tuple(column.label for column in columns), lines, DEFAULT_PAIRS)


def _lay_out_default(plan: Plan, results: Results) -> str:
    note = (
        "The default memory is that of `ibidem learn` with a dev set: general compactor (96 dimensions, int8), "
        "contextual combiner, 8 neighbours. Fixed and adaptive are the other combiners of the same memory; fixed is "
        "chosen by the BLEU of 500 dev lines, all others by likelihood. Adaptive kNN-MT searches the model's own space "
        "of 512 dimensions with 4 neighbours. Pruned: the strategy redundant, the default. Whole lines are translated "
        "(`--no-split`), since all other tables do so; the decoding is that of the paper."
    )
    return f"{lay_out_grid(build_default(plan), results)}\n\n{note}"


BY_NAME = {
    "default": grid_table(
        "default",
        "The default memory by domain, on a larger memory, on other text, and pruned (BLEU, exact search)",
        build_default,
        _lay_out_default,
    ),
}
