"""What a segment refuses before anything is written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ibidem.errors import MemoryFolderError

from .samples import sample

if TYPE_CHECKING:
    from ibidem.memory import SegmentData


def changed(name: str, index: Any, value: Any) -> SegmentData:
    array = getattr(sample(1), name).copy()
    array[index] = value
    return replace(sample(1), **{name: array})


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["keys", "log_probs"])
def test_numbers_must_be_finite(name: str, value: float) -> None:
    last = len(sample(1).values) - 1
    with pytest.raises(MemoryFolderError, match=rf"pair 2 \(line 102 of 'file-0.tsv'\).*{name}"):
        changed(name, last, value)


def test_error_of_a_late_entry_names_its_pair() -> None:
    data = sample(1, pairs=20_000)
    keys = data.keys.copy()
    entry = data.entries - 1
    keys[entry, 2] = np.nan
    with pytest.raises(MemoryFolderError, match="pair 19999 "):
        replace(data, keys=keys)


def test_token_ids_are_not_negative() -> None:
    with pytest.raises(MemoryFolderError, match=r"pair 0 .*-3"):
        changed("values", 0, -3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("keys", np.zeros((9, 4), np.float32)),
        ("keys", np.zeros(9, np.float16)),
        ("values", np.zeros(9, np.int64)),
        ("log_probs", np.zeros(9, np.float64)),
        ("lengths", np.zeros(3, np.float32)),
        ("lengths", [1, 2, 3]),
    ],
)
def test_types_are_checked(name: str, value: Any) -> None:
    with pytest.raises(MemoryFolderError, match=f"{name} of a segment must be"):
        replace(sample(1), **{name: value})


@pytest.mark.parametrize("name", ["keys", "values", "log_probs", "sources", "targets", "origins", "locations"])
def test_counts_must_agree(name: str) -> None:
    with pytest.raises(MemoryFolderError, match="differ in their number of"):
        replace(sample(1), **{name: getattr(sample(1), name)[:-1]})


@pytest.mark.parametrize("lengths", [[-1, 1, 1], [2**62, 2**62, 0]])
def test_lengths_are_checked_one_by_one(lengths: list[int]) -> None:
    with pytest.raises(MemoryFolderError, match=rf"pair 0 .*has {lengths[0]} entries"):
        replace(sample(1), lengths=np.array(lengths))


def test_overflowing_lengths_are_refused() -> None:
    empty = sample(1, pairs=0)
    with pytest.raises(MemoryFolderError, match="pair 0"):
        replace(
            empty,
            lengths=np.array([2**63, 2**63], np.uint64),
            **{key: ["a", "b"] for key in ("sources", "targets", "origins")},
            locations=[1, 2],
            source_vectors=None,
        )


@pytest.mark.parametrize("name", ["sources", "targets", "origins"])
def test_lone_surrogates_are_refused(name: str) -> None:
    texts = ["a", "b", "c\udc80"]
    with pytest.raises(MemoryFolderError, match=rf"pair 2 .*lone surrogate at character 1 of its {name[:-1]}"):
        replace(sample(1), **{name: texts})


@pytest.mark.parametrize("location", [-1, 2**63])
def test_invalid_line_numbers_are_refused(location: int) -> None:
    with pytest.raises(MemoryFolderError, match=r"pair 1 .*line number"):
        replace(sample(1), locations=[1, location, 3])


def test_a_selection_has_the_entries_of_its_pairs() -> None:
    data = sample(3, pairs=6)
    data = replace(data, source_vectors=np.arange(6 * 64, dtype=np.int8).reshape(6, 64))
    chosen = data.select([5, 1, 0, 2])
    for place, pair in enumerate([5, 1, 0, 2]):
        here, there = slice(*chosen.offsets()[place : place + 2]), slice(*data.offsets()[pair : pair + 2])
        for name in ("keys", "values", "log_probs"):
            np.testing.assert_array_equal(getattr(chosen, name)[here], getattr(data, name)[there])
        for name in ("sources", "targets", "origins", "locations"):
            assert getattr(chosen, name)[place] == getattr(data, name)[pair]
        np.testing.assert_array_equal(chosen.source_vectors[place], data.source_vectors[pair])
    assert chosen.entries == chosen.lengths.sum()
    assert (data.select([]).pairs, data.select([]).entries) == (0, 0)


def test_numbers_of_lines_start_at_0() -> None:
    locations = [0] * sample(1).pairs
    assert replace(sample(1), locations=locations).locations == locations
    with pytest.raises(MemoryFolderError, match="line number -1"):
        replace(sample(1), locations=[-1, *locations[1:]])
