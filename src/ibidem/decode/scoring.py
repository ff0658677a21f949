"""Who decides on the next token: the base model alone, or the neighbours of its state in memories with it."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor

from ibidem.combine import Combiner, Weights, blend, overlay
from ibidem.decode.values import values_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.memory import Memory
    from ibidem.retrieve import Index


class Votes(NamedTuple):
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
    def captures(self) -> bool:
        """Whether consulting can be recorded in a CUDA graph."""
        ...

    def consult(self, states: Tensor, together: int = 1) -> Votes:
        """Who votes on the token after each of these states [r, d], and with what weight.

        A state of no numbers has no neighbours. together: so many states in turn are of one sentence; where they are
        nearly the same, one search may serve them.
        """
        ...


class BaseScorer:
    """The base model's own distribution."""

    memories: Sequence[Memory | None] = ()
    captures = True

    def consult(self, states: Tensor, together: int = 1) -> Votes:  # noqa: ARG002 - of the protocol
        return nobody(states)


class MemoryScorer:
    """The base model's distribution mixed with the votes of the nearest entries.

    `memory` is the generation that the entries of the index belong to, where they can be looked up in one.
    """

    def __init__(self, index: Index, values: Tensor, combiner: Combiner, memory: Memory | None = None) -> None:
        self.index = index
        self.memories: Sequence[Memory | None] = (memory,)
        self.captures = index.captures
        self.values = values
        self.combiner = combiner

    def consult(self, states: Tensor, together: int = 1) -> Votes:  # noqa: ARG002 - every state is searched for
        if self.index.size == 0 or len(self.values) == 0:  # an index may outlive its last entry, hidden in it
            return nobody(states)
        distances, entries = self.index.search(states, self.combiner.k)
        values = values_of(self.values, entries)
        return Votes(distances, entries, values, self.combiner.weigh(distances, values), only_source(entries))


class LayeredScorer:
    """The distribution of one scorer mixed with the votes of another, which takes it for the base model's."""

    def __init__(self, under: Scorer, over: Scorer) -> None:
        self.memories: Sequence[Memory | None] = [*under.memories, *over.memories]
        self.captures = under.captures and over.captures
        self._under = under
        self._over = over

    def consult(self, states: Tensor, together: int = 1) -> Votes:
        under, over = self._under.consult(states, together), self._over.consult(states, together)
        return _side_by_side([under, over], [self._under, self._over], overlay(under.weights, over.weights))


class BlendedScorer:
    """The base model's distribution mixed with the votes of several memories, each weighed by its own combiner."""

    def __init__(self, scorers: Sequence[Scorer], shares: Sequence[float]) -> None:
        self.memories: Sequence[Memory | None] = [memory for scorer in scorers for memory in scorer.memories]
        self.captures = all(scorer.captures for scorer in scorers)
        self._scorers = scorers
        self._shares = shares

    def consult(self, states: Tensor, together: int = 1) -> Votes:
        found = [scorer.consult(states, together) for scorer in self._scorers]
        return _side_by_side(found, self._scorers, blend([votes.weights for votes in found], self._shares))


def _side_by_side(found: Sequence[Votes], scorers: Sequence[Scorer], weights: Weights) -> Votes:
    """The votes of several scorers as one, with these weights."""
    firsts = accumulate((len(scorer.memories) for scorer in scorers), initial=0)
    return Votes(
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


def nobody(states: Tensor) -> Votes:
    """The votes where there is no memory: all weight is the base model's."""
    return _no_votes(len(states)) if states.is_cpu else _make_no_votes(len(states), states.device)


def _make_no_votes(rows: int, device: torch.device) -> Votes:
    nothing = torch.empty(rows, 0, device=device)
    numbers = torch.empty(rows, 0, dtype=torch.long, device=device)
    return Votes(nothing, numbers, numbers, Weights(torch.ones(rows, device=device), nothing), numbers.new_empty(0))


# Nobody writes into votes, so on the CPU the same ones serve every step; made outside of inference mode, they serve
# everywhere. What a GPU records stays its own.


@lru_cache(maxsize=64)
@torch.inference_mode(mode=False)
def _no_votes(rows: int) -> Votes:
    return _make_no_votes(rows, torch.device("cpu"))


@lru_cache(maxsize=64)
@torch.inference_mode(mode=False)
def _zeros(width: int) -> Tensor:
    return torch.zeros(width, dtype=torch.long)
