"""Scorers retrieve neighbours of decoder states and weight them against the base model.

`make_scorer` joins native parts into one native step on the CPU.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor

from ibidem.combine import (
    Combiner,
    EntryTable,
    NativeCombiner,
    Weights,
    average_weights,
    overlay_weights,
    to_native,
)
from ibidem.compact import NativeCompactor
from ibidem.native import Ivf, RemoteSearch, RetrievalStep, SentenceTable, look_up, native
from ibidem.retrieve import CompactedIndex, NativeIndex, PartedIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.combine import Sources, StepContext
    from ibidem.memory import Memory
    from ibidem.native import SearchLimits
    from ibidem.retrieve import Index


# The bits of the number of an entry in a number that also has that of its memory.
ENTRY_BITS = 48


class Retrieved(NamedTuple):
    """The neighbours of r states and their weights in the mixture.

    Attributes:
        distances: Squared distances, [r, K].
        entries: Numbers of the entries in their memories, [r, K]; -1 for an absent neighbour.
        values: Token ids of the entries, [r, K].
        weights: The weights of the base model [r] and of the neighbours [r, K].
        sources: The place in `Scorer.memories` of the memory that each column's neighbours come from, [K].
    """

    distances: Tensor
    entries: Tensor
    values: Tensor
    weights: Weights
    sources: Tensor


class Scorer(Protocol):
    """Retrieves and weights the neighbours that decide, with the base model, on the next token."""

    @property
    def memories(self) -> Sequence[Memory | None]:
        """The memories that `Retrieved.sources` refers to; None for entries that are not in a folder."""
        ...

    @property
    def supports_cuda_graph(self) -> bool:
        """Whether `retrieve` can be captured in a CUDA graph."""
        ...

    def retrieve(self, states: Tensor, group_size: int = 1, context: StepContext | None = None) -> Retrieved:
        """Retrieve the neighbours of decoder states.

        Args:
            states: Decoder states [r, d]; a state of NaN has no neighbours.
            group_size: This many consecutive rows are hypotheses of one sentence. A scorer may search once for those
                of a group whose states are nearly equal.
            context: The decoding step, for combiners that need it.

        Returns:
            The neighbours and the weights of the mixture.
        """
        ...


class BaseScorer:
    """Scores with the base model alone."""

    memories: Sequence[Memory | None] = ()
    supports_cuda_graph = True

    def retrieve(
        self,
        states: Tensor,
        group_size: int = 1,  # noqa: ARG002 - part of the protocol
        context: StepContext | None = None,  # noqa: ARG002 - part of the protocol
    ) -> Retrieved:
        return no_neighbours(states)


class MemoryScorer:
    """Scores with the nearest entries of one index, weighted by one combiner.

    Args:
        index: The index of the entries' keys; it takes decoder states.
        table: The token id of every entry, and what the combiner needs beside it.
        combiner: The combiner.
        memory: The memory that the entries belong to, where they can be looked up.

    Examples:
        >>> import numpy as np
        >>> from ibidem.combine import FixedCombiner
        >>> from ibidem.retrieve import ArrayKeys, ExactIndex
        >>> index = ExactIndex(ArrayKeys(np.array([[0, 0], [3, 4]], np.float16)))
        >>> table = EntryTable(torch.tensor([7, 9]))
        >>> scorer = MemoryScorer(index, table, FixedCombiner(k=1, weight=0.5, temperature=10.0))
        >>> found = scorer.retrieve(torch.zeros(1, 2))
        >>> found.values.tolist(), found.weights.neighbours.tolist()
        ([[7]], [[0.5]])
    """

    def __init__(self, index: Index, table: EntryTable, combiner: Combiner, memory: Memory | None = None) -> None:
        self.index = index
        self.memories: Sequence[Memory | None] = (memory,)
        self.supports_cuda_graph = index.supports_cuda_graph
        self.table = table
        self.combiner = combiner

    def retrieve(
        self,
        states: Tensor,
        group_size: int = 1,  # noqa: ARG002 - part of the protocol
        context: StepContext | None = None,
    ) -> Retrieved:
        # An index may still hold entries, all hidden, of a memory from which the last pair was removed.
        if self.index.size == 0 or len(self.table) == 0:
            return no_neighbours(states)
        distances, entries = self.index.search(states, self.combiner.k)
        return self._weigh(distances, entries, values_of(self.table.values, entries), context)

    def _weigh(self, distances: Tensor, entries: Tensor, values: Tensor, context: StepContext | None) -> Retrieved:
        known = None
        if self.combiner.needs_context and context is not None:
            known = context.of(self.table, entries, values)
        weights = self.combiner.weigh(distances, values, known)
        return Retrieved(distances, entries, values, weights, only_source(entries))


class OverlayScorer:
    """Scores with the neighbours of one scorer, over the mixture of another in the place of the base model.

    Args:
        under: The scorer whose mixture takes the place of the base model.
        over: The scorer over it.
    """

    def __init__(self, under: Scorer, over: Scorer) -> None:
        self.memories: Sequence[Memory | None] = [*under.memories, *over.memories]
        self.supports_cuda_graph = under.supports_cuda_graph and over.supports_cuda_graph
        self._under = under
        self._over = over

    def retrieve(self, states: Tensor, group_size: int = 1, context: StepContext | None = None) -> Retrieved:
        under = self._under.retrieve(states, group_size, context)
        over = self._over.retrieve(states, group_size, context)
        return _concatenate([under, over], [self._under, self._over], overlay_weights(under.weights, over.weights))


class EnsembleScorer:
    """Scores with several memories, each weighted by its own combiner; see `average_weights`.

    Args:
        scorers: A scorer for each memory.
        memory_weights: The weight of each memory relative to the others, above 0.
    """

    def __init__(self, scorers: Sequence[Scorer], memory_weights: Sequence[float]) -> None:
        self.memories: Sequence[Memory | None] = [memory for scorer in scorers for memory in scorer.memories]
        self.supports_cuda_graph = all(scorer.supports_cuda_graph for scorer in scorers)
        self._scorers = scorers
        self._memory_weights = memory_weights

    def retrieve(self, states: Tensor, group_size: int = 1, context: StepContext | None = None) -> Retrieved:
        found = [scorer.retrieve(states, group_size, context) for scorer in self._scorers]
        weights = average_weights([retrieved.weights for retrieved in found], self._memory_weights)
        return _concatenate(found, self._scorers, weights)


def combine_scorers(scorers: Sequence[Scorer], memory_weights: Sequence[float]) -> Scorer:
    """Combine the scorers of several memories to one.

    Args:
        scorers: A scorer for each memory.
        memory_weights: The weight of each memory relative to the others, above 0.

    Returns:
        The scorer itself where there is one, an `EnsembleScorer` for several, and a `BaseScorer` for none.
    """
    if not scorers:
        return BaseScorer()
    return scorers[0] if len(scorers) == 1 else EnsembleScorer(scorers, memory_weights)


def _concatenate(found: Sequence[Retrieved], scorers: Sequence[Scorer], weights: Weights) -> Retrieved:
    """Put the neighbours of several scorers side by side, with these weights."""
    firsts = accumulate((len(scorer.memories) for scorer in scorers), initial=0)
    return Retrieved(
        torch.cat([retrieved.distances for retrieved in found], dim=1),
        torch.cat([retrieved.entries for retrieved in found], dim=1),
        torch.cat([retrieved.values for retrieved in found], dim=1),
        weights,
        torch.cat([retrieved.sources + first for retrieved, first in zip(found, firsts, strict=False)]),
    )


def pack_entries(entries: Tensor, sources: Tensor) -> Tensor:
    """Put the numbers of entries and of their memories into one number each.

    Args:
        entries: [r] entry numbers, -1 for none.
        sources: [r] the places of their memories in `Scorer.memories`.

    Returns:
        [r] int64; the entry itself for the first memory, and -1 for none.
    """
    return torch.where(entries < 0, -1, entries + (sources << ENTRY_BITS))


def unpack_entry(packed: int) -> tuple[int, int]:
    """Return the place of the memory and the entry that `pack_entries` put into one number.

    Args:
        packed: The number, 0 or more.

    Examples:
        >>> unpack_entry(int(pack_entries(torch.tensor([7]), torch.tensor([2]))[0]))
        (2, 7)
    """
    return packed >> ENTRY_BITS, packed & ((1 << ENTRY_BITS) - 1)


def values_of(table: Tensor, entries: Tensor) -> Tensor:
    """Look up the values [r, K] of entries [r, K] in a table [n]; an absent entry (-1) gets any value.

    Args:
        table: [n] the token id of every entry.
        entries: [r, K] entry numbers, -1 for an absent neighbour.
    """
    if entries.is_cpu and table.is_cpu and native() is not None:
        return look_up(table, entries)
    return table[entries.clamp_min(0)]


def only_source(entries: Tensor) -> Tensor:
    """Return the sources [K] of entries [r, K] that all come from the first memory.

    Args:
        entries: [r, K] entry numbers.
    """
    width = entries.shape[1]
    return _zeros(width) if entries.is_cpu else torch.zeros(width, dtype=torch.long, device=entries.device)


def no_neighbours(states: Tensor) -> Retrieved:
    """Return a result without neighbours for states [r, d]: the base model has weight 1.

    Args:
        states: [r, d] decoder states, of which only the number and the device are used.
    """
    return _cached_empty(len(states)) if states.is_cpu else _make_empty(len(states), states.device)


def _make_empty(rows: int, device: torch.device) -> Retrieved:
    nothing = torch.empty(rows, 0, device=device)
    numbers = torch.empty(rows, 0, dtype=torch.long, device=device)
    return Retrieved(nothing, numbers, numbers, Weights(torch.ones(rows, device=device), nothing), numbers.new_empty(0))


# Results are never written to, so on the CPU every step shares the same tensors. They are made outside of inference
# mode, so that they can be used in any mode. A CUDA graph needs tensors of its own.


@lru_cache(maxsize=64)
@torch.inference_mode(mode=False)
def _cached_empty(rows: int) -> Retrieved:
    return _make_empty(rows, torch.device("cpu"))


@lru_cache(maxsize=64)
@torch.inference_mode(mode=False)
def _zeros(width: int) -> Tensor:
    return torch.zeros(width, dtype=torch.long)


class NativeScorer(MemoryScorer):
    """A scorer whose index, compactor and combiner are native and run as one step, unless one of them is exchanged.

    Args:
        index: The index of the entries' keys.
        table: The token id of every entry, and what the combiner needs beside it.
        combiner: The combiner.
        memory: The memory that the entries belong to, where they can be looked up.
        step: The native step that was made of these parts.
    """

    def __init__(
        self, index: Index, table: EntryTable, combiner: Combiner, memory: Memory | None, step: RetrievalStep
    ) -> None:
        """Take the parts, and the step that was made of them."""
        super().__init__(index, table, combiner, memory)
        self._parts = (index, table, combiner)
        self._step = step

    @property
    def step(self) -> RetrievalStep | None:
        """The parts as one step; None where one of them was exchanged."""
        index, table, combiner = self._parts
        same = self.index is index and self.table is table and self.combiner is combiner
        return self._step if same else None

    def retrieve(self, states: Tensor, group_size: int = 1, context: StepContext | None = None) -> Retrieved:
        step = self.step
        if step is None:
            return super().retrieve(states, group_size, context)
        return self._weigh(*step(states, group_size), context)

    def source_vectors(self, sources: Sources) -> Tensor | None:
        """Return the vectors of the sources of a batch [n, m] for `step`; None where the combiner does not need them.

        Args:
            sources: The sources.
        """
        if not self.combiner.needs_context or self.table.projection is None:
            return None
        return sources.vectors(self.table.projection)


def make_scorer(index: Index, table: EntryTable, combiner: Combiner, memory: Memory | None = None) -> MemoryScorer:
    """Make a scorer in the fastest form that its parts allow.

    Args:
        index: The index of the entries' keys; it takes decoder states.
        table: The token id of every entry, and what the combiner needs beside it.
        combiner: The combiner; it is replaced by its native form where the values are on the CPU.
        memory: The memory that the entries belong to, where they can be looked up.
    """
    if table.values.is_cpu:
        combiner = to_native(combiner)
    step = _make_step(index, table, combiner)
    if step is None:
        return MemoryScorer(index, table, combiner, memory)
    return NativeScorer(index, table, combiner, memory, step)


def _make_step(index: Index, table: EntryTable, combiner: Combiner) -> RetrievalStep | None:
    """Join the parts; None where one of them is not native, or the index is empty.

    A divided index is searched by one call of a Python function in the middle of the native step.
    """
    inner, compactor = (index.index, index.compactor) if isinstance(index, CompactedIndex) else (index, None)
    if not isinstance(combiner, NativeCombiner) or not (compactor is None or isinstance(compactor, NativeCompactor)):
        return None
    if inner.size == 0 or len(table) == 0 or native() is None:
        return None
    search: Ivf | RemoteSearch
    limits: tuple[SearchLimits | None, SearchLimits | None] = None, None
    live = threads = None
    if isinstance(inner, PartedIndex):
        search = RemoteSearch(inner.dimension, inner.search_rows)
    elif isinstance(inner, NativeIndex) and isinstance(inner.ivf, Ivf):
        search, live, threads = inner.ivf, inner.live, inner.threads
        limits = inner.probing(combiner.k), inner.probing(combiner.k, reduced=True)
    else:
        return None
    sentences = None
    if combiner.needs_context and table.log_probs is not None and table.sentences is not None:
        assert table.source_vectors is not None
        sentences = SentenceTable(table.log_probs, table.sentences, table.source_vectors)
    return RetrievalStep(
        None if compactor is None else compactor.kernel,
        search,
        *limits,
        table.values,
        combiner.kernel,
        sentences=sentences,
        alive_mask=live,
        threads=threads,
    )
