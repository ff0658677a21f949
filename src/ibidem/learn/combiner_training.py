"""Training of combiners on the examples of a dev set: a grid search for the fixed one, Meta-k for the adaptive one."""

from __future__ import annotations

import copy
import math
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ibidem.combine import (
    AdaptiveCombiner,
    ContextualCombiner,
    ContextualNetwork,
    FixedCombiner,
    MetaK,
    aggregate,
    distance_kernel,
    first_occurrences,
    neighbour_counts,
    spread_choices,
)
from ibidem.errors import UsageError
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.learn.examples import Examples

TEMPERATURES = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
"""The temperatures of the grid, as shares of the typical squared distance: from the nearest only to nearly uniform."""

WEIGHTS = tuple(step / 20 for step in range(1, 20))
"""The interpolation weights of the grid."""

_MAX_DOUBLINGS = 5
# With fewer tokens than updates, more updates only repeat the same few examples.
_LEAST_UPDATES = 200
_SMALLEST_PROBABILITY = 1e-30


@dataclass(frozen=True)
class GridPoint:
    """A point of the grid search for the fixed combiner.

    Attributes:
        combiner: The combiner with k, weight and temperature of the point.
        loss: Its mean negative log-likelihood of the dev set, in nats.
    """

    combiner: FixedCombiner
    loss: float


def tune_fixed(examples: Examples, *, k: int | None = None) -> list[GridPoint]:
    """Search the grid of k, weight and temperature for the fixed combiner.

    Args:
        examples: The examples of a dev set.
        k: The number of neighbours; None tries 1, 2, 4, … up to those of the examples.

    Returns:
        All points of the grid, best first.
    """
    scale = examples.typical_distance()
    widest = examples.distances.shape[1]
    sizes = [k] if k is not None else neighbour_counts(1 << (widest.bit_length() - 1))
    points: list[GridPoint] = []
    for size in sizes:
        for share in TEMPERATURES:
            temperature = share * scale
            gold = _neighbours_gold(examples.nearest(size), temperature)
            for weight in WEIGHTS:
                loss = float(_interpolation_loss(examples, gold, weight))
                points.append(GridPoint(FixedCombiner(size, weight, temperature), loss))
    return sorted(points, key=lambda point: point.loss)


def fixed_loss(examples: Examples, combiner: FixedCombiner) -> float:
    """Return the mean negative log-likelihood of the true tokens with a fixed combiner.

    Args:
        examples: The examples of a dev set, with at least `combiner.k` neighbours each.
        combiner: The fixed combiner.

    Returns:
        The loss in nats a token.
    """
    gold = _neighbours_gold(examples.nearest(combiner.k), combiner.temperature)
    return float(_interpolation_loss(examples, gold, combiner.weight))


def _neighbours_gold(examples: Examples, temperature: float) -> Tensor:
    """Return p_kNN of the true token [n]; NaN where there is no neighbour at all."""
    kernel = distance_kernel(examples.distances, temperature)
    matching = (kernel * (examples.values == examples.gold[:, None])).sum(dim=1)
    total = kernel.sum(dim=1)
    return torch.where(total > 0, matching / total, torch.nan)


def _interpolation_loss(examples: Examples, gold: Tensor, weight: float) -> Tensor:
    """Return the mean of -log((1 - weight) p_base + weight p_kNN); p_kNN [n] is NaN without a neighbour."""
    base, found = examples.base_gold.double().exp(), gold.double()
    mixed = torch.where(found.isnan(), base, (1 - weight) * base + weight * found)
    return -mixed.clamp_min(_SMALLEST_PROBABILITY).log().mean()


@dataclass(frozen=True)
class MetaKSettings:
    """Settings of the Meta-k Network's training; the defaults are those of Zheng et al. 2021.

    Attributes:
        hidden: The width of the hidden layer.
        batch_sentences: Sentences of a batch.
        learning_rate: The initial learning rate of Adam.
        final_learning_rate: The lowest learning rate; it is halved on a plateau.
        label_smoothing: The share of the uniform distribution in the target.
        clip: The largest norm of a gradient.
        updates: The most updates; at most as many as the dev set has tokens, but at least 200.
        validate_every: Updates between two validations.
        patience: Validations without improvement after which training stops.
        validation: "split" validates on held-out sentences, "same" on the training sentences (the paper).
        held_out: The share of sentences that "split" holds out.
        seed: The seed of initialisation, split and batches.

    Raises:
        UsageError: `validation` is unknown.
    """

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
    """A trained adaptive combiner.

    Attributes:
        combiner: The combiner with the weights of the lowest validation loss.
        loss: That validation loss, in nats per token.
        updates: The update at which it was reached.
    """

    combiner: AdaptiveCombiner
    loss: float
    updates: int


@dataclass(frozen=True)
class _Prepared:
    """The parts of the loss that do not depend on the network's weights, computed once.

    The mixture is linear in the network's probabilities of the k's, so the contribution of each k alone is enough.

    Attributes:
        table: [n, columns] all parts side by side, so that one lookup reads a batch.
        widths: The columns of each part, in the order in which `_loss` takes them.
        vocabulary_size: The size of the vocabulary.
    """

    table: Tensor
    widths: list[int]
    vocabulary_size: int

    @classmethod
    def of(cls, network: MetaK, examples: Examples, temperature: float) -> _Prepared:
        values, kernel = examples.values, distance_kernel(examples.distances, temperature)
        matching = (values == examples.gold[:, None]).to(kernel.dtype)
        alone = [
            spread_choices(choice.expand(len(kernel), -1), kernel)
            for choice in torch.eye(network.outer.out_features).log()
        ]
        base = torch.stack([weights.base for weights in alone], dim=1)
        parts = (
            network.features(examples.distances, values),
            base,
            base * examples.base_gold.exp()[:, None]
            + torch.stack([(weights.neighbours * matching).sum(dim=1) for weights in alone], dim=1),
            torch.cat([aggregate(weights.neighbours, values) for weights in alone], dim=1),
            examples.base_neighbours,
            first_occurrences(values).to(kernel.dtype),
            examples.base_sum[:, None],
        )
        return cls(torch.cat(parts, dim=1), [part.shape[1] for part in parts], examples.vocabulary_size)

    def select(self, rows: Tensor) -> _Prepared:
        return replace(self, table=self.table[rows])


def mixture_loss(network: MetaK, examples: Examples, temperature: float, smoothing: float) -> Tensor:
    """Return the label-smoothed cross-entropy of the mixture (the paper's section 2) for each example.

    (1 - s) (-log p(gold)) + s / V * sum over the vocabulary of -log p(v). The sum is computed sparsely: p differs from
    the base model's distribution only at the neighbours' values.

    Args:
        network: The Meta-k Network.
        examples: n examples.
        temperature: The temperature T of the distance kernel.
        smoothing: The share s of the uniform distribution.

    Returns:
        [n] losses in nats.
    """
    return _loss(network, _Prepared.of(network, examples, temperature), smoothing)


def _loss(network: MetaK, ready: _Prepared, smoothing: float) -> Tensor:
    features, bases, golds, neighbours, base_neighbours, first, base_sum = torch.split(ready.table, ready.widths, dim=1)
    chosen = network.choose(features).exp()
    likelihood = -(chosen * golds).sum(dim=1).clamp_min(_SMALLEST_PROBABILITY).log()
    if smoothing == 0:
        return likelihood
    base = (chosen * bases).sum(dim=1).clamp_min(1e-12).log()
    shifted = base[:, None] + base_neighbours
    mixed = (chosen[:, None] @ neighbours.view(*chosen.shape, base_neighbours.shape[1])).squeeze(1)
    added = mixed.clamp_min(_SMALLEST_PROBABILITY).log()
    gained = torch.logaddexp(shifted, added) - shifted
    total = base_sum[:, 0] + ready.vocabulary_size * base + (gained * first).sum(dim=1)
    return (1 - smoothing) * likelihood - smoothing * total / ready.vocabulary_size


def train_adaptive(
    examples: Examples,
    temperature: float,
    settings: MetaKSettings | None = None,
    *,
    progress: Progress = silent,
) -> TrainedMetaK:
    """Train a Meta-k Network on the K nearest neighbours of the examples (the paper's section 2).

    Args:
        examples: The examples of a dev set, with K neighbours each.
        temperature: The temperature of the distance kernel.
        settings: The settings of training.
        progress: Receives the number of updates.

    Returns:
        The combiner with the weights of the lowest validation loss.
    """
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
    held_out = _Prepared.of(network, validation, temperature)
    sentences = _rows_by_sentence(training)
    best, best_loss, best_update, stale = copy.deepcopy(network), float("inf"), 0, 0
    updates = _limit_updates(settings.updates, examples)
    with _one_thread():
        for update in range(1, updates + 1):
            chosen = torch.randint(len(sentences), (settings.batch_sentences,), generator=generator)
            rows = torch.cat([sentences[i] for i in chosen.tolist()])
            loss = _loss(network, ready.select(rows), settings.label_smoothing).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(network.parameters(), settings.clip)
            optimizer.step()
            if update % settings.validate_every and update != updates:
                continue
            with torch.no_grad():
                current = float(_loss(network, held_out, 0.0).mean())
            scheduler.step(current)
            progress("Training Meta-k", update / updates, update, "updates")
            stale += 1
            if current < best_loss:
                best, best_loss, best_update, stale = copy.deepcopy(network), current, update, 0
            if stale >= settings.patience:
                break
    best.eval().requires_grad_(False)
    return TrainedMetaK(AdaptiveCombiner(best, temperature), best_loss, best_update)


def train_by_temperature(
    examples: Examples, temperature: float, settings: MetaKSettings, progress: Progress
) -> TrainedMetaK:
    """Train Meta-k Networks while doubling or halving the temperature lowers the validation loss; return the best.

    Args:
        examples: The examples of a dev set.
        temperature: The temperature of the first training, above 0, in squared distance.
        settings: The settings of each training.
        progress: Receives the updates of each training.

    Returns:
        The combiner of the lowest validation loss, with that loss.
    """
    best = first = train_adaptive(examples, temperature, settings, progress=progress)
    for factor in (2.0, 0.5):
        for _ in range(_MAX_DOUBLINGS):
            trial = train_adaptive(examples, best.combiner.temperature * factor, settings, progress=progress)
            if trial.loss >= best.loss:
                break
            best = trial
        if best is not first:
            break
    return best


@dataclass(frozen=True)
class ContextualSettings:
    """Settings of the contextual combiner's training.

    Attributes:
        hidden: The width of the layer that sees all neighbours.
        neighbour_hidden: The width of the layer of each neighbour.
        batch: Tokens of a batch.
        learning_rate: The initial learning rate of Adam; it falls linearly to 0.
        start_learning_rate: The same, if training starts from a trained network.
        clip: The largest norm of a gradient.
        updates: The number of updates; 0 returns the network that training starts from. At most as many as the dev set
            has tokens, but at least 200.
        validate_every: Updates between two validations; the weights of the lowest validation loss are kept.
        held_out: The share of sentences for validation.
        general_share: With a dev set, the share of the model's general combiner in the average of its weights and the
            trained ones: it keeps the weight of the memory low in text that is not the memory's.
        sampled_shift: What is subtracted from the base model's score without a dev set. Likelihood gives the base model
            more weight than is best for translations, the more so where the domain is unknown.
        trusted_pairs: Without a dev set, the number of sampled pairs from which on the trained weights are used as they
            are. With fewer pairs they are averaged with the general ones in proportion: a small memory is often one
            document, and its pairs resemble each other more than they resemble new text.
        seed: The seed of initialisation, split and batches.
    """

    hidden: int = 64
    neighbour_hidden: int = 32
    batch: int = 2048
    learning_rate: float = 1e-3
    start_learning_rate: float = 3e-4
    clip: float = 1.0
    updates: int = 2000
    validate_every: int = 100
    held_out: float = 0.15
    general_share: float = 0.6
    sampled_shift: float = 0.5
    trusted_pairs: int = 2000
    seed: int = 0


@dataclass(frozen=True)
class TrainedContextual:
    """A trained contextual combiner.

    Attributes:
        combiner: The combiner with the weights of the lowest validation loss.
        loss: That validation loss, in nats per token.
        start_loss: The validation loss of the network that training started from; None without one.
        updates: The update at which the lowest loss was reached; 0 for the network that training started from.
    """

    combiner: ContextualCombiner
    loss: float
    start_loss: float | None
    updates: int


class _ContextualInputs(NamedTuple):
    """The inputs of the loss, [n, …] each: features of neighbours and rows, matches, absent neighbours, p_NMT(gold)."""

    features: Tensor
    row_features: Tensor
    matching: Tensor
    absent: Tensor
    base_gold: Tensor

    @classmethod
    def of(cls, network: ContextualNetwork, examples: Examples) -> _ContextualInputs:
        assert examples.context is not None
        features = network.features(examples.distances, examples.values, examples.context)
        matching = (examples.values == examples.gold[:, None]).to(features[0].dtype)
        return cls(*features, matching, ~examples.distances.isfinite(), examples.base_gold.exp())

    def select(self, rows: Tensor) -> _ContextualInputs:
        return _ContextualInputs(*(column[rows] for column in self))


def _contextual_loss(network: ContextualNetwork, inputs: _ContextualInputs) -> Tensor:
    """Return the mean of -log p(gold) in the mixture."""
    scores = network(inputs.features, inputs.row_features)
    hidden = torch.nn.functional.pad(inputs.absent, (1, 0))
    weights = scores.masked_fill(hidden, -torch.inf).softmax(dim=1)
    mixed: Tensor = weights[:, 0] * inputs.base_gold + (weights[:, 1:] * inputs.matching).sum(dim=1)
    return -mixed.clamp_min(1e-12).log().mean()


def train_contextual(
    examples: Examples,
    settings: ContextualSettings | None = None,
    *,
    start: ContextualNetwork | None = None,
    progress: Progress = silent,
) -> TrainedContextual:
    """Train a contextual combiner on the K nearest neighbours of the examples.

    Args:
        examples: The examples of a dev set, with K neighbours and their context.
        settings: The settings of training.
        start: A trained network to start from, for the same K; its scale is set to that of the examples' space. Its
            own weights are returned where no update lowers the validation loss.
        progress: Receives the number of updates.

    Raises:
        UsageError: The examples have no context, or `start` takes another number of neighbours.
    """
    settings = settings or ContextualSettings()
    width = examples.distances.shape[1]
    if examples.context is None:
        raise UsageError("The contextual combiner needs examples of a memory with source vectors: learn it again.")
    if start is not None and start.k != width:
        raise UsageError(f"The combiner to start from takes {start.k} neighbours, not {width}: use that k.")
    generator = torch.Generator().manual_seed(settings.seed)
    training, validation = _hold_out(examples, settings.held_out, generator)
    if start is None:
        with torch.random.fork_rng():
            torch.manual_seed(settings.seed)
            network = ContextualNetwork(width, examples.typical_distance(), settings.hidden, settings.neighbour_hidden)
    else:
        network = copy.deepcopy(start).requires_grad_(True)
    rate = settings.learning_rate if start is None else settings.start_learning_rate
    optimizer = torch.optim.Adam(network.parameters(), lr=rate, fused=True)
    updates = _limit_updates(settings.updates, examples)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, max(1, updates))
    inputs, held_out = _ContextualInputs.of(network, training), _ContextualInputs.of(network, validation)
    start_loss = None
    best, best_loss, best_update = copy.deepcopy(network), math.inf, 0
    if start is not None:
        with torch.no_grad():
            start_loss = best_loss = float(_contextual_loss(network, held_out))
    batch = min(settings.batch, len(training))
    with _one_thread():
        for update in range(1, updates + 1):
            rows = torch.randint(len(training), (batch,), generator=generator)
            loss = _contextual_loss(network, inputs.select(rows))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(network.parameters(), settings.clip)
            optimizer.step()
            schedule.step()
            if update % settings.validate_every and update != updates:
                continue
            with torch.no_grad():
                current = float(_contextual_loss(network, held_out))
            progress("Training the combiner", update / updates, update, "updates")
            if current < best_loss:
                best, best_loss, best_update = copy.deepcopy(network), current, update
    best.eval().requires_grad_(False)
    return TrainedContextual(ContextualCombiner(best), best_loss, start_loss, best_update)


def _limit_updates(updates: int, examples: Examples) -> int:
    """Return the number of updates for a dev set, which is smaller for one of few tokens."""
    return min(updates, max(_LEAST_UPDATES, len(examples)))


def average_networks(one: ContextualNetwork, other: ContextualNetwork, share: float) -> ContextualNetwork:
    """Average the weights of two networks, of which one was trained from the other.

    Args:
        one: The first network.
        other: The second one.
        share: The share of the first one, from 0 to 1.
    """
    averaged = copy.deepcopy(other)
    mine, theirs = one.state_dict(), other.state_dict()
    averaged.load_state_dict({name: share * mine[name] + (1 - share) * theirs[name] for name in theirs})
    return averaged.eval().requires_grad_(False)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread: for a network this small, a second one costs more time than it saves."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _split(examples: Examples, settings: MetaKSettings, generator: torch.Generator) -> tuple[Examples, Examples]:
    """Split the examples by sentence into training and validation examples."""
    if settings.validation == "same":
        return examples, examples
    return _hold_out(examples, settings.held_out, generator)


def _hold_out(examples: Examples, share: float, generator: torch.Generator) -> tuple[Examples, Examples]:
    """Hold out a share of the sentences; of a single sentence, all examples are in both parts."""
    numbers = torch.unique(examples.sentences)
    if len(numbers) < 2:
        return examples, examples
    size = max(1, int(len(numbers) * share))
    chosen = numbers[torch.randperm(len(numbers), generator=generator)[:size]]
    out = torch.isin(examples.sentences, chosen)
    return examples.select(~out), examples.select(out)


def _rows_by_sentence(examples: Examples) -> list[Tensor]:
    _, sizes = torch.unique_consecutive(examples.sentences, return_counts=True)
    return list(torch.split(torch.arange(len(examples)), sizes.tolist()))
