"""Rows that describe a text, a model or a memory: sizes, parameters, n-grams, and a t-SNE projection of entries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ibidem.combine import MetaK
from ibidem.compact import NetworkCompactor
from ibidem.learn import PAPER_SETTINGS, PruneEntries, cluster_costs, group_entries, prune_entries, translation_costs
from ibidem.memory import Memory
from ibidem.reproduce.plan import System, compactor_of
from ibidem.reproduce.rows import Measured
from ibidem.reproduce.rows.translation import name_system
from ibidem.reproduce.stages import Compacted, Extracted

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import nn

    from ibidem.learn import CompactSettings, EntryGroups, MetaKSettings
    from ibidem.model import Tokens
    from ibidem.reproduce.workspace import Stage, Workspace

_BLOCK = 4096
MOST_SHOWN = 120
NEIGHBOURS = 10


@dataclass(frozen=True)
class Statistics:
    """Count the sentence pairs, target tokens and target words of one part of a domain.

    Attributes:
        domain: Domain of the text.
        part: "train", "dev" or "test".
    """

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

    Attributes:
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
    """Count the parameters of a module; those that several layers share count once.

    Args:
        module: A torch module.
    """
    return sum(parameter.numel() for parameter in module.parameters())


@dataclass(frozen=True)
class Redundancy:
    """Count the n-grams of a memory, and prune a frequent bigram as an example.

    Attributes:
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
    """Describe how often n-grams recur in a memory.

    Args:
        sizes: Number of entries of each distinct n-gram, [n-grams].

    Returns:
        Distinct n-grams, their mean occurrences, and the shares of entries whose n-gram occurs at least 2 and 10 times.
    """
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
    """Return the most frequent bigram of two whole words of letters; None where there is none.

    Args:
        bigrams: Entries grouped by their token and the one before it.
        values: Token at each position of the training text.
        rows: Position of each entry in that text.
        tokens: Decodes token ids.

    Returns:
        Number of the group.
    """
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
    """Return the number of each entry's cluster, [entries].

    Args:
        clusters: Entries grouped by cluster; every entry is in one group.
        entries: Number of entries.
    """
    numbers = np.empty(entries, np.int64)
    numbers[clusters.order] = clusters.numbers()
    return numbers


@dataclass(frozen=True)
class TsneProjection:
    """Project entries of sampled tokens, and as many drawn from the whole memory.

    Attributes:
        system: System with a compactor.
        tokens: Number of sampled tokens.
        points: Entries of each token.
        perplexity: Perplexity of t-SNE.
    """

    system: System
    tokens: int = 10
    points: int = 200
    perplexity: float = 30.0

    alone: ClassVar[bool] = False
    library: ClassVar[str | None] = "sklearn"
    texts: ClassVar[tuple[tuple[str, str], ...]] = ()

    @property
    def name(self) -> str:
        return f"t-SNE of {name_system(self.system)}"

    @property
    def seed(self) -> int:
        return self.system.seed

    @property
    def stages(self) -> tuple[Stage, ...]:
        compactor = compactor_of(self.system)
        assert compactor is not None  # the projection is of a compact space
        return (Compacted(compactor.memory, compactor), Extracted(self.system.corpus))

    def estimate_seconds(self, _count_pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 60

    def measure(self, workspace: Workspace) -> Measured:
        compact, full = (Memory.open(workspace.folder(stage)) for stage in self.stages)
        values, random = full.values(), np.random.default_rng(self.seed)
        chosen = sample_tokens(values, self.tokens, self.points, workspace.model.tokens, random)
        entries = np.concatenate([_sample(values == token, self.points, random) for token in chosen])
        whole = np.sort(random.choice(len(values), min(len(values), self.tokens * self.points), replace=False))
        frequencies = np.bincount(values)
        before = full.keys.gather(entries).astype(np.float32)
        after = compact.search_keys.gather(entries).astype(np.float32)
        arrays = {
            "tokens": values[entries],
            "before": self._project(before),
            "after": self._project(after),
            "whole": self._project(full.keys.gather(whole).astype(np.float32)),
            "frequencies": frequencies[values[whole]],
        }
        figures = {
            "tokens": {str(token): workspace.model.tokens.decode([int(token)]) for token in chosen},
            "points": len(entries),
            "neighbours": NEIGHBOURS,
            "purity_before": purity(before, values[entries]),
            "purity_after": purity(after, values[entries]),
        }
        return Measured(figures, arrays)

    def _project(self, keys: NDArray[np.float32]) -> NDArray[np.float32]:
        """Project keys [n, dimension] to [n, 2]."""
        from sklearn.manifold import TSNE

        perplexity = min(self.perplexity, (len(keys) - 1) / 3)
        tsne = TSNE(perplexity=perplexity, init="pca", random_state=self.seed)
        return np.asarray(tsne.fit_transform(keys), np.float32)


def sample_tokens(
    values: NDArray[np.int32], count: int, points: int, tokens: Tokens, random: np.random.Generator
) -> NDArray[np.int64]:
    """Draw tokens that are words of letters and occur often enough; the most frequent words where too few do.

    Args:
        values: Token of each entry, [entries].
        count: Number of tokens to draw.
        points: Entries that a token must have.
        tokens: Decodes token ids.
        random: Source of the draw.

    Returns:
        At most `count` tokens.
    """
    sizes = np.bincount(values)
    frequent = np.argsort(-sizes, kind="stable")
    words = [token for token in frequent[sizes[frequent] > 1].tolist() if _is_word(token, tokens)]
    enough = [token for token in words if sizes[token] >= points]
    if len(enough) < count:
        return np.array(words[:count])
    return np.sort(random.choice(enough, count, replace=False))


def purity(keys: NDArray[np.float32], tokens: NDArray[np.int32]) -> float:
    """Return the share of nearest neighbours that have the token of their point, in the space of the keys.

    Args:
        keys: [n, dimension], n at least 2.
        tokens: Token of each key, [n].

    Returns:
        From 0 to 1; at most NEIGHBOURS neighbours of each key count.
    """
    from sklearn.neighbors import NearestNeighbors

    count = min(NEIGHBOURS, len(keys) - 1)
    found = NearestNeighbors(n_neighbors=count + 1).fit(keys).kneighbors(return_distance=False, n_neighbors=count)
    return float((tokens[found] == tokens[:, None]).mean())


def _is_word(token: int, tokens: Tokens) -> bool:
    """Return whether a token begins a word, so that two of them are two words, and has letters only."""
    text = tokens.decode([token])
    return len(text) > 1 and text.isalpha() and tokens.decode([token, token]) == f"{text} {text}"


def _sample(wanted: NDArray[np.bool_], count: int, random: np.random.Generator) -> NDArray[np.int64]:
    places = np.flatnonzero(wanted)
    return np.sort(random.choice(places, min(count, len(places)), replace=False))
