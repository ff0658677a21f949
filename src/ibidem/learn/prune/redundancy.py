"""Removal of redundant entries: those whose token the base model and the rest of the memory predict without them.

The paper's costs (section 3.2) are those of the base model alone: a token that the memory repeats ten times is as
costly as one that it holds once. Here, redundancy is measured with the tuned memory: the probability of an entry's
token under the mixture of base model and memory, the entry itself left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch

from ibidem.combine import load_combiner, place_combiner
from ibidem.errors import UsageError
from ibidem.learn.prune.allocation import round_share
from ibidem.learn.prune.neighbour_graph import NeighbourGraph, count_graph_neighbours, ensure_neighbour_graph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.combine import Combiner
    from ibidem.learn.prune.neighbour_graph import GraphTasks
    from ibidem.learn.prune.pruning import PruneSettings
    from ibidem.memory import Memory
    from ibidem.progress import Progress

THRESHOLDS = (0.999, 0.995, 0.99, 0.98, 0.96, 0.93, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)
"""Entries are removed from this probability on; the threshold falls until the rate is reached."""

# The entries of a batch are predicted together, from the entries that were left before it.
_BATCHES = 32
_SMALLEST_BATCH, _LARGEST_BATCH = 64, 1 << 17


class Prediction(NamedTuple):
    """The prediction of some entries' tokens without these entries.

    Attributes:
        probabilities: [n] float32, the probability of each entry's own token.
        supporters: [n] int64, the nearest other entry with the same token, -1 where there is none nearby.
    """

    probabilities: NDArray[np.float32]
    supporters: NDArray[np.int64]


class Predictor(Protocol):
    """Predicts the tokens of a memory's entries, each without the entry itself."""

    def predict(self, entries: NDArray[np.int64], kept: NDArray[np.bool_]) -> Prediction:
        """Predict the tokens of entries [n] from the kept entries, a mask [all entries].

        Args:
            entries: [n] the entries to predict.
            kept: [all entries] the entries that may be used as neighbours.
        """
        ...


@dataclass(frozen=True, eq=False)
class MixturePredictor:
    """Predicts tokens with the mixture of base model and neighbours that a tuned combiner computes.

    Attributes:
        graph: The neighbours of every entry.
        values: [entries] int32 token ids, on the device.
        log_probs: [entries] float32 log-probabilities of these tokens by the base model, on the device.
        combiner: Weights the neighbours, on the device.
        device: Where to compute.
    """

    graph: NeighbourGraph
    values: Tensor
    log_probs: Tensor
    combiner: Combiner
    device: torch.device

    @torch.inference_mode()
    def predict(self, entries: NDArray[np.int64], kept: NDArray[np.bool_]) -> Prediction:
        """Predict the tokens of entries [n] from the kept entries, a mask [all entries].

        Args:
            entries: [n] the entries to predict.
            kept: [all entries] the entries that may be used as neighbours.
        """
        ids = torch.from_numpy(entries).to(self.device)
        near = torch.from_numpy(self.graph.entries[entries].astype(np.int64)).to(self.device)
        distances = torch.from_numpy(self.graph.distances[entries]).to(self.device)
        available = torch.from_numpy(kept).to(self.device)[near.clamp_min(0)] & (near >= 0)
        distances, order = distances.masked_fill(~available, torch.inf).sort(dim=1, stable=True)
        k = self.combiner.k
        distances, near = distances[:, :k].contiguous(), near.gather(1, order[:, :k])
        values = self.values[near.clamp_min(0)].long()
        weights = self.combiner.weigh(distances, values)
        same = (values == self.values[ids][:, None]) & distances.isfinite()
        probabilities = weights.base * self.log_probs[ids].exp() + (weights.neighbours * same).sum(1)
        nearest = near.gather(1, same.int().argmax(1, keepdim=True))[:, 0]
        supporters = torch.where(same.any(1), nearest, -1)
        return Prediction(probabilities.float().cpu().numpy(), supporters.cpu().numpy())


def make_predictor(
    memory: Memory,
    graph: NeighbourGraph | None,
    device: torch.device,
    progress: Progress,
    tasks: GraphTasks | None = None,
) -> MixturePredictor:
    """Make the predictor of a tuned memory.

    Args:
        memory: A memory with a tuned combiner.
        graph: The neighbours of every entry, if they are known already.
        device: Where to search and compute.
        progress: Receives the progress of the search.
        tasks: Searches in tasks; None searches in this process.

    Raises:
        UsageError: The memory has no tuned combiner.
    """
    combiner = load_combiner(memory, context=False)
    if combiner is None:
        raise UsageError(
            f"{memory.path} has no tuned combiner, which the strategy redundant needs: run `ibidem tune -m "
            f"{memory.path}` first, or use the strategy cost-clusters."
        )
    count = count_graph_neighbours(combiner.k)
    graph = ensure_neighbour_graph(
        memory, count, graph, device=device, tasks=tasks, scratch=memory.path, progress=progress
    )
    return MixturePredictor(
        graph,
        torch.tensor(memory.values(), device=device),
        torch.tensor(memory.log_probs(), device=device),
        place_combiner(combiner, device),
        device,
    )


class Remaining(NamedTuple):
    """The entries that are left.

    Attributes:
        kept: [entries] bool.
        supporting: [entries] bool, the kept entries that support a removed one.
    """

    kept: NDArray[np.bool_]
    supporting: NDArray[np.bool_]


def remove_redundant(predictor: Predictor, size: int, settings: PruneSettings) -> Remaining:
    """Remove the entries that are predicted best without them, until exactly the requested share is left.

    Thresholds fall step by step. Each entry is predicted from the entries that are still left, and the nearest entry
    that supports a removed one is then never removed. If all thresholds leave too many entries, a second pass
    removes entries without regard to support.

    Args:
        predictor: Predicts the entries.
        size: The number of entries.
        settings: Its `rate` and `seed` are used.
    """
    remaining = Remaining(np.ones(size, np.bool_), np.zeros(size, np.bool_))
    surplus = size - round_share(size, settings.kept_share)
    generator = np.random.default_rng(settings.seed)
    initial = np.empty(size, np.float32)
    for batch in _batches(np.arange(size), size):
        initial[batch] = predictor.predict(batch, remaining.kept).probabilities
    for keep_supporters in (True, False):
        for threshold in THRESHOLDS:
            candidates = np.flatnonzero(remaining.kept & (initial >= threshold))
            generator.shuffle(candidates)
            for batch in _batches(candidates, size):
                if surplus <= 0:
                    return remaining
                surplus -= _remove_batch(
                    predictor, remaining, batch, threshold, surplus, keep_supporters=keep_supporters
                )
    return remaining


def _remove_batch(
    predictor: Predictor,
    remaining: Remaining,
    batch: NDArray[np.int64],
    threshold: float,
    limit: int,
    *,
    keep_supporters: bool,
) -> int:
    """Remove at most `limit` redundant entries of a batch, and return how many."""
    if keep_supporters:
        batch = batch[~remaining.supporting[batch]]
    prediction = predictor.predict(batch, remaining.kept)
    redundant = prediction.probabilities >= threshold
    if keep_supporters:
        redundant &= prediction.supporters >= 0
        # Two entries of a batch may support each other: a supporter stays in this batch, and may be removed later.
        needed = np.zeros(len(remaining.kept), np.bool_)
        needed[prediction.supporters[redundant]] = True
        redundant &= ~needed[batch]
    removed = np.flatnonzero(redundant)[:limit]
    remaining.kept[batch[removed]] = False
    if keep_supporters:
        remaining.supporting[prediction.supporters[removed]] = True
    return len(removed)


def _batches(entries: NDArray[np.int64], size: int) -> Iterator[NDArray[np.int64]]:
    length = min(max(size // _BATCHES, _SMALLEST_BATCH), _LARGEST_BATCH)
    for start in range(0, len(entries), length):
        yield entries[start : start + length]
