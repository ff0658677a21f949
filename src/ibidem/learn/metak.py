"""Training of the Meta-k Network on a dev set (Zheng et al. 2021), with the authors' settings as defaults."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ibidem.combine import AdaptiveCombiner, MetaK, aggregate, distance_kernel, first_occurrences, spread_choices
from ibidem.errors import UsageError
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.learn.examples import Examples


@dataclass(frozen=True)
class MetaKSettings:
    """The authors' values. `validation`: "split" holds sentences out, "same" does not (paper)."""

    hidden: int = 32
    batch_sentences: int = 32
    learning_rate: float = 3e-4
    final_learning_rate: float = 3e-5
    label_smoothing: float = 1e-3
    clip: float = 1.0
    updates: int = 5000
    validate_every: int = 100
    patience: int = 30
    validation: str = "split"
    held_out: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.validation not in ("split", "same"):
            raise UsageError(f"Unknown validation '{self.validation}': use split, or same (the paper's).")


@dataclass(frozen=True)
class TrainedMetaK:
    """The network with the best validation loss, and the losses that led to it."""

    combiner: AdaptiveCombiner
    loss: float
    updates: int


@dataclass(frozen=True)
class _Prepared:
    """All that the loss needs of examples and does not change with the network, computed once.

    The mixture is linear in what the network chooses: what each choice alone would give is all there is to know. In one
    table [n, columns], of which a batch is read at once; widths: of its parts, as `_loss` takes them.
    """

    table: Tensor
    widths: list[int]
    vocabulary_size: int

    @classmethod
    def of(cls, network: MetaK, examples: Examples, temperature: float) -> _Prepared:
        values, votes = examples.values, distance_kernel(examples.distances, temperature)
        agrees = (values == examples.gold[:, None]).to(votes.dtype)
        alone = [
            spread_choices(choice.expand(len(votes), -1), votes)
            for choice in torch.eye(network.outer.out_features).log()
        ]
        base = torch.stack([weights.base for weights in alone], dim=1)
        parts = (
            network.features(examples.distances, values),
            base,
            base * examples.base_gold.exp()[:, None]
            + torch.stack([(weights.neighbours * agrees).sum(dim=1) for weights in alone], dim=1),
            torch.cat([aggregate(weights.neighbours, values) for weights in alone], dim=1),
            examples.base_neighbours,
            first_occurrences(values).to(votes.dtype),
            examples.base_sum[:, None],
        )
        return cls(torch.cat(parts, dim=1), [part.shape[1] for part in parts], examples.vocabulary_size)

    def select(self, rows: Tensor) -> _Prepared:
        return replace(self, table=self.table[rows])


def mixture_loss(network: MetaK, examples: Examples, temperature: float, smoothing: float) -> Tensor:
    """Label-smoothed cross-entropy [n] of the mixture; sparse, since only the neighbours' values change.

    (1 - s) (-log p(gold)) + s / V sum over the vocabulary of -log p(v).
    """
    return _loss(network, _Prepared.of(network, examples, temperature), smoothing)


def _loss(network: MetaK, ready: _Prepared, smoothing: float) -> Tensor:
    features, bases, golds, votes, base_neighbours, first, base_sum = torch.split(ready.table, ready.widths, dim=1)
    chosen = network.choose(features).exp()
    likelihood = -(chosen * golds).sum(dim=1).clamp_min(1e-30).log()
    if smoothing == 0:
        return likelihood
    base = (chosen * bases).sum(dim=1).clamp_min(1e-12).log()
    shifted = base[:, None] + base_neighbours
    voted = (chosen[:, None] @ votes.view(*chosen.shape, base_neighbours.shape[1])).squeeze(1).clamp_min(1e-30).log()
    gained = torch.logaddexp(shifted, voted) - shifted
    total = base_sum[:, 0] + ready.vocabulary_size * base + (gained * first).sum(dim=1)
    return (1 - smoothing) * likelihood - smoothing * total / ready.vocabulary_size


def train_adaptive(
    examples: Examples,
    temperature: float,
    settings: MetaKSettings | None = None,
    *,
    progress: Progress = silent,
) -> TrainedMetaK:
    """Train on the examples' K nearest neighbours; a copy of the best weights by validation loss is kept."""
    settings = settings or MetaKSettings()
    generator = torch.Generator().manual_seed(settings.seed)
    training, validation = _split(examples, settings, generator)
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        network = MetaK(examples.distances.shape[1], examples.typical_distance(), settings.hidden)
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.learning_rate, betas=(0.9, 0.98), fused=True)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=5, min_lr=settings.final_learning_rate
    )
    ready = _Prepared.of(network, training, temperature)
    judged = _Prepared.of(network, validation, temperature)
    groups = _rows_by_sentence(training)
    best, best_loss, best_update, stale = copy.deepcopy(network), float("inf"), 0, 0
    with _one_thread():
        for update in range(1, settings.updates + 1):
            chosen = torch.randint(len(groups), (settings.batch_sentences,), generator=generator)
            rows = torch.cat([groups[i] for i in chosen.tolist()])
            loss = _loss(network, ready.select(rows), settings.label_smoothing).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(network.parameters(), settings.clip)
            optimizer.step()
            if update % settings.validate_every and update != settings.updates:
                continue
            with torch.no_grad():
                current = float(_loss(network, judged, 0.0).mean())
            scheduler.step(current)
            progress("Training Meta-k", update / settings.updates, update, "updates")
            stale += 1
            if current < best_loss:
                best, best_loss, best_update, stale = copy.deepcopy(network), current, update, 0
            if stale >= settings.patience:
                break
    best.eval().requires_grad_(False)
    return TrainedMetaK(AdaptiveCombiner(best, temperature), best_loss, best_update)


@contextmanager
def _one_thread() -> Iterator[None]:
    """The network is so small that a second thread costs more than it gives."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _split(examples: Examples, settings: MetaKSettings, generator: torch.Generator) -> tuple[Examples, Examples]:
    """Training and validation examples, split by sentence."""
    numbers = torch.unique(examples.sentences)
    if settings.validation == "same" or len(numbers) < 2:
        return examples, examples
    held = max(1, int(len(numbers) * settings.held_out))
    chosen = numbers[torch.randperm(len(numbers), generator=generator)[:held]]
    out = torch.isin(examples.sentences, chosen)
    return examples.select(~out), examples.select(out)


def _rows_by_sentence(examples: Examples) -> list[Tensor]:
    _, sizes = torch.unique_consecutive(examples.sentences, return_counts=True)
    return list(torch.split(torch.arange(len(examples)), sizes.tolist()))
