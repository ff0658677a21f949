"""Copies of arrays in huge pages."""

from __future__ import annotations

import numpy as np

from ibidem.native.ivf import copy_to_huge_pages


def test_copies_are_equal_and_adjacent() -> None:
    generator = np.random.default_rng(3)
    arrays = {
        "bytes": generator.integers(0, 255, (5, 7), np.uint8),
        "none": np.zeros((0, 4), np.float32),
        "halves": generator.standard_normal((3000, 400)).astype(np.float16),
        "numbers": generator.integers(-9, 9, (11, 3)).astype("<i4"),
    }
    copies = copy_to_huge_pages(arrays)
    assert list(copies) == list(arrays)
    for name, array in arrays.items():
        assert copies[name].dtype == array.dtype
        np.testing.assert_array_equal(copies[name], array)
        assert not np.shares_memory(copies[name], array)
    first, *others = (copy.ctypes.data for copy in copies.values() if copy.size)
    assert first % (2 << 20) == 0
    assert all(place % 64 == 0 and 0 < place - first < 3 << 20 for place in others)


def test_a_copy_outlives_the_others() -> None:
    number = copy_to_huge_pages({"a": np.zeros(3 << 20, np.uint8), "b": np.arange(100)})["b"]
    assert number.sum() == 4950


def test_small_arrays_are_not_copied() -> None:
    small = {"a": np.zeros(1000), "b": np.ones(5)}
    assert all(copy is small[name] for name, copy in copy_to_huge_pages(small).items())
    assert copy_to_huge_pages({}) == {}
