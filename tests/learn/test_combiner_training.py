"""Training of combiners: the grid search and the loss of Meta-k against dense mixtures, and Meta-k's training."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ibidem.combine import ContextualNetwork, MetaK, NeighbourContext, neighbour_counts
from ibidem.errors import UsageError
from ibidem.learn import Examples, MetaKSettings, train_adaptive, tune_fixed
from ibidem.learn.combiner_training import (
    TEMPERATURES,
    WEIGHTS,
    ContextualSettings,
    mixture_loss,
    train_contextual,
)

from .samples import Dense, neighbour_distribution, random_examples


def dense_loss(dense: Dense, k: int, weight: float, temperature: float) -> float:
    """Compute the mean of -log((1 - w) p_NMT + w p_kNN) of the true token, over whole distributions."""
    examples, base = dense
    losses = []
    for row in range(len(examples)):
        found = neighbour_distribution(
            examples.distances[row], examples.values[row], k, temperature, examples.vocabulary_size
        )
        nmt = base[row].exp()
        mixed = (1 - weight) * nmt + weight * found if found.sum() > 0 else nmt
        assert float(mixed.sum()) == pytest.approx(1.0)
        losses.append(-float(mixed[examples.gold[row]].log()))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("k", [None, 4])
def test_every_grid_point_equals_the_dense_mixture(k: int | None) -> None:
    dense = random_examples(3, rows=12)
    points = tune_fixed(dense.examples, k=k)
    sizes = [1, 2, 4, 8] if k is None else [k]
    assert len(points) == len(sizes) * len(TEMPERATURES) * len(WEIGHTS)
    assert sorted({point.combiner.k for point in points}) == sizes
    expected = {
        point.combiner: dense_loss(dense, point.combiner.k, point.combiner.weight, point.combiner.temperature)
        for point in points
    }
    for point in points:
        assert point.loss == pytest.approx(expected[point.combiner], rel=1e-9)
    assert expected[points[0].combiner] == pytest.approx(min(expected.values()), rel=1e-9)


def test_the_best_weight_depends_on_the_memory() -> None:
    """A memory that is always right gets the greatest weight, one that is always wrong the smallest."""
    examples = random_examples(5).examples
    near = examples.distances.clamp(max=30)
    right = examples.gold[:, None].expand_as(examples.values)
    wrong = (right + 1) % examples.vocabulary_size
    for values, weight in ((right, max(WEIGHTS)), (wrong, min(WEIGHTS))):
        changed = type(examples)(
            near,
            values,
            torch.zeros_like(near),
            examples.gold,
            examples.base_gold,
            examples.base_sum,
            examples.sentences,
            examples.vocabulary_size,
        )
        assert tune_fixed(changed)[0].combiner.weight == weight


def random_network(k: int, seed: int) -> MetaK:
    """Make a network with weights far from the initialisation, so that every k matters."""
    torch.manual_seed(seed)
    network = MetaK(k, 10.0).double()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return network.requires_grad_(False)


def dense_losses(network: MetaK, dense: Dense, temperature: float, smoothing: float) -> torch.Tensor:
    """Compute the label-smoothed cross-entropy from p = sum over k of p_beta(k) p_kNN(k), over the whole vocabulary."""
    examples, base = dense
    chosen = network(examples.distances, examples.values).exp()
    losses = []
    for row in range(len(examples)):
        mixed = chosen[row, 0] * base[row].exp()
        for choice, k in enumerate(neighbour_counts(network.k), start=1):
            found = neighbour_distribution(
                examples.distances[row], examples.values[row], k, temperature, examples.vocabulary_size
            )
            # Without any neighbour a choice of k > 0 is the base model's too.
            mixed = mixed + chosen[row, choice] * (found if found.sum() > 0 else base[row].exp())
        assert float(mixed.sum()) == pytest.approx(1.0)
        logs = mixed.log()
        losses.append(-(1 - smoothing) * logs[examples.gold[row]] - smoothing * logs.mean())
    return torch.stack(losses)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    k=st.sampled_from([1, 2, 4, 8]),
    temperature=st.floats(0.5, 100),
    smoothing=st.sampled_from([0.0, 0.001, 0.1, 0.5]),
)
def test_the_loss_equals_the_dense_one(seed: int, k: int, temperature: float, smoothing: float) -> None:
    dense = random_examples(seed, rows=12, k=k, vocabulary=7)
    network = random_network(k, seed)
    found = mixture_loss(network, dense.examples, temperature, smoothing)
    torch.testing.assert_close(found, dense_losses(network, dense, temperature, smoothing), rtol=1e-8, atol=1e-9)


def test_single_precision_is_near_the_dense_loss() -> None:
    dense = random_examples(11)
    network = random_network(8, 11)
    single = random_examples(11, dtype=torch.float32).examples
    found = mixture_loss(random_network(8, 11).float(), single, 10.0, 0.001)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), dense_losses(network, dense, 10.0, 0.001), rtol=1e-3, atol=1e-4)


def helpful(seed: int = 0, sentences: int = 60, width: int = 6, k: int = 4) -> Examples:
    """Make a memory that is right when near and wrong when far, with a nearly uniform base model."""
    draw = torch.Generator().manual_seed(seed)
    rows, size = sentences * width, 50
    near = torch.rand(rows, generator=draw) < 0.6
    distances = torch.rand(rows, k, generator=draw) + torch.where(near, 1.0, 20.0)[:, None]
    gold = torch.randint(0, size, (rows,), generator=draw)
    noise = torch.randint(0, size, (rows, k), generator=draw)
    return Examples(
        distances.sort(dim=1).values,
        torch.where(near[:, None], gold[:, None], noise),
        torch.full((rows, k), 0.02).log(),
        gold,
        torch.full((rows,), 0.1).log(),
        torch.full((rows,), 0.02).log() * size,
        torch.arange(rows) // width,
        size,
    )


QUICK = MetaKSettings(updates=400, validate_every=20, learning_rate=0.01)


def test_training_beats_the_base_model_and_every_fixed_mixture() -> None:
    examples = helpful()
    trained = train_adaptive(examples, 1.0, QUICK)
    base = float(-examples.base_gold.mean())
    assert trained.loss < base - 0.5
    # The weight depends on the distance: on other data, near neighbours have a weight and far ones have none.
    fresh = helpful(seed=1)
    weights = trained.combiner.weigh(fresh.distances, fresh.values)
    near = fresh.distances[:, 0] < 10
    assert float(weights.base[near].mean()) < 0.3
    assert float(weights.base[~near].mean()) > 0.7
    adaptive = float(mixture_loss(trained.combiner.network, fresh, 1.0, 0.0).mean())
    assert adaptive < tune_fixed(fresh)[0].loss < base


def test_the_same_seed_gives_the_same_network_and_keeps_the_callers_random_state() -> None:
    examples = helpful()
    before = torch.get_rng_state()
    first = train_adaptive(examples, 1.0, QUICK)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    again = train_adaptive(examples, 1.0, QUICK)
    other = train_adaptive(examples, 1.0, replace(QUICK, seed=1))
    assert (first.loss, first.updates) == (again.loss, again.updates)
    assert same_weights(first.combiner.network, again.combiner.network)
    assert not same_weights(first.combiner.network, other.combiner.network)


def with_context(examples: Examples, seed: int = 0) -> Examples:
    """Add a context in which only the distance between sources tells right neighbours from wrong ones."""
    draw = torch.Generator().manual_seed(seed)
    right = examples.values == examples.gold[:, None]
    apart = torch.where(right, 0.1, 0.9) + 0.1 * torch.rand(right.shape, generator=draw)
    stored = torch.full(right.shape, -1.0)
    top = torch.full((len(examples), 2), 0.1).log()
    context = NeighbourContext(examples.base_neighbours, stored, apart, top)
    return replace(examples, distances=torch.ones_like(examples.distances), context=context)


QUICK_CONTEXTUAL = ContextualSettings(updates=300, validate_every=50, batch=256, learning_rate=0.01)


def test_contextual_training_uses_the_context() -> None:
    examples, fresh = with_context(helpful()), with_context(helpful(seed=1), seed=1)
    trained = train_contextual(examples, QUICK_CONTEXTUAL)
    assert trained.start_loss is None
    assert trained.loss < train_adaptive(examples, 1.0, QUICK).loss - 0.03
    weights = trained.combiner.weigh(fresh.distances, fresh.values, fresh.context)
    right = (fresh.values == fresh.gold[:, None]).any(dim=1)
    assert float(weights.base[right].mean()) < 0.3
    assert float(weights.base[~right].mean()) > 0.7


def test_contextual_training_from_a_network_never_gets_worse() -> None:
    examples = with_context(helpful())
    start = train_contextual(examples, QUICK_CONTEXTUAL).combiner.network
    again = train_contextual(examples, replace(QUICK_CONTEXTUAL, updates=0), start=start)
    assert again.updates == 0
    assert again.loss == again.start_loss
    assert same_weights(again.combiner.network, start)
    more = train_contextual(examples, QUICK_CONTEXTUAL, start=start)
    assert more.start_loss is not None
    assert more.loss <= more.start_loss


def test_contextual_training_needs_a_context_and_the_same_k() -> None:
    with pytest.raises(UsageError, match="source vectors"):
        train_contextual(helpful())
    with pytest.raises(UsageError, match="takes 8 neighbours, not 4"):
        train_contextual(with_context(helpful()), start=ContextualNetwork(8, 1.0))


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(one.state_dict()[name], tensor) for name, tensor in other.state_dict().items())


def test_the_best_weights_are_a_copy() -> None:
    """A run that continues after its best validation returns the weights of that validation, not the last ones."""
    examples = helpful(sentences=12)
    wild = MetaKSettings(updates=300, validate_every=10, learning_rate=0.5, patience=30, label_smoothing=0.2)
    long = train_adaptive(examples, 1.0, wild)
    assert long.updates < 300, "the last weights were the best: the test shows nothing"
    stopped = train_adaptive(examples, 1.0, replace(wild, updates=long.updates))
    assert stopped.updates == long.updates
    assert same_weights(long.combiner.network, stopped.combiner.network)
    assert not any(parameter.requires_grad for parameter in long.combiner.network.parameters())


def test_validation_on_the_training_set() -> None:
    """As in the paper, the loss is that of all examples, and no sentence is held out."""
    examples = helpful()
    same = train_adaptive(examples, 1.0, replace(QUICK, validation="same"))
    over_all = float(mixture_loss(same.combiner.network, examples, 1.0, 0.0).mean())
    assert same.loss == pytest.approx(over_all, rel=1e-6)
    split = train_adaptive(examples, 1.0, QUICK)
    over_all = float(mixture_loss(split.combiner.network, examples, 1.0, 0.0).mean())
    assert split.loss != pytest.approx(over_all, rel=1e-6)


def test_held_out_sentences_are_not_trained_on() -> None:
    """Of ten sentences one is held out: changing that one, and no other, leaves the weights as they were."""
    examples = helpful(sentences=10)
    once = replace(QUICK, updates=40, validate_every=40, held_out=0.1)
    network = train_adaptive(examples, 1.0, once).combiner.network
    unmoved = 0
    for sentence in range(10):
        changed = (examples.sentences == sentence) & (examples.distances[:, 0] < 10)
        gold = torch.where(changed, (examples.gold + 1) % 50, examples.gold)
        other = train_adaptive(replace(examples, gold=gold), 1.0, once).combiner.network
        unmoved += same_weights(network, other)
    assert unmoved == 1


def test_one_sentence_is_enough() -> None:
    assert train_adaptive(helpful(sentences=1), 1.0, replace(QUICK, updates=20)).loss < 10


@pytest.mark.parametrize(("sentences", "most"), [(2, 200), (60, 360)])
def test_few_examples_take_few_updates(sentences: int, most: int) -> None:
    counts: list[int] = []

    def note(_text: str, share: float | None, done: int, _unit: str) -> None:
        counts.append(done)
        assert share == done / most

    examples = with_context(helpful(sentences=sentences))
    train_adaptive(examples, 1.0, replace(QUICK, updates=5000, patience=1000), progress=note)
    train_contextual(examples, replace(QUICK_CONTEXTUAL, updates=5000), progress=note)
    assert counts.count(most) == 2
    assert max(counts) == most


def test_unknown_validation() -> None:
    with pytest.raises(UsageError, match="use split, or same"):
        MetaKSettings(validation="some")
