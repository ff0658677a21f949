"""Exact and fuzzy matches, compared with a plain edit distance and with a comparison of all pairs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ibidem.memory import Memory, find_matches, similarity
from ibidem.memory.matches import edit_distance, nearest_vectors

from .samples import append, one, record, sample

if TYPE_CHECKING:
    from pathlib import Path


def plain_distance(one: str, other: str) -> int:
    row = list(range(len(other) + 1))
    for number, character in enumerate(one, 1):
        last, row[0] = row[0], number
        for place, another in enumerate(other, 1):
            last, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, last + (character != another))
    return row[-1]


TEXTS = st.text(st.sampled_from("abä "), max_size=20)


@given(TEXTS, TEXTS)
def test_edit_distance_is_that_of_levenshtein(first: str, second: str) -> None:
    assert edit_distance(first, second) == plain_distance(first, second)
    assert edit_distance(first * 20, second) == plain_distance(first * 20, second)


@given(st.text(), st.text())
def test_only_equal_texts_have_100_percent(first: str, second: str) -> None:
    percent = similarity(first, second)
    assert percent == similarity(second, first)
    assert 0 <= percent <= 100
    assert (percent == 100) == (first.split() == second.split())


def test_very_long_texts_are_not_compared() -> None:
    assert similarity("a" * 2_001, "a" * 2_000) == 0
    assert similarity("a" * 2_000, "a" * 1_999) == 99
    assert similarity("a" * 100_000, "a" * 100_000) == 100


def test_the_most_similar_pairs_are_found(path: Path) -> None:
    sources = ["Die Datei ist leer.", "Die Datei ist voll.", "Guten Morgen!", "Die Datei ist leer."]
    vectors = np.zeros((4, 64), np.int8)
    vectors[[0, 1, 3], 0], vectors[2, 1] = 127, 127
    data = replace(sample(3, pairs=4), sources=sources, targets=["a", "b", "c", "d"], source_vectors=vectors)
    with Memory.open(path).edit() as edit:
        edit.append_segment(data)
        memory = edit.commit()
    found = find_matches(memory, sources[0], vectors[0], 5)
    assert [(match.pair.target, match.percent) for match in found] == [("d", 100), ("a", 100), ("b", 78)]
    assert find_matches(memory, sources[0], vectors[0], 1) == found[:1]
    # Without a vector only equal sources are found.
    assert [match.percent for match in find_matches(memory, sources[0], None, 5)] == [100, 100]
    removed = record(path, removed=(3,))
    assert [match.pair.target for match in find_matches(removed, sources[0], vectors[0], 5)] == ["a", "b"]
    added = record(path, replace(one(9), sources=["Die Datei ist leer!"], targets=["e"]))
    assert [match.pair.target for match in find_matches(added, "Die Datei ist leer!", None, 5)] == ["e"]


def test_an_empty_memory_has_no_matches(path: Path) -> None:
    assert find_matches(Memory.open(path), "Hallo", np.ones(64, np.int8), 3) == []


def test_nearest_vectors_are_those_of_all_products() -> None:
    random = np.random.default_rng(0)
    vectors = random.integers(-127, 128, (300, 64)).astype(np.int8)
    query = vectors[7]
    products = vectors.astype(int) @ query.astype(int)
    assert set(nearest_vectors(vectors, query, 10).tolist()) == set(np.argsort(-products)[:10].tolist())
    assert len(nearest_vectors(vectors[:4], query, 10)) == 4


def test_matches_of_sealed_and_open_pairs(path: Path) -> None:
    append(path, 1)
    memory = record(path, one(5))
    source = memory.sentence(memory.pairs).source
    assert find_matches(memory, source, None, 3)[0].pair.source == source
    assert find_matches(memory.sealed(), source, None, 3)[0].pair.source == source
