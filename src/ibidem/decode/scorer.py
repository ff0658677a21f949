"""Who decides on the next token: the base model alone, or the neighbours of its state in memories with it."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor

from ibidem.combine import Combiner, Weights, average_weights, overlay_weights
from ibidem.decode.values import values_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.memory import Memory
    from ibidem.retrieve import Index


class Retrieved(NamedTuple):
    """Who was asked about the next tokens of r rows, and what weight the answers have.

    distances, entries (-1: none) and values [r, K] of the neighbours; the weights of the base model and of each
    neighbour; sources [K], the number of the memory that each column's neighbours are of.
    """

    distances: Tensor
    entries: Tensor
    values: Tensor
    weights: Weights
    sources: Tensor


class Scorer(Protocol):
    """Decides on the next token."""

    @property
    def memories(self) -> Sequence[Memory | None]:
        """The memories that the sources of votes number; None for one that lies in no folder."""
        ...

    @property
    def supports_cuda_graph(self) -> bool:
        """Whether consulting can be recorded in a CUDA graph."""
        ...

    def retrieve(self, states: Tensor, group_size: int = 1) -> Retrieved:
        """Who votes on the token after each of these states [r, d], and with what weight.

        A state of no numbers has no neighbours. together: so many states in turn are of one sentence; where they are
        nearly the same, one search may serve them.
        """
        ...


class BaseScorer:
    """The base model's own distribution."""

    memories: Sequence[Memory | None] = ()
    supports_cuda_graph = True

    def retrieve(self, states: Tensor, group_size: int = 1) -> Retrieved:  # noqa: ARG002 - of the protocol
        return no_neighbours(states)


class MemoryScorer:
    """The base model's distribution mixed with the votes of the nearest entries.

    `memory` is the generation that the entries of the index belong to, where they can be looked up in one.
    """

    def __init__(self, index: Index, values: Tensor, combiner: Combiner, memory: Memory | None = None) -> None:
        self.index = index
        self.memories: Sequence[Memory | None] = (memory,)
        self.supports_cuda_graph = index.supports_cuda_graph
        self.values = values
        self.combiner = combiner

    def retrieve(self, states: Tensor, group_size: int = 1) -> Retrieved:  # noqa: ARG002 - every state is searched for
        if self.index.size == 0 or len(self.values) == 0:  # an index may outlive its last entry, hidden in it
            return no_neighbours(states)
        distances, entries = self.index.search(states, self.combiner.k)
        values = values_of(self.values, entries)
        return Retrieved(distances, entries, values, self.combiner.weigh(distances, values), only_source(entries))


class OverlayScorer:
    """The distribution of one scorer mixed with the votes of another, which takes it for the base model's."""

    def __init__(self, under: Scorer, over: Scorer) -> None:
        self.memories: Sequence[Memory | None] = [*under.memories, *over.memories]
        self.supports_cuda_graph = under.supports_cuda_graph and over.supports_cuda_graph
        self._under = under
        self._over = over

    def retrieve(self, states: Tensor, group_size: int = 1) -> Retrieved:
        under, over = self._under.retrieve(states, group_size), self._over.retrieve(states, group_size)
        return _side_by_side([under, over], [self._under, self._over], overlay_weights(under.weights, over.weights))


class EnsembleScorer:
    """The base model's distribution mixed with the votes of several memories, each weighed by its own combiner."""

    def __init__(self, scorers: Sequence[Scorer], shares: Sequence[float]) -> None:
        self.memories: Sequence[Memory | None] = [memory for scorer in scorers for memory in scorer.memories]
        self.supports_cuda_graph = all(scorer.supports_cuda_graph for scorer in scorers)
        self._scorers = scorers
        self._shares = shares

    def retrieve(self, states: Tensor, group_size: int = 1) -> Retrieved:
        found = [scorer.retrieve(states, group_size) for scorer in self._scorers]
        return _side_by_side(found, self._scorers, average_weights([votes.weights for votes in found], self._shares))


def _side_by_side(found: Sequence[Retrieved], scorers: Sequence[Scorer], weights: Weights) -> Retrieved:
    """The votes of several scorers as one, with these weights."""
    firsts = accumulate((len(scorer.memories) for scorer in scorers), initial=0)
    return Retrieved(
        torch.cat([votes.distances for votes in found], dim=1),
        torch.cat([votes.entries for votes in found], dim=1),
        torch.cat([votes.values for votes in found], dim=1),
        weights,
        torch.cat([votes.sources + first for votes, first in zip(found, firsts, strict=False)]),
    )


def only_source(entries: Tensor) -> Tensor:
    """The sources [K] of entries [r, K] that are all of the first memory."""
    width = entries.shape[1]
    return _zeros(width) if entries.is_cpu else torch.zeros(width, dtype=torch.long, device=entries.device)


def no_neighbours(states: Tensor) -> Retrieved:
    """The votes where there is no memory: all weight is the base model's."""
    return _no_votes(len(states)) if states.is_cpu else _make_no_votes(len(states), states.device)


def _make_no_votes(rows: int, device: torch.device) -> Retrieved:
    nothing = torch.empty(rows, 0, device=device)
    numbers = torch.empty(rows, 0, dtype=torch.long, device=device)
    return Retrieved(nothing, numbers, numbers, Weights(torch.ones(rows, device=device), nothing), numbers.new_empty(0))


# Nobody writes into votes, so on the CPU the same ones serve every step; made outside of inference mode, they serve
# everywhere. What a GPU records stays its own.


@lru_cache(maxsize=64)
@torch.inference_mode(mode=False)
def _no_votes(rows: int) -> Retrieved:
    return _make_no_votes(rows, torch.device("cpu"))


@lru_cache(maxsize=64)
@torch.inference_mode(mode=False)
def _zeros(width: int) -> Tensor:
    return torch.zeros(width, dtype=torch.long)
