"""The arithmetic of rows that count, time and project."""

from __future__ import annotations

import numpy as np
import pytest

from ibidem.evaluate import Speed
from ibidem.learn import group_entries
from ibidem.reproduce.rows.statistics import choose_bigram, describe_sizes, number_clusters, purity, sample_tokens
from ibidem.reproduce.rows.translation import speed_figures, spread_evenly, storage_of


def test_sentences_are_drawn_evenly() -> None:
    items = [str(number) for number in range(10)]
    assert spread_evenly(items, 5) == ["0", "2", "4", "6", "8"]
    assert spread_evenly(items, 3) == ["0", "3", "6"]
    assert spread_evenly(items, 99) == items


def test_speed_is_the_median_of_the_rounds() -> None:
    found = speed_figures([Speed(10, 100, seconds) for seconds in (1.0, 2.0, 10.0)])
    assert found["sentences_per_second"] == 5
    assert found["tokens_per_second"] == 50
    assert found["milliseconds_per_token"] == 20
    assert found["rounds"] == [100, 50, 10]


def test_storage_is_that_of_the_searched_keys() -> None:
    assert storage_of({"keys": 1024, "values": 4, "sources": 9}) == {"keys_and_values": 1028, "index": 0}
    both = {"keys": 1024, "compact": 128, "values": 4, "index": 72}
    assert storage_of(both) == {"keys_and_values": 132, "index": 72}


def test_how_often_ngrams_recur() -> None:
    found = describe_sizes(np.array([1, 1, 8, 10]))
    assert found["distinct"] == 4
    assert found["mean_occurrences"] == 5
    assert found["share_recurring"] == pytest.approx(0.9)
    assert found["share_in_ten_or_more"] == pytest.approx(0.5)


def test_the_most_frequent_bigram_of_two_words(tiny) -> None:
    lines = ["the file and the file", "the file the file 1 1 1 1 1 1 1 1"]
    encoded = tiny.tokens.encode_targets(lines)
    values = np.array([token for ids in encoded for token in ids], np.int32)
    offsets = np.cumsum([0, *map(len, encoded)])
    rows = np.arange(len(values))
    bigrams = group_entries(values, offsets, rows, 2)
    chosen = choose_bigram(bigrams, values, rows, tiny.tokens)
    row = rows[bigrams.order[bigrams.bounds[chosen]]]
    words = tiny.tokens.decode([int(values[row - 1]), int(values[row])])
    assert len(words.split()) == 2
    assert words.replace(" ", "").isalpha()


def test_clusters_are_numbered_by_entry() -> None:
    parts = group_entries(np.array([5, 3, 5, 3]), np.array([0, 4]), np.arange(4))
    assert number_clusters(parts, 4).tolist() == [1, 0, 1, 0]


def test_purity_is_the_share_of_neighbours_of_the_same_token() -> None:
    tokens = np.repeat([1, 2], 20).astype(np.int32)
    apart = np.concatenate([np.zeros((20, 3)), np.full((20, 3), 100.0)]).astype(np.float32)
    apart += np.random.default_rng(1).normal(size=apart.shape).astype(np.float32)
    assert purity(apart, tokens) == 1
    mixed = np.random.default_rng(2).normal(size=(40, 3)).astype(np.float32)
    assert 0.2 < purity(mixed, tokens) < 0.8


def test_tokens_are_frequent_words(tiny) -> None:
    ids = tiny.tokens.encode_targets(["the and of 1 2 , ."])[0]
    values = np.repeat(ids, 9).astype(np.int32)
    chosen = sample_tokens(values, 2, 5, tiny.tokens, np.random.default_rng(0))
    words = [tiny.tokens.decode([int(token)]) for token in chosen]
    assert len(words) == 2
    assert all(word.isalpha() for word in words)
    few = sample_tokens(values, 2, 500, tiny.tokens, np.random.default_rng(0))
    assert len(few) == 2
