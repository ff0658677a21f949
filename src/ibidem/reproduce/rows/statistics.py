"""Rows that count: the size of a text, the parameters of a model, the n-grams of a memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ibidem.combine import MetaK
from ibidem.compact import NetworkCompactor
from ibidem.learn import PAPER_SETTINGS, PruneEntries, cluster_costs, group_entries, prune_entries, translation_costs
from ibidem.memory import Memory
from ibidem.reproduce.rows import Measured
from ibidem.reproduce.stages import Extracted

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import nn

    from ibidem.learn import CompactSettings, EntryGroups, MetaKSettings
    from ibidem.model import Tokens
    from ibidem.reproduce.workspace import Stage, Workspace

_BLOCK = 4096
MOST_SHOWN = 120


@dataclass(frozen=True)
class Statistics:
    """Count the sentence pairs, target tokens and target words of one part of a domain."""

    domain: str
    part: str

    alone: ClassVar[bool] = False
    library: ClassVar[str | None] = None
    seed: ClassVar[int] = 0
    stages: ClassVar[tuple[Stage, ...]] = ()

    @property
    def name(self) -> str:
        return f"{self.domain}/{self.part} counted"

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        return ((self.domain, self.part),)

    def estimate_seconds(self, count_pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 5 + (1e-4 * count_pairs((self.domain,)) if self.part == "train" else 0)

    def measure(self, workspace: Workspace) -> Measured:
        tokens, pairs, words = 0, 0, 0
        stream = iter(workspace.corpus(self.domain, self.part))
        while block := list(islice(stream, _BLOCK)):
            targets = [pair.target for pair in block]
            tokens += sum(map(len, workspace.model.tokens.encode_targets(targets)))
            words += sum(len(target.split()) for target in targets)
            pairs += len(block)
        return Measured({"pairs": pairs, "target_tokens": tokens, "target_words": words})


@dataclass(frozen=True)
class ParameterCount:
    """Count the parameters of the base model, a Meta-k Network and a Compact Network.

    Args:
        k: Number of neighbours of the Meta-k Network.
        compact: Settings of the Compact Network.
        metak: Settings of the Meta-k Network.
    """

    k: int
    compact: CompactSettings
    metak: MetaKSettings

    alone: ClassVar[bool] = False
    library: ClassVar[str | None] = None
    seed: ClassVar[int] = 0
    name: ClassVar[str] = "parameters counted"
    stages: ClassVar[tuple[Stage, ...]] = ()
    texts: ClassVar[tuple[tuple[str, str], ...]] = ()

    def estimate_seconds(self, _count_pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 5

    def measure(self, workspace: Workspace) -> Measured:
        dimension = workspace.model.dimension
        hidden = self.compact.hidden_size(dimension)
        network = NetworkCompactor(dimension, hidden, self.compact.dimension, self.compact.activation)
        return Measured(
            {
                "base": count_parameters(workspace.model.network),
                "metak": count_parameters(MetaK(self.k, 1.0, self.metak.hidden)),
                "compactor": count_parameters(network),
            }
        )


def count_parameters(module: nn.Module) -> int:
    """Count the parameters of a module; those that several layers share count once."""
    return sum(parameter.numel() for parameter in module.parameters())


@dataclass(frozen=True)
class Redundancy:
    """Count the n-grams of a memory, and prune a frequent bigram as an example.

    Args:
        corpus: Domains of the memory.
        longest: Length of the longest n-gram.
        rate: Pruning rate of the example.
    """

    corpus: tuple[str, ...]
    longest: int = 4
    rate: float = 0.5

    alone: ClassVar[bool] = False
    library: ClassVar[str | None] = None
    seed: ClassVar[int] = 0
    texts: ClassVar[tuple[tuple[str, str], ...]] = ()

    @property
    def name(self) -> str:
        return f"n-grams of {'+'.join(self.corpus)}"

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (Extracted(self.corpus),)

    def estimate_seconds(self, count_pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 10 + 5e-5 * count_pairs(self.corpus)

    def measure(self, workspace: Workspace) -> Measured:
        memory = Memory.open(workspace.folder(Extracted(self.corpus)))
        values, offsets, rows = memory.token_values(), memory.token_offsets(), memory.rows()
        grams = [group_entries(values, offsets, rows, n) for n in range(1, self.longest + 1)]
        figures: dict[str, Any] = {
            "entries": memory.entries,
            "ngrams": {str(n): describe_sizes(found.sizes) for n, found in enumerate(grams, start=1)},
        }
        # The authors' rounding: every cluster loses the same share, and a cluster of two loses nothing.
        settings = replace(PAPER_SETTINGS, rate=self.rate, groups="ngram", rule="floor")
        bigrams = grams[1]
        chosen = choose_bigram(bigrams, values, rows, workspace.model.tokens)
        if chosen is None:
            return Measured(figures)
        assert settings.epsilon is not None
        costs = translation_costs(memory.token_log_probs(), offsets, settings.n)[rows]
        kept = prune_entries(PruneEntries(costs, values, offsets, rows), settings).kept
        members = bigrams.order[bigrams.bounds[chosen] : bigrams.bounds[chosen + 1]]
        clusters = number_clusters(cluster_costs(costs, bigrams, settings, settings.epsilon), len(costs))[members]
        tokens = workspace.model.tokens
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
    """Return distinct n-grams, their mean occurrences, and the share of entries whose n-gram occurs again."""
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
    """Return the most frequent bigram of two whole words of letters; None where there is none."""
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
    """Return the number of each entry's cluster, [entries]."""
    numbers = np.empty(entries, np.int64)
    numbers[clusters.order] = clusters.numbers()
    return numbers
