"""The native library and the numpy search find the same neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.errors import UsageError
from ibidem.native import Ivf, SearchLimits
from ibidem.retrieve import ArrayKeys, resolve
from ibidem.retrieve.ivf.index import load_native
from ibidem.retrieve.ivf.reference import ReferenceIvf

from .samples import build, code

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("native_build")


@pytest.mark.parametrize(
    "setting", ["native;nprobe=6", "native;lists=40;nprobe=40;prune_ratio=1.2", "native;rerank=300"]
)
def test_a_loaded_index_finds_the_same_without_the_library(
    clustered: ArrayKeys, tmp_path: Path, request: pytest.FixtureRequest, setting: str
) -> None:
    """The search in numpy finds the same, with all entries and with some hidden."""
    path = tmp_path / "index.native"
    index = build(clustered, setting)
    info = index.save(path)
    queries = torch.from_numpy(clustered.gather(np.arange(0, 6000, 60)).astype(np.float32)) + 0.05
    queries[3, 1] = torch.nan
    removed = np.flatnonzero(np.random.default_rng(0).random(6000) < 0.5)
    found = [one.search(queries, 8) for one in (index, index.without(removed))]
    request.getfixturevalue("no_native")
    loaded = load_native(path, info, clustered)
    for mine, one in zip(found, (loaded, loaded.without(removed)), strict=True):
        plain = one.search(queries, 8)
        assert torch.equal(plain.entries, mine.entries)
        torch.testing.assert_close(plain.distances, mine.distances)
    with pytest.raises(UsageError, match=r"native library.*'auto'"):
        resolve("native", 1000, 64)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_the_library_finds_what_the_reference_finds(data: st.DataObject) -> None:
    """For any shape and search parameters; rounding may swap keys at nearly the same distance."""
    size, dimension = data.draw(st.sampled_from([40, 500, 3000])), data.draw(st.sampled_from([4, 20, 64, 100]))
    generator = np.random.default_rng(data.draw(st.integers(0, 999)))
    centres = 2 * generator.standard_normal((20, dimension))
    drawn = centres[generator.integers(20, size=size)] + generator.standard_normal((size, dimension))
    kind = data.draw(st.sampled_from([np.int8, np.float16, np.float32]))
    source = code(drawn) if kind == np.int8 else ArrayKeys(drawn.astype(kind))
    index = build(source, f"native;nprobe=1;lists={data.draw(st.integers(1, size // 5))}")
    queries = torch.from_numpy(source.gather(np.arange(0, size, size // 20)).astype(np.float32)) + 0.2
    probing = SearchLimits(
        nprobe=data.draw(st.sampled_from([1, 5, 40, 200])),
        rerank=data.draw(st.sampled_from([8, 30])),
        prune_ratio=data.draw(st.sampled_from([1.0, 1.2, 1.5, 100.0])),
        block_prune_ratio=data.draw(st.sampled_from([1.0, 1.2, 1.5, 100.0])),
        groups=data.draw(st.sampled_from([1, 6, 1000])),
    )
    parts = index.file.centroids, index.file.lists, index.keys
    (far, found), (plain_far, plain) = (kind(*parts).search(queries, 8, probing) for kind in (Ivf, ReferenceIvf))
    both = (found[:, :, None] == plain[:, None, :]).any(2)  # one more key moves all that follow
    assert both.float().mean() > 0.98
    torch.testing.assert_close(far[found == plain], plain_far[found == plain])


@given(st.sampled_from([1, 5, 16]), st.integers(2, 12), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_a_key_in_two_lists_is_returned_once(k: int, lists: int, seed: int) -> None:
    """However few the candidates are, k different neighbours are returned."""
    keys = np.random.default_rng(seed).standard_normal((120, 8)).astype(np.float32)
    index = build(ArrayKeys(keys), f"native;nprobe={lists};prune_ratio=1000;lists={lists};rerank=1")
    for ivf in (index.ivf, ReferenceIvf(index.file.centroids, index.file.lists, index.keys)):
        _, entries = ivf.search(torch.from_numpy(keys[:20]) + 0.1, k, index.probing(k))
        assert (entries >= 0).all()
        assert all(len(set(row)) == k for row in entries.tolist())
