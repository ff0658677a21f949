"""The examples that combiners are tuned on, against brute force."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from ibidem.combine import EntryTable
from ibidem.errors import TextError
from ibidem.learn import Examples, gather_examples
from ibidem.retrieve import open_index

if TYPE_CHECKING:
    from ibidem.memory import Memory
    from ibidem.model import BaseModel

K = 8


def gather(
    model: BaseModel,
    memory: Memory,
    sources: list[str],
    targets: list[str],
    hidden: list[range] | None = None,
    k: int = K,
) -> Examples:
    index = open_index(memory, "exact", model.device)
    values = torch.from_numpy(memory.values().astype(np.int64))
    # Small batches, so that rows of many batches must be put back in order.
    return gather_examples(model, index, EntryTable(values), sources, targets, k, hidden=hidden, batch_tokens=200)


def check_against_brute_force(
    model: BaseModel,
    memory: Memory,
    found: Examples,
    sources: list[str],
    targets: list[str],
    hidden: list[range] | None = None,
) -> None:
    keys = np.asarray(memory.keys.gather(np.arange(memory.entries)), np.float64)
    values = memory.values()
    row = compared = 0
    for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
        ids = model.tokens.encode_targets([target])
        states = model.states(model.tokens.encode_sources([source]), ids)
        log_probs = model.project(states.keys).double().log_softmax(dim=1)
        for position, gold in enumerate(ids[0]):
            distances = ((keys - states.keys[position].double().numpy()) ** 2).sum(axis=1)
            if hidden is not None:
                distances[hidden[number].start : hidden[number].stop] = np.inf
            nearest = distances.argsort(kind="stable")[: K + 1]
            np.testing.assert_allclose(found.distances[row], distances[nearest[:K]], atol=1e-3, rtol=1e-3)
            # Where two keys are as good as equally near, either may come first.
            gaps = np.diff(distances[nearest])
            clear = np.concatenate([[True], gaps[:-1] > 1e-3]) & (gaps > 1e-3)
            np.testing.assert_array_equal(found.values[row][clear], values[nearest[:K]][clear])
            compared += int(clear.sum())
            expected = log_probs[position, found.values[row]]
            np.testing.assert_allclose(found.base_neighbours[row], expected, atol=1e-3)
            assert int(found.gold[row]) == gold
            assert float(found.base_gold[row]) == pytest.approx(float(log_probs[position, gold]), abs=1e-3)
            assert float(found.base_sum[row]) == pytest.approx(float(log_probs[position].sum()), rel=1e-4)
            assert int(found.sentences[row]) == number
            row += 1
    assert row == len(found)
    assert compared > row, "too few neighbours stand clear of each other for the test to mean anything"


def test_examples_of_sentences_outside_the_memory(tiny: BaseModel, learnt: Memory) -> None:
    sources = [
        "Die Datei wurde nicht gefunden.",
        "Ja.",
        "Bitte wählen Sie einen anderen Namen für das Objekt.",
    ]
    targets = ["The file was not found.", "Yes.", "Please choose another name for the object."]
    found = gather(tiny, learnt, sources, targets)
    assert found.vocabulary_size == tiny.vocabulary_size
    check_against_brute_force(tiny, learnt, found, sources, targets)


def test_hidden_entries_are_never_neighbours(tiny: BaseModel, learnt: Memory) -> None:
    pairs = [learnt.sentence(i) for i in (3, 50, 200)]
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    hidden = [pair.entries for pair in pairs]
    # Unhidden, every token finds itself; hidden, what is found is what brute force finds without it.
    itself = gather(tiny, learnt, sources, targets)
    assert float(itself.distances[:, 0].max()) < 1e-2
    found = gather(tiny, learnt, sources, targets, hidden)
    assert float((found.distances[:, 0] - itself.distances[:, 0]).median()) > 1e-3
    check_against_brute_force(tiny, learnt, found, sources, targets, hidden)


def test_when_all_but_a_few_entries_are_hidden(tiny: BaseModel, learnt: Memory) -> None:
    """A hidden entry leaves an infinite distance, not a neighbour."""
    pair = learnt.sentence(0)
    left = range(3, learnt.entries)
    found = gather(tiny, learnt, [pair.source], [pair.target], [left])
    assert bool(found.distances[:, :3].isfinite().all())
    assert bool(found.distances[:, 3:].isinf().all())
    assert set(found.values[:, :3].flatten().tolist()) <= set(learnt.values()[:3].tolist())


def test_pairs_above_the_length_limit_are_skipped(tiny: BaseModel, learnt: Memory) -> None:
    long = "Wort " * 200
    found = gather(tiny, learnt, [long, "Hallo.", "Hallo."], ["a", "Hello.", long])
    assert found.sentences.unique().tolist() == [1]
    with pytest.raises(TextError, match="None of the 2 pairs"):
        gather(tiny, learnt, [long, "Hallo."], ["a", long])


def test_selections(tiny: BaseModel, learnt: Memory) -> None:
    found = gather(tiny, learnt, ["Hallo.", "Datei"], ["Hello.", "File"])
    second = found.select(found.sentences == 1)
    assert second.sentences.unique().tolist() == [1]
    assert torch.equal(second.gold, found.gold[found.sentences == 1])
    near = found.nearest(2)
    assert near.distances.shape == near.values.shape == near.base_neighbours.shape == (len(found), 2)
    assert torch.equal(near.values, found.values[:, :2])
