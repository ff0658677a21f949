"""Sources of keys, and the checks of what they yield."""

from __future__ import annotations

import numpy as np
import pytest

from ibidem.errors import MemoryFolderError
from ibidem.retrieve import ArrayKeys
from ibidem.retrieve.keys import FirstKeys, check_complete, draw_sample, finite


@pytest.mark.parametrize("size", [0, 3, 4, 10])
def test_first_keys_equal_a_slice(size: int) -> None:
    array = np.arange(20, dtype=np.float32).reshape(10, 2)
    first = FirstKeys(ArrayKeys(array), size)
    blocks = list(first.blocks(4))
    np.testing.assert_array_equal(np.concatenate([array[:0], *blocks]), array[:size])
    assert (first.size, first.dimension) == (size, 2)


def test_a_sample_is_ordered_and_the_same_for_the_same_seed() -> None:
    keys = ArrayKeys(np.arange(100, dtype=np.float16)[:, None])
    sample = draw_sample(keys, 30, seed=1)
    assert (np.diff(sample[:, 0]) > 0).all()
    np.testing.assert_array_equal(sample, draw_sample(keys, 30, seed=1))
    assert not np.array_equal(sample, draw_sample(keys, 30, seed=2))


def test_keys_that_are_missing_or_not_finite_are_rejected() -> None:
    block = np.zeros((4, 2), np.float16)
    assert finite(block, 0).dtype == np.float32
    block[2, 1] = np.inf
    with pytest.raises(MemoryFolderError, match=r"1 keys are not finite.*entry 12"):
        finite(block, 10)
    with pytest.raises(MemoryFolderError, match=r"should be 4 of 2 dimensions, but 3 were read"):
        check_complete(ArrayKeys(block), 3)
