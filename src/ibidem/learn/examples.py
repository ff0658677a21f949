"""Examples for tuning: each token of a dev set with its neighbours and the base model's log-probabilities."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ibidem.combine import NeighbourContext, Sources, StepContext
from ibidem.errors import TextError
from ibidem.learn.extraction import make_batches
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ibidem.combine import EntryTable
    from ibidem.model import BaseModel, States
    from ibidem.retrieve import Index


_COLUMNS = ("distances", "values", "base_neighbours", "gold", "base_gold", "base_sum", "sentences")


@dataclass(frozen=True)
class Examples:
    """The target tokens of a dev set, sentence by sentence, with all that the loss of a mixture needs.

    Attributes:
        distances: [n, K] squared distances of the neighbours, infinite where there are fewer.
        values: [n, K] token ids of the neighbours.
        base_neighbours: [n, K] the base model's log-probability of each neighbour's token.
        gold: [n] the true tokens.
        base_gold: [n] the base model's log-probability of the true token.
        base_sum: [n] the sum of the base model's log-probabilities over the vocabulary, for label smoothing.
        sentences: [n] sentence numbers.
        vocabulary_size: The size of the vocabulary.
        context: What a contextual combiner needs to know of the neighbours; None without source vectors.
    """

    distances: Tensor
    values: Tensor
    base_neighbours: Tensor
    gold: Tensor
    base_gold: Tensor
    base_sum: Tensor
    sentences: Tensor
    vocabulary_size: int
    context: NeighbourContext | None = None

    def __len__(self) -> int:
        return len(self.gold)

    def select(self, rows: Tensor) -> Examples:
        """Return the examples of some row numbers, or of a boolean mask.

        Args:
            rows: [m] int64 row numbers, or [n] booleans.
        """
        return self._map(lambda column: column[rows])

    def nearest(self, k: int) -> Examples:
        """Return the same examples with only their k nearest neighbours.

        Args:
            k: The number of neighbours to keep; all are kept if there are fewer.
        """
        context = self.context
        if context is not None:
            now, stored, apart, top = context
            context = NeighbourContext(now[:, :k], stored[:, :k], apart[:, :k], top)
        return replace(
            self,
            distances=self.distances[:, :k],
            values=self.values[:, :k],
            base_neighbours=self.base_neighbours[:, :k],
            context=context,
        )

    def _map(self, change: Callable[[Tensor], Tensor]) -> Examples:
        """Change all columns."""
        columns = {name: change(getattr(self, name)) for name in _COLUMNS}
        context = None if self.context is None else NeighbourContext(*map(change, self.context))
        return Examples(**columns, vocabulary_size=self.vocabulary_size, context=context)

    def to_cpu(self) -> Examples:
        """Return the examples on the CPU."""
        return self._map(Tensor.cpu)

    def typical_distance(self) -> float:
        """Return the median of the squared distances to the farthest neighbour, the scale of the space."""
        far = self.distances.where(self.distances.isfinite(), 0.0).amax(dim=1)
        return max(float(far.median()), 1e-6)


@torch.inference_mode()
def gather_examples(
    model: BaseModel,
    index: Index,
    table: EntryTable,
    sources: Sequence[str],
    targets: Sequence[str],
    k: int,
    *,
    hidden: Sequence[range] | None = None,
    batch_tokens: int = 4096,
    progress: Progress = silent,
) -> Examples:
    """Search the neighbours of every target token of a dev set, and compute the base model's log-probabilities.

    Pairs above the length limit of the model are skipped.

    Args:
        model: The base model.
        index: The index to search; it accepts states of the model.
        table: What the memory stores about its entries.
        sources: The sources of the dev set.
        targets: The targets of the dev set.
        k: Neighbours of each token.
        hidden: For each sentence, the entries that must not be neighbours: its own, if it comes from the memory.
        batch_tokens: The most padded tokens of a batch.
        progress: Receives the number of tokens that are done.

    Returns:
        An example for each target token; those of one sentence are consecutive.

    Raises:
        TextError: All pairs exceed the length limit of the model.
    """
    source_ids, target_ids = model.tokens.encode_sources(sources), model.tokens.encode_targets(targets)
    tokens = model.tokens
    usable = [
        i
        for i, (source, target) in enumerate(zip(source_ids, target_ids, strict=True))
        if 1 < len(source) <= tokens.max_source_length and len(target) <= tokens.max_target_length
    ]
    if not usable:
        raise TextError(
            f"None of the {len(sources):,} pairs of the dev set is short enough for the model "
            f"({tokens.max_source_length} source and {tokens.max_target_length} target tokens): give another one."
        )
    batches = make_batches([source_ids[i] for i in usable], [target_ids[i] for i in usable], batch_tokens)
    # Enough that k remain without the sentence's own entries.
    wanted = k if hidden is None else k + max((len(entries) for entries in hidden), default=0)
    parts: list[Examples] = []
    done = 0
    for batch in batches:
        rows = [usable[i] for i in batch]
        states = model.states([source_ids[i] for i in rows], [target_ids[i] for i in rows])
        distances, entries = index.search(states.keys, wanted)
        if hidden is not None:
            own = [(hidden[row].start, hidden[row].stop) for row in rows]
            distances, entries = _hide(distances, entries, own, states.lengths, k)
        part = _make_examples(model, states, (distances, entries), table, rows)
        parts.append(part)
        done += len(part)
        progress("Searching the dev set", done / max(1, sum(len(target_ids[i]) for i in usable)), done, "tokens")
    joined = join_examples(parts)
    return joined.select(joined.sentences.argsort(stable=True))


def _hide(
    distances: Tensor, entries: Tensor, own: Sequence[tuple[int, int]], lengths: Sequence[int], k: int
) -> tuple[Tensor, Tensor]:
    """Remove each row's own entries and return the k nearest of the others, in order."""
    bounds = torch.tensor(own, device=entries.device).repeat_interleave(
        torch.tensor(lengths, device=entries.device), dim=0
    )
    is_hidden = (entries >= bounds[:, :1]) & (entries < bounds[:, 1:])
    far = distances.masked_fill(is_hidden, torch.inf)
    order = far.argsort(dim=1, stable=True)[:, :k]
    return far.gather(1, order), entries.masked_fill(is_hidden, -1).gather(1, order)


def _make_examples(
    model: BaseModel, states: States, found: tuple[Tensor, Tensor], table: EntryTable, rows: Sequence[int]
) -> Examples:
    distances, entries = found
    values = table.values[entries.clamp_min(0)]
    lengths = torch.tensor(states.lengths, device=values.device)
    of_states = torch.arange(len(rows), device=values.device).repeat_interleave(lengths)
    sources = Sources(states.source_means)
    banned = torch.tensor(model.banned, device=values.device) if model.banned else None
    blocks: list[Examples] = []
    start = 0
    for logits, tokens in model.logit_blocks(states):
        here = slice(start, start + len(tokens))
        step = StepContext(logits, sources, of_states[here], banned)
        known = step.of(table, entries[here], values[here]) if table.source_vectors is not None else None
        log_probs = step.log_probs
        block = Examples(
            distances[here],
            values[here],
            log_probs.gather(1, values[here]),
            tokens,
            log_probs.gather(1, tokens[:, None]).squeeze(1),
            log_probs.sum(dim=1),
            torch.tensor(rows, device=values.device)[of_states[here]],
            model.vocabulary_size,
            known,
        )
        blocks.append(block.to_cpu())
        start += len(tokens)
    return join_examples(blocks)


def join_examples(parts: Sequence[Examples]) -> Examples:
    """Join examples of several texts.

    Args:
        parts: The examples, at least one, with the same number of neighbours.
    """
    columns = {name: torch.cat([getattr(part, name) for part in parts]) for name in _COLUMNS}
    contexts = [part.context for part in parts if part.context is not None]
    context = None
    if len(contexts) == len(parts):
        context = NeighbourContext(*(torch.cat(column) for column in zip(*contexts, strict=True)))
    return Examples(**columns, vocabulary_size=parts[0].vocabulary_size, context=context)
