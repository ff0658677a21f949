"""Keys that lie in any number of arrays of any type give the index and the neighbours of one array."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.native import StoredKeys
from ibidem.retrieve import ArrayKeys, ExactIndex

from .samples import EVERYWHERE, ChunkedKeys, build, code

pytestmark = pytest.mark.usefixtures("native_build")


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_chunks_give_the_index_of_one_array(data: st.DataObject) -> None:
    size, dimension = data.draw(st.sampled_from([30, 700])), data.draw(st.sampled_from([4, 20, 64]))
    drawn = np.random.default_rng(data.draw(st.integers(0, 99))).standard_normal((size, dimension))
    kind = data.draw(st.sampled_from([np.int8, np.float16, np.float32]))
    whole = code(drawn) if kind == np.int8 else ArrayKeys(drawn.astype(kind))
    sizes = data.draw(st.lists(st.sampled_from([0, 1, 2, 7, 100]), max_size=12).filter(lambda one: sum(one) <= size))
    one, several = (build(keys, "native;lists=9;nprobe=9") for keys in (whole, ChunkedKeys(whole, sizes)))
    assert np.array_equal(one.file.bytes, several.file.bytes)
    queries = torch.from_numpy(drawn[:20].astype(np.float32)) + 0.1
    for mine, other in zip(one.search(queries, 8), several.search(queries, 8), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize("dimension", [4, 20, 64, 100])
def test_int8_keys_are_compared_as_they_are_decoded(dimension: int) -> None:
    drawn = (2 + np.random.default_rng(0).standard_normal((500, dimension))) * np.linspace(0.1, 5, dimension)
    keys = code(drawn)
    queries = torch.from_numpy(drawn[:50].astype(np.float32))
    found, true = (index.search(queries, 8) for index in (build(keys, EVERYWHERE), ExactIndex(keys)))
    assert torch.equal(found.entries, true.entries)
    torch.testing.assert_close(found.distances, true.distances, rtol=1e-5, atol=1e-6)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=40), st.sampled_from([1, 400]))
@settings(max_examples=50, deadline=None)
def test_every_entry_is_found_in_its_chunk(sizes: list[int], scale: int) -> None:
    """The library finds the chunk of an entry by this table: from the chunk that it names, a few forward."""
    chunks = [np.zeros((scale * size, 1), np.float32) for size in sizes]
    keys = StoredKeys(chunks)
    packed = keys.packed()
    firsts = np.cumsum([0, *(len(chunk) for chunk in chunks)])
    for entry in np.unique(np.concatenate([firsts, firsts - 1, firsts + 1])):
        if not 0 <= entry < keys.size:
            continue
        number = int(keys._first_chunks[entry >> packed.shift])
        while entry >= keys._table[number + 1].first:
            number += 1
        assert firsts[number] <= entry < firsts[number + 1]
        assert keys._table[number].keys == chunks[number].ctypes.data
