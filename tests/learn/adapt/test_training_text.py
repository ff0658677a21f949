"""Encoded text: held-out pairs, samples, and the batches of a pass."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.errors import TextError
from ibidem.learn.adapt.training_text import Batches, EncodedText
from ibidem.text import Corpus

if TYPE_CHECKING:
    from pathlib import Path

lengths = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=40)


def make_text(sizes: list[tuple[int, int]], first: int = 0) -> EncodedText:
    """Text of the given lengths, whose token ids are the number of the pair."""
    sides = [[np.full(pair[side], first + row, np.int32) for row, pair in enumerate(sizes)] for side in (0, 1)]
    return EncodedText(sides[0], sides[1])


@given(own=lengths, general=lengths, ratio=st.floats(0, 3), forward=st.integers(1, 60), seed=st.integers(0, 5))
def test_a_pass_uses_every_pair_of_the_domain_once(own, general, ratio, forward, seed) -> None:
    made = Batches.of(make_text(own), make_text(general, 1000), ratio, (120, forward), seed)
    for number in (0, 1):
        updates = made.of_pass(number)
        rows = Counter(row for update in updates for part in update for row in part)
        assert all(rows[row] == 1 for row in range(len(own)))
        mixed = {row: times for row, times in rows.items() if row >= len(own)}
        assert sum(mixed.values()) == min(len(general), round(ratio * len(own)))
        assert set(mixed.values()) <= {1}
        assert all(len(update) <= made.group for update in updates)
        for part in (part for update in updates for part in update if len(part) > 1):
            widths = [max(len(side[row]) for row in part) for side in (made.text.sources, made.text.targets)]
            assert len(part) * sum(widths) <= forward
        assert updates == made.of_pass(number)


def test_passes_differ_and_go_through_the_general_text() -> None:
    made = Batches.of(make_text([(3, 3)] * 10), make_text([(3, 3)] * 25, 1000), 1.0, (12, 12), 1)
    rows = [[row for update in made.of_pass(number) for part in update for row in part] for number in range(3)]
    assert rows[0] != rows[1]
    general = [{row for row in some if row >= 10} for some in rows]
    assert general[0] & general[1] == set()
    assert set.union(*general) == set(range(10, 35))


@given(start=st.integers(0, 30))
def test_batches_continue_from_any_place(start: int) -> None:
    made = Batches.of(make_text([(n % 5 + 1, n % 3 + 1) for n in range(20)]), None, 1.0, (20, 10), 2)
    stream = made.from_place(0, 0)
    taken = [next(stream) for _ in range(start + 5)]
    number, place, _ = taken[start]
    resumed = made.from_place(number, place)
    assert [next(resumed) for _ in range(4)] == taken[start + 1 :]


def test_pairs_with_a_double_are_not_held_out() -> None:
    text = make_text([(2, 2)] * 100)
    doubled = EncodedText([*text.sources, *text.sources[:60]], [*text.targets, *reversed(text.targets[:60])])
    large, small = doubled.hold_out(1000, 1)
    assert (len(large), len(small)) == (152, 8)
    assert {int(ids[0]) for ids in small.sources} <= set(range(60, 100))
    assert doubled.hold_out(3, 1)[1].digest() == doubled.hold_out(3, 1)[1].digest()
    assert len(doubled.hold_out(3, 1)[1]) == 3
    assert len(make_text([(2, 2)] * 19).hold_out(1000, 1)[1]) == 0


def test_a_sample_is_random_and_bounded(tmp_path: Path, tiny) -> None:
    file = tmp_path / "text.tsv"
    file.write_text("".join(f"Satz {n}\tsentence {n}\n" for n in range(200)), encoding="utf-8")
    first, second = (EncodedText.sample(Corpus([file]), tiny.tokens, 20, seed) for seed in (1, 2))
    assert len(first) == len(second) == 20
    assert first.digest() != second.digest()
    assert first.digest() == EncodedText.sample(Corpus([file]), tiny.tokens, 20, 1).digest()
    assert len(EncodedText.sample(Corpus([file]), tiny.tokens, 500, 1)) == 200


def test_pairs_that_are_too_long_are_counted(tmp_path: Path, tiny) -> None:
    file = tmp_path / "text.tsv"
    file.write_text("kurz\tshort\n" + "lang " * 2000 + "\tlong\n", encoding="utf-8")
    corpus = Corpus([file])
    assert len(EncodedText.read(corpus, tiny.tokens)) == 1
    assert corpus.counts.dropped == {"too long for the model": 1}
    file.write_text("lang " * 2000 + "\tlong\n", encoding="utf-8")
    with pytest.raises(TextError, match="No pair could be used"):
        EncodedText.read(Corpus([file]), tiny.tokens)
