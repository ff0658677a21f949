"""The row that projects entries of a memory to a plane by t-SNE, before and after the compactor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ibidem.memory import Memory
from ibidem.reproduce.rows import Measured
from ibidem.reproduce.rows.translation import name_system
from ibidem.reproduce.stages import Compacted, Extracted
from ibidem.reproduce.system import System, compactor_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ibidem.model import Tokens
    from ibidem.reproduce.workspace import Stage, Workspace

NEIGHBOURS = 10


@dataclass(frozen=True)
class TsneProjection:
    """Project entries of sampled tokens, and as many drawn from the whole memory.

    Args:
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
    """Draw tokens that are words of letters and occur often enough; the most frequent words where too few do."""
    sizes = np.bincount(values)
    frequent = np.argsort(-sizes, kind="stable")
    words = [token for token in frequent[sizes[frequent] > 1].tolist() if _is_word(token, tokens)]
    enough = [token for token in words if sizes[token] >= points]
    if len(enough) < count:
        return np.array(words[:count])
    return np.sort(random.choice(enough, count, replace=False))


def purity(keys: NDArray[np.float32], tokens: NDArray[np.int32]) -> float:
    """Return the share of nearest neighbours that have the token of their point, in the space of the keys."""
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
