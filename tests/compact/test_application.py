"""All keys of a memory in the compact space, block by block."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from ibidem.compact import Compactor, LinearCompactor, compact_keys
from ibidem.errors import MemoryFolderError, MismatchError, UsageError
from ibidem.retrieve import ArrayKeys

from .test_compactors import make_network


def random_keys(size: int = 50) -> np.ndarray:
    keys = np.random.default_rng(0).normal(size=(size, 10)).astype(np.float16)
    keys.flags.writeable = False
    return keys


@pytest.mark.parametrize("rows", [1, 7, 50, 1000])
def test_blocks_join_to_the_whole(rows: int) -> None:
    keys, network, seen = random_keys(), make_network(), []

    def watch(_label: str, share: float | None, done: int, unit: str) -> None:
        seen.append((share, done, unit))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        blocks = list(compact_keys(network, ArrayKeys(keys), rows=rows, progress=watch))
    assert [len(block) for block in blocks] == [len(keys[i : i + rows]) for i in range(0, 50, rows)]
    assert all(block.dtype == np.float16 for block in blocks)
    whole = network(torch.tensor(keys)).numpy()
    np.testing.assert_allclose(np.concatenate(blocks), whole, rtol=1e-3, atol=1e-6)
    assert seen[-1] == (1.0, 50, "keys")


def test_keys_of_another_model_are_refused_before_any_is_read() -> None:
    with pytest.raises(MismatchError, match=r"takes keys of 10 dimensions and the memory's have 9.*train one"):
        compact_keys(make_network(), ArrayKeys(np.zeros((3, 9), np.float16)))


def test_what_float16_cannot_hold_is_refused() -> None:
    keys = np.ones((5, 4), np.float16)
    keys[3] = 100
    fits = LinearCompactor("svd", torch.full((2, 4), 65000 / 400))
    assert np.isfinite(np.concatenate(list(compact_keys(fits, ArrayKeys(keys))))).all()
    beyond = LinearCompactor("svd", torch.full((2, 4), 66000 / 400))
    blocks = compact_keys(beyond, ArrayKeys(keys), rows=2)
    next(blocks)
    with pytest.raises(UsageError, match=r"entry 3 reaches 6.6e\+04.*another objective or activation, or scale"):
        next(blocks)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("compactor", [LinearCompactor("pca", torch.ones(2, 10), torch.ones(10)), make_network()])
def test_a_key_that_is_no_number_is_named(wrong: float, compactor: Compactor) -> None:
    """Also where the network would hide it: tanh makes a finite number of an infinite one."""
    keys = random_keys().copy()
    keys[41, 3] = wrong
    with pytest.raises(MemoryFolderError, match=r"entry 41.*ibidem verify"):
        list(compact_keys(compactor, ArrayKeys(keys)))
