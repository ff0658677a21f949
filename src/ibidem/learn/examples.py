"""What a combiner is tuned on: for each token of a dev set, its neighbours and what the base model thinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ibidem.errors import TextError
from ibidem.learn.chunks import make_batches
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.model import BaseModel, States
    from ibidem.retrieve import Index


@dataclass(frozen=True)
class Examples:
    """One row for each target token of a dev set, sentence by sentence; all that a mixture's loss needs.

    distances [n, K] and values [n, K] of the neighbours; base_neighbours [n, K], the base model's
    log-probability of each neighbour's value; gold [n], the true token; base_gold [n], its log-probability;
    base_sum [n], the sum of the base model's log-probabilities over the vocabulary (for label smoothing);
    sentences [n], the sentence number.
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
        """The examples of these rows, or of a boolean mask."""
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
        """The same examples with their k nearest neighbours only."""
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
        """The median squared distance to the farthest neighbour that is there: the scale of the space."""
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
    """Examples of a dev set. `hidden` names, for each sentence, entries that must not answer: its own, where
    the dev set was taken from the memory itself. Raises TextError if the model can read no sentence whole."""
    source_ids, target_ids = model.tokens.encode_sources(sources), model.tokens.encode_targets(targets)
    tokens = model.tokens
    usable = [
        i
        for i, (source, target) in enumerate(zip(source_ids, target_ids, strict=True))
        if 1 < len(source) <= tokens.longest_source and len(target) <= tokens.longest_target
    ]
    if not usable:
        raise TextError(
            f"None of the {len(sources):,} pairs of the dev set is short enough for the model "
            f"({tokens.longest_source} source and {tokens.longest_target} target tokens): give another one."
        )
    batches = make_batches([source_ids[i] for i in usable], [target_ids[i] for i in usable], batch_tokens)
    # Enough neighbours that k are left when a sentence's own entries are struck out.
    wanted = k if hidden is None else k + max((len(entries) for entries in hidden), default=0)
    parts: list[Examples] = []
    done = 0
    for batch in batches:
        rows = [usable[i] for i in batch]
        states = model.states([source_ids[i] for i in rows], [target_ids[i] for i in rows])
        distances, entries = index.search(states.keys, wanted)
        if hidden is not None:
            own = [(hidden[row].start, hidden[row].stop) for row in rows]
            distances, entries = _strike(distances, entries, own, states.lengths, k)
        part = _describe(model, states, distances, values[entries.clamp_min(0)], rows)
        parts.append(part)
        done += len(part)
        progress("Searching the dev set", done / max(1, sum(len(target_ids[i]) for i in usable)), done, "tokens")
    joined = [torch.cat(column) for column in zip(*(_columns(part) for part in parts), strict=True)]
    order = joined[-1].argsort(stable=True)
    return _examples([column[order] for column in joined], model.vocabulary_size)


def _strike(
    distances: Tensor, entries: Tensor, own: Sequence[tuple[int, int]], lengths: Sequence[int], k: int
) -> tuple[Tensor, Tensor]:
    """Drop each row's own entries and keep the k nearest of the others, in order."""
    bounds = torch.tensor(own, device=entries.device).repeat_interleave(
        torch.tensor(lengths, device=entries.device), dim=0
    )
    struck = (entries >= bounds[:, :1]) & (entries < bounds[:, 1:])
    far = distances.masked_fill(struck, torch.inf)
    order = far.argsort(dim=1, stable=True)[:, :k]
    return far.gather(1, order), entries.masked_fill(struck, -1).gather(1, order)


def _describe(model: BaseModel, states: States, distances: Tensor, values: Tensor, rows: Sequence[int]) -> Examples:
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
    return _examples([column.cpu() for column in columns], model.vocabulary_size)


def _examples(columns: Sequence[Tensor], vocabulary_size: int) -> Examples:
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
