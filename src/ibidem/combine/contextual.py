"""The contextual combiner: a network that sees more of each neighbour than its distance and its token.

Beside both it is given the base model's probability of the neighbour's token now and when the entry was stored, the
distance between the source sentences, and the base model's two highest probabilities (after Robust kNN-MT, Jiang et al.
2022, and source context, 2023). One softmax over the base model and the neighbours gives all weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from ibidem.combine.mixture import Weights, first_occurrences, present, same_values
from ibidem.errors import UsageError
from ibidem.native import best_of_mixture, native, runs_triton

if TYPE_CHECKING:
    from collections.abc import Callable

FEATURES = 12
"""Features of each neighbour."""
ROW_FEATURES = 4
"""Features of the base model's distribution."""
# A missing or very far neighbour counts as this many typical distances; a token is at least this probable.
FAR = 10.0
LEAST_LOG_PROB = -12.0
# Log-probabilities are divided by this, so that all features are of similar size.
LOG_UNIT = 4.0
# The temperature of untrained weights, in typical distances.
TEMPERATURE = 0.15
# The length of stored source vectors, in int8.
VECTOR_LENGTH = 127.0


class NeighbourContext(NamedTuple):
    """What is known about the neighbours of r rows beside their distances and tokens.

    Attributes:
        base_log_probs: The base model's log-probability of each neighbour's token at this step, [r, K].
        stored_log_probs: The base model's log-probability of the token when the entry was stored, [r, K].
        source_distances: 1 - cosine between the source that is translated and that of each neighbour, [r, K].
        top_log_probs: The two highest log-probabilities of the base model among tokens that it may choose, [r, 2].
    """

    base_log_probs: Tensor
    stored_log_probs: Tensor
    source_distances: Tensor
    top_log_probs: Tensor


class ContextualNetwork(nn.Module):
    """Computes the scores of the base model and of K neighbours from their features.

    h = tanh(A [features of all neighbours; features of the row]), the score of the base model is linear in h, and the
    score of neighbour j is linear in tanh(B features_j + C h), minus its distance over a temperature that depends on h.

    Args:
        k: The number of neighbours.
        scale: A typical squared distance of the key space; distances are divided by it.
        hidden: The width of h.
        neighbour_hidden: The width of the layer of each neighbour.
    """

    scale: Tensor

    def __init__(self, k: int, scale: float, hidden: int = 64, neighbour_hidden: int = 32) -> None:
        super().__init__()
        if k < 1:
            raise UsageError(f"The contextual combiner needs k of at least 1, not {k}.")
        self.k = k
        self.register_buffer("scale", torch.tensor(float(scale)))
        self.row = nn.Linear(k * FEATURES + ROW_FEATURES, hidden)
        self.base = nn.Linear(hidden, 1)
        self.temperature = nn.Linear(hidden, 1)
        self.neighbour = nn.Linear(FEATURES, neighbour_hidden)
        self.context = nn.Linear(hidden, neighbour_hidden, bias=False)
        self.score = nn.Linear(neighbour_hidden, 1)
        for layer in (self.base, self.temperature, self.score):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        nn.init.ones_(self.base.bias)

    def features(self, distances: Tensor, values: Tensor, context: NeighbourContext) -> tuple[Tensor, Tensor]:
        """Compute the features of neighbours and rows.

        Args:
            distances: Squared distances, ascending, [r, K]; infinite for an absent neighbour.
            values: Token ids, [r, K].
            context: The rest that is known about them.

        Returns:
            Features of the neighbours [r, K, FEATURES] and of the rows [r, ROW_FEATURES].
        """
        near = (distances / self.scale).nan_to_num(nan=FAR, posinf=FAR, neginf=FAR).clamp(max=FAR)
        there = present(distances)
        # An absent neighbour is improbable and far in every respect, whatever value it was given.
        now, stored = (
            torch.where(there, log_probs, LEAST_LOG_PROB).clamp(LEAST_LOG_PROB, 0.0)
            for log_probs in (context.base_log_probs, context.stored_log_probs)
        )
        apart = torch.where(there, context.source_distances, 1.0)
        top = context.top_log_probs.clamp(LEAST_LOG_PROB, 0.0)
        width = values.shape[1]
        rank = torch.arange(width, device=values.device, dtype=near.dtype) / width
        of_neighbours = [
            near,
            near - near[:, :1],
            now / LOG_UNIT,
            stored / LOG_UNIT,
            now.exp(),
            stored.exp(),
            (now - top[:, :1]) / LOG_UNIT,
            apart,
            apart - apart.amin(dim=1, keepdim=True),
            same_values(values).to(near.dtype).mean(dim=2),
            rank.expand_as(near),
            first_occurrences(values).to(near.dtype),
        ]
        return torch.stack(of_neighbours, dim=2), torch.cat([top.exp(), top / LOG_UNIT], dim=1)

    def forward(self, features: Tensor, row_features: Tensor) -> Tensor:
        """Compute the scores of base model and neighbours.

        Args:
            features: Features of the neighbours, [r, K, FEATURES].
            row_features: Features of the rows, [r, ROW_FEATURES].

        Returns:
            Scores [r, 1 + K], the base model first; a softmax makes weights of them.
        """
        hidden = torch.tanh(self.row(torch.cat([features.flatten(1), row_features], dim=1)))
        inner = torch.tanh(self.neighbour(features) + self.context(hidden)[:, None])
        decay = features[:, :, 1] / TEMPERATURE * self.temperature(hidden).exp()
        return torch.cat([self.base(hidden), self.score(inner).squeeze(2) - decay], dim=1)


@dataclass(frozen=True)
class ContextualCombiner:
    """Weights neighbours with a trained network that sees their context; see `ContextualNetwork`.

    Args:
        network: The trained network.
    """

    network: ContextualNetwork
    needs_context: ClassVar[bool] = True

    @property
    def k(self) -> int:
        return self.network.k

    def weigh(self, distances: Tensor, values: Tensor, context: NeighbourContext | None = None) -> Weights:
        if context is None:
            raise UsageError(
                "The contextual combiner needs the base model's logits and the source of each row; give a context."
            )
        if _fits_kernels(distances):
            from ibidem.combine import contextual_kernels

            constants = FAR, LEAST_LOG_PROB, LOG_UNIT, TEMPERATURE
            return contextual_kernels.weigh_contextual(distances, values, context, self.network, *constants)
        return self.weigh_in_torch(distances, values, context)

    def weigh_in_torch(self, distances: Tensor, values: Tensor, context: NeighbourContext) -> Weights:
        """Compute `weigh` with torch on any device, also for training.

        Args:
            distances: Squared distances of the neighbours, ascending, [r, K]; infinite for an absent neighbour.
            values: Token ids of the neighbours, [r, K].
            context: The rest that is known about them.

        Returns:
            Weights [r] and [r, K].
        """
        scores = self.network(*self.network.features(distances, values, context))
        there = present(distances)
        scores = torch.cat([scores[:, :1], scores[:, 1:].masked_fill(~there, -torch.inf)], dim=1)
        weights = scores.softmax(dim=1)
        return Weights(weights[:, 0].clamp_min(1e-12), weights[:, 1:])


class DeviceSourceProjection(NamedTuple):
    """A `memory.SourceProjection` on the device of the search, for the sources that are translated.

    Attributes:
        mean: What is subtracted first, [d].
        matrix: The projection, [d, m].
    """

    mean: Tensor
    matrix: Tensor

    def vectors(self, means: Tensor) -> Tensor:
        """Compute the vectors [n, m], of length 1, of sources with these mean encoder states [n, d]."""
        return nn.functional.normalize((means.float() - self.mean) @ self.matrix, dim=1)


@dataclass(frozen=True)
class EntryTable:
    """What a memory stores about its n entries, on the device where they are searched.

    Attributes:
        values: The token id of each entry, [n].
        log_probs: The base model's log-probability of the token when it was stored, [n]; None, as all below, where no
            combiner needs it.
        sentences: The sentence of each entry, [n], a row of `source_vectors`.
        source_vectors: The vector of each source, int8 [sentences, m], of length 127.
        projection: What made these vectors.
    """

    values: Tensor
    log_probs: Tensor | None = None
    sentences: Tensor | None = None
    source_vectors: Tensor | None = None
    projection: DeviceSourceProjection | None = None

    def __len__(self) -> int:
        return len(self.values)


class Sources:
    """The sources of a batch, and their vectors by each projection, computed once.

    Args:
        means: The mean encoder state of each source, [n, d].
    """

    def __init__(self, means: Tensor) -> None:
        self.means = means
        self._vectors: dict[int, tuple[DeviceSourceProjection, Tensor]] = {}

    def vectors(self, projection: DeviceSourceProjection) -> Tensor:
        """Return the vectors of all sources by a projection, [n, m]."""
        known = self._vectors.get(id(projection))
        if known is None or known[0] is not projection:
            known = self._vectors[id(projection)] = (projection, projection.vectors(self.means).contiguous())
        return known[1]


class StepContext:
    """A decoding step, for combiners that need more than neighbours.

    Args:
        logits: The logits of the base model [r, V], or a function that returns them.
        sources: The sources of the batch.
        rows: The source of each row, [r].
        banned: Tokens that the model must not choose, [b]; None for none.
    """

    def __init__(
        self, logits: Tensor | Callable[[], Tensor], sources: Sources, rows: Tensor, banned: Tensor | None = None
    ) -> None:
        self._given = logits
        self.sources = sources
        self.rows = rows
        self._banned = banned

    @cached_property
    def logits(self) -> Tensor:
        """The logits of the base model, [r, V]."""
        return self._given if isinstance(self._given, Tensor) else self._given()

    @cached_property
    def log_probs(self) -> Tensor:
        """The log-probabilities of the base model, [r, V]."""
        return self.logits.float().log_softmax(dim=1)

    @cached_property
    def _ranked(self) -> tuple[Tensor, Tensor] | None:
        """`top_log_probs`, and the log-sum-exp of each row [r]; None where native code cannot compute them.

        `log_probs` has a number for each token of the vocabulary, which takes most of the time of a step.
        """
        logits = self.logits
        plain = logits.is_cpu and logits.dtype == torch.float32 and not logits.requires_grad
        if native() is None or not plain or "log_probs" in self.__dict__:
            return None
        banned = () if self._banned is None else tuple(self._banned.tolist())
        if logits.shape[1] - len(banned) < 2:
            return None
        normalisers = torch.empty(len(logits), dtype=torch.float32)
        return best_of_mixture(logits, 2, banned=banned, normalisers=normalisers).scores, normalisers

    @cached_property
    def top_log_probs(self) -> Tensor:
        """The two highest log-probabilities among tokens that are not banned, [r, 2]."""
        if self._ranked is not None:
            return self._ranked[0]
        allowed = self.log_probs if self._banned is None else self.log_probs.index_fill(1, self._banned, -torch.inf)
        return allowed.topk(2, dim=1).values

    def log_probs_of(self, tokens: Tensor) -> Tensor:
        """Return the log-probabilities of the base model of some tokens.

        Args:
            tokens: Token ids, [r, K].

        Returns:
            [r, K].
        """
        if self._ranked is not None:
            return self.logits.gather(1, tokens) - self._ranked[1][:, None]
        return self.log_probs.gather(1, tokens)

    def of(self, table: EntryTable, entries: Tensor, values: Tensor) -> NeighbourContext:
        """Collect what is known about neighbours.

        Args:
            table: The entries of the memory.
            entries: The neighbours' entries, [r, K]; -1 for an absent one.
            values: Their tokens, [r, K].

        Raises:
            UsageError: If the table has no source vectors.
        """
        if table.log_probs is None or table.sentences is None or table.source_vectors is None:
            raise UsageError("The contextual combiner needs a memory with source vectors: learn it again.")
        assert table.projection is not None
        if _fits_kernels(entries):
            from ibidem.combine import contextual_kernels

            return NeighbourContext(
                *contextual_kernels.know_neighbours(
                    *(self.logits, self._banned, values, entries, table.log_probs, table.sentences),
                    *(table.source_vectors, self.sources.vectors(table.projection), self.rows, VECTOR_LENGTH),
                )
            )
        return self.of_in_torch(table, entries, values)

    def of_in_torch(self, table: EntryTable, entries: Tensor, values: Tensor) -> NeighbourContext:
        """Compute `of` with torch on any device.

        Args:
            table: The entries of a memory with source vectors.
            entries: The neighbours' entries, [r, K]; -1 for an absent one.
            values: Their tokens, [r, K].
        """
        assert table.log_probs is not None
        assert table.sentences is not None
        assert table.source_vectors is not None
        assert table.projection is not None
        known = entries.clamp_min(0)
        mine = self.sources.vectors(table.projection)[self.rows]
        theirs = table.source_vectors[table.sentences[known].long()].to(mine.dtype)
        cosine = torch.einsum("rm,rkm->rk", mine, theirs) / VECTOR_LENGTH
        return NeighbourContext(
            self.log_probs_of(values), table.log_probs[known].float(), 1 - cosine, self.top_log_probs
        )


def _fits_kernels(neighbours: Tensor) -> bool:
    """Return whether the Triton kernels can be used for these neighbours [r, K]."""
    if not runs_triton(neighbours) or torch.is_grad_enabled():
        return False
    from ibidem.combine import contextual_kernels

    return 0 < neighbours.shape[1] <= contextual_kernels.MOST
