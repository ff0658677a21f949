"""Each loss is the formula it cites: its value by plain loops, its gradient by finite differences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from ibidem.learn.compact.losses import (
    BinaryNceLoss,
    ClippedRankingLoss,
    CompactTriplets,
    DistanceRankingLoss,
    InBatchNceLoss,
    WordPredictionLoss,
    build_loss,
)

from .samples import quick

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, DIMENSION, WORDS = 5, 3, 7


def random_triplet(seed: int = 0, scale: float = 1.0) -> CompactTriplets:
    draw = torch.Generator().manual_seed(seed)
    states = (scale * torch.randn(3, ROWS, DIMENSION, generator=draw, dtype=torch.float64)).unbind()
    words = torch.randint(0, WORDS, (2, ROWS), generator=draw)
    return CompactTriplets(*states, words[0], words[1])


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def dot(x: Tensor, y: Tensor) -> float:
    return sum(a * b for a, b in zip(x.tolist(), y.tolist(), strict=True))


def distance(x: Tensor, y: Tensor) -> float:
    return math.sqrt(sum((float(a) - float(b)) ** 2 for a, b in zip(x, y, strict=True)))


def binary_nce(triplet: CompactTriplets, part: nn.Module) -> float:
    weight, bias = part.head.weight[0].detach(), float(part.head.bias.detach())
    total = 0.0
    for i in range(ROWS):
        same = dot(weight, torch.cat([triplet.positive[i], triplet.pivot[i]])) + bias
        other = dot(weight, torch.cat([triplet.negative[i], triplet.pivot[i]])) + bias
        total += -math.log(sigmoid(same)) - math.log(1 - sigmoid(other))
    return total / ROWS


def in_batch_nce(triplet: CompactTriplets, part: nn.Module) -> float:
    total = 0.0
    for i in range(ROWS):
        logits = [dot(triplet.positive[i], pivot) for pivot in triplet.pivot]
        logits += [dot(triplet.negative[i], pivot) for pivot in triplet.pivot]
        logs = [x - math.log(sum(math.exp(y) for y in logits)) for x in logits]
        total += -(1 - part.smoothing) * logs[i] - part.smoothing * sum(logs) / (2 * ROWS)
    return total / ROWS


def paper_ranking(triplet: CompactTriplets, _part: nn.Module) -> float:
    rows = zip(triplet.pivot, triplet.positive, triplet.negative, strict=True)
    return sum(distance(a, p) + 1 / distance(n, p) for p, a, n in rows) / ROWS


def clipped_ranking(triplet: CompactTriplets, _part: nn.Module) -> float:
    def repel(x: Tensor, y: Tensor) -> float:
        return 10 / (min(distance(x, y) ** 2, 10) + 0.001)

    rows = zip(triplet.pivot, triplet.positive, triplet.negative, strict=True)
    own = sum(distance(a, p) ** 2 + repel(n, p) for p, a, n in rows) / ROWS
    following = [repel(triplet.negative[i], triplet.negative[i + 1]) for i in range(ROWS - 1)]
    return own + sum(following) / len(following)


def word_prediction(triplet: CompactTriplets, part: nn.Module) -> float:
    total = 0.0
    for states, words in (
        (triplet.pivot, triplet.tokens),
        (triplet.positive, triplet.tokens),
        (triplet.negative, triplet.negative_tokens),
    ):
        for state, word in zip(states, words.tolist(), strict=True):
            logits = [dot(row, state) for row in part.head.weight]
            logs = [x - math.log(sum(math.exp(y) for y in logits)) for x in logits]
            total += -(1 - part.smoothing) * logs[word] - part.smoothing * sum(logs) / WORDS
    return total / ROWS


PARTS: list[tuple[nn.Module, Callable[[CompactTriplets, nn.Module], float]]] = [
    (BinaryNceLoss(DIMENSION), binary_nce),
    (InBatchNceLoss(0.0), in_batch_nce),
    (InBatchNceLoss(0.002), in_batch_nce),
    (InBatchNceLoss(0.3), in_batch_nce),
    (DistanceRankingLoss(), paper_ranking),
    (ClippedRankingLoss(), clipped_ranking),
    (WordPredictionLoss(DIMENSION, WORDS, 0.0), word_prediction),
    (WordPredictionLoss(DIMENSION, WORDS, 0.3), word_prediction),
]


@pytest.mark.parametrize(("part", "formula"), PARTS)
@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_the_value_is_that_of_the_formula(part: nn.Module, formula, scale: float) -> None:
    triplet = random_triplet(scale=scale)
    assert float(part.double().requires_grad_(False)(triplet)) == pytest.approx(formula(triplet, part), rel=1e-9)


@pytest.mark.parametrize(("part", "_formula"), PARTS)
def test_the_gradient_is_that_of_finite_differences(part: nn.Module, _formula) -> None:
    triplet = random_triplet(seed=1)
    part = part.double().requires_grad_()
    parameters = tuple(part.parameters())

    def loss(pivot: Tensor, positive: Tensor, negative: Tensor, *_weights: Tensor) -> Tensor:
        return part(CompactTriplets(pivot, positive, negative, triplet.tokens, triplet.negative_tokens))

    states = tuple(state.clone().requires_grad_() for state in triplet[:3])
    assert torch.autograd.gradcheck(loss, (*states, *parameters))


@pytest.mark.parametrize("part", [part for part, _ in PARTS])
@pytest.mark.parametrize("scale", [0.0, 1e-12, 1e4])
def test_extremes_stay_finite(part: nn.Module, scale: float) -> None:
    """Equal keys, and outputs far beyond any that training reaches."""
    triplet = random_triplet(scale=scale)
    states = [state.float().requires_grad_() for state in triplet[:3]]
    loss = part.float()(CompactTriplets(*states, triplet.tokens, triplet.negative_tokens))
    loss.backward()
    assert bool(torch.isfinite(loss))
    assert all(bool(torch.isfinite(state.grad).all()) for state in states)


def test_the_loss_is_the_weighted_sum_of_the_named_readings() -> None:
    triplet = random_triplet()
    settings = quick(
        dimension=DIMENSION,
        objectives=(("prediction", 0.25), ("nce", 2.0), ("ranking", 0.5)),
        nce="binary",
        ranking="clipped",
        label_smoothing=0.1,
    )
    objective = build_loss(settings, WORDS).double()
    prediction, nce, ranking = objective.parts
    expected = (
        0.25 * word_prediction(triplet, prediction)
        + 2 * binary_nce(triplet, nce)
        + 0.5 * clipped_ranking(triplet, ranking)
    )
    assert float(objective(triplet).detach()) == pytest.approx(expected, rel=1e-9)
    assert prediction.smoothing == 0.1
    other = build_loss(quick(objectives=(("nce", 1.0), ("ranking", 1.0)), label_smoothing=0.1), WORDS)
    assert isinstance(other.parts[0], InBatchNceLoss)
    assert other.parts[0].smoothing == 0.1
    assert isinstance(other.parts[1], DistanceRankingLoss)


def test_binary_nce_with_a_linear_head_cannot_separate_pairs() -> None:
    """Over all triplets of four families, no weights go below 2 log 2, the loss of a constant classifier."""
    states = 3 * torch.randn(4, 3, DIMENSION, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    numbers = [
        (family, pivot, positive, other, negative)
        for family in range(4)
        for pivot in range(3)
        for positive in range(3)
        for other in range(4)
        for negative in range(3)
        if positive != pivot and other != family
    ]
    family, pivot, positive, other, negative = torch.tensor(numbers).T
    words = torch.zeros(len(numbers), dtype=torch.int64)
    part = BinaryNceLoss(DIMENSION).double()

    def loss() -> Tensor:
        return part(
            CompactTriplets(states[family, pivot], states[family, positive], states[other, negative], words, words)
        )

    for seed in range(20):
        torch.manual_seed(seed)
        for parameter in part.parameters():
            nn.init.normal_(parameter, std=seed / 10)
        assert float(loss().detach()) >= 2 * math.log(2) - 1e-12
    # Not even for keys that are the unit vector of their family, though all pairs are separable.
    states = torch.eye(4, DIMENSION, dtype=torch.float64)[:, None].expand(4, 3, DIMENSION)
    optimizer = torch.optim.LBFGS(part.parameters(), max_iter=100)

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    optimizer.step(closure)
    assert float(loss().detach()) == pytest.approx(2 * math.log(2), abs=1e-6)
