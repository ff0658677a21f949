"""Examples for tuning: each token of a dev set with its neighbours and the base model's log-probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ibidem.errors import TextError
from ibidem.learn.extraction import make_batches
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.model import BaseModel, States
    from ibidem.retrieve import Index


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
    """

    distances: Tensor
    values: Tensor
    base_neighbours: Tensor
    gold: Tensor
    base_gold: Tensor
    base_sum: Tensor
    sentences: Tensor
    vocabulary_size: int

    def __len__(self) -> int:
        return len(self.gold)

    def select(self, rows: Tensor) -> Examples:
        """Return the examples of some row numbers, or of a boolean mask.

        Args:
            rows: [m] int64 row numbers, or [n] booleans.
        """
        return Examples(
            self.distances[rows],
            self.values[rows],
            self.base_neighbours[rows],
            self.gold[rows],
            self.base_gold[rows],
            self.base_sum[rows],
            self.sentences[rows],
            self.vocabulary_size,
        )

    def nearest(self, k: int) -> Examples:
        """Return the same examples with only their k nearest neighbours.

        Args:
            k: The number of neighbours to keep; all are kept if there are fewer.
        """
        return Examples(
            self.distances[:, :k],
            self.values[:, :k],
            self.base_neighbours[:, :k],
            self.gold,
            self.base_gold,
            self.base_sum,
            self.sentences,
            self.vocabulary_size,
        )

    def typical_distance(self) -> float:
        """Return the median of the squared distances to the farthest neighbour, the scale of the space."""
        far = self.distances.where(self.distances.isfinite(), 0.0).amax(dim=1)
        return max(float(far.median()), 1e-6)


@torch.inference_mode()
def gather_examples(
    model: BaseModel,
    index: Index,
    values: Tensor,
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
        values: [entries] the token ids of the memory's entries.
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
        part = _make_examples(model, states, distances, values[entries.clamp_min(0)], rows)
        parts.append(part)
        done += len(part)
        progress("Searching the dev set", done / max(1, sum(len(target_ids[i]) for i in usable)), done, "tokens")
    joined = [torch.cat(column) for column in zip(*(_columns(part) for part in parts), strict=True)]
    order = joined[-1].argsort(stable=True)
    return _from_columns([column[order] for column in joined], model.vocabulary_size)


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
    model: BaseModel, states: States, distances: Tensor, values: Tensor, rows: Sequence[int]
) -> Examples:
    neighbours, gold, total = [], [], []
    start = 0
    for logits, tokens in model.logit_blocks(states):
        log_probs = logits.log_softmax(dim=1)
        neighbours.append(log_probs.gather(1, values[start : start + len(tokens)]))
        gold.append(log_probs.gather(1, tokens[:, None]).squeeze(1))
        total.append(log_probs.sum(dim=1))
        start += len(tokens)
    numbers = torch.tensor(rows).repeat_interleave(torch.tensor(states.lengths))
    columns = (
        distances,
        values,
        torch.cat(neighbours),
        states.values,
        torch.cat(gold),
        torch.cat(total),
        numbers,
    )
    return _from_columns([column.cpu() for column in columns], model.vocabulary_size)


def _from_columns(columns: Sequence[Tensor], vocabulary_size: int) -> Examples:
    distances, values, base_neighbours, gold, base_gold, base_sum, sentences = columns
    return Examples(distances, values, base_neighbours, gold, base_gold, base_sum, sentences, vocabulary_size)


def _columns(examples: Examples) -> tuple[Tensor, ...]:
    return (
        examples.distances,
        examples.values,
        examples.base_neighbours,
        examples.gold,
        examples.base_gold,
        examples.base_sum,
        examples.sentences,
    )
