"""How often n-grams recur in a memory, and one that recurs often, with the costs by which pruning sees it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ibidem.learn import PAPER_SETTINGS, PruneEntries, cluster_costs, group_entries, prune_entries, translation_costs
from ibidem.memory import Memory
from ibidem.reproduce.rows.row import Measured
from ibidem.reproduce.stages import Extracted

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ibidem.learn import EntryGroups
    from ibidem.model import Tokens
    from ibidem.reproduce.bench import Workspace
    from ibidem.reproduce.stages import Stage

MOST_SHOWN = 120


@dataclass(frozen=True)
class Redundancy:
    """The n-grams of a memory, n = 1 … longest, and the example of a frequent bigram, pruned at a rate."""

    corpus: tuple[str, ...]
    longest: int = 4
    rate: float = 0.5

    alone: ClassVar[bool] = False
    seed: ClassVar[int] = 0
    texts: ClassVar[tuple[tuple[str, str], ...]] = ()

    @property
    def name(self) -> str:
        return f"n-grams of {'+'.join(self.corpus)}"

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (Extracted(self.corpus),)

    def expected(self, pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 10 + 5e-5 * pairs(self.corpus)

    def measure(self, bench: Workspace) -> Measured:
        memory = Memory.open(bench.folder(Extracted(self.corpus)))
        values, offsets, rows = memory.token_values(), memory.token_offsets(), memory.rows()
        grams = [group_entries(values, offsets, rows, n) for n in range(1, self.longest + 1)]
        figures: dict[str, Any] = {
            "entries": memory.entries,
            "ngrams": {str(n): describe_sizes(found.sizes) for n, found in enumerate(grams, start=1)},
        }
        # The authors' rounding: every cluster gives up the same share, and those of two give up nothing.
        settings = replace(PAPER_SETTINGS, rate=self.rate, groups="ngram", rule="floor")
        bigrams = grams[1]
        chosen = choose_bigram(bigrams, values, rows, bench.model.tokens)
        if chosen is None:
            return Measured(figures)
        assert settings.epsilon is not None
        costs = translation_costs(memory.token_log_probs(), offsets, settings.n)[rows]
        kept = prune_entries(PruneEntries(costs, values, offsets, rows), settings).kept
        members = bigrams.order[bigrams.bounds[chosen] : bigrams.bounds[chosen + 1]]
        clusters = number_clusters(cluster_costs(costs, bigrams, settings, settings.epsilon), len(costs))[members]
        tokens = bench.model.tokens
        row = int(rows[members[0]])
        figures["example"] = {
            "bigram": tokens.decode([int(values[row - 1]), int(values[row])]),
            "occurrences": len(members),
            "shown": min(len(members), MOST_SHOWN),
            "rate": self.rate,
        }
        shown = np.sort(np.random.default_rng(0).permutation(len(members))[:MOST_SHOWN])
        members = members[shown]
        return Measured(figures, {"costs": costs[members], "clusters": clusters[shown], "kept": kept[members]})


def describe_sizes(sizes: NDArray[np.int64]) -> dict[str, float]:
    """Distinct n-grams, their mean occurrences, and the share of entries whose n-gram occurs again."""
    entries = int(sizes.sum())
    return {
        "distinct": len(sizes),
        "mean_occurrences": entries / max(1, len(sizes)),
        "share_recurring": float(sizes[sizes > 1].sum() / max(1, entries)),
        "share_in_ten_or_more": float(sizes[sizes >= 10].sum() / max(1, entries)),
    }


def choose_bigram(
    bigrams: EntryGroups, values: NDArray[np.int32], rows: NDArray[np.int64], tokens: Tokens
) -> int | None:
    """The most frequent bigram of two whole words, letters only; None where there is none."""
    for part in np.argsort(-bigrams.sizes, kind="stable")[:2000].tolist():
        row = int(rows[bigrams.order[bigrams.bounds[part]]])
        if row == 0:
            continue
        words = tokens.decode([int(values[row - 1]), int(values[row])]).split(" ")
        alone = [tokens.decode([int(values[at])]) for at in (row - 1, row)]
        if len(words) == 2 and words == alone and all(word.isalpha() for word in words):
            return int(part)
    return None


def number_clusters(clusters: EntryGroups, entries: int) -> NDArray[np.int64]:
    """[entries] the number of the cluster that each entry is in."""
    numbers = np.empty(entries, np.int64)
    numbers[clusters.order] = clusters.numbers()
    return numbers
