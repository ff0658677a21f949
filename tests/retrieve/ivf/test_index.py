"""Search, hide, save and load the native index, with exact search as the oracle; damaged files are rejected."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.errors import MemoryFolderError
from ibidem.native import Ivf, SearchLimits
from ibidem.retrieve import ArrayKeys, ExactIndex, exact_part, measure_recall
from ibidem.retrieve.ivf.index import load_native
from ibidem.retrieve.ivf.reference import ReferenceIvf
from ibidem.retrieve.keys import FirstKeys
from ibidem.retrieve.memory_index import CompositeIndex, main_part

from .samples import EVERYWHERE, build

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("native_build")

# The array of each kind of damage.
WHERE = {name: name for name in ("region", "list offsets", "guide offsets", "guide", "entries")}

WHERE |= {"no entry": "entries", "an entry twice": "entries"}


def damage(whole: bytes, how: str) -> bytes:
    """Damage a file so that the native library would read outside it."""
    header = struct.Struct("<16s6qd")
    magic, *numbers, scale = header.unpack(whole[: header.size])
    changed = bytearray(whole)
    if how == "short":
        return whole[:-1]
    if how == "no header":
        return whole[:50]
    if how == "magic":
        changed[:3] = b"abc"
    elif how == "older":
        changed[:16] = b"ibidem-native-5\n"
    elif how == "blocks":
        numbers[4] += 1
    elif how == "block_means":
        numbers[5] += 1
    elif how == "huge":
        numbers[0] = 2**62
    elif how == "negative":
        numbers[3] = -1
    elif how == "dimension":
        numbers[1] = 30
    elif how in WHERE:
        names = [
            "mean",
            "region",
            "groups",
            "lists",
            "list offsets",
            "guide offsets",
            "guide",
            "blocks",
            "entries",
        ]
        regions, blocks, block_means = numbers[3:]
        sizes = [4 * 32, -(-regions // 16) * 16 * (4 + 32), regions * 16 * (4 + 16), 16 * regions * 16 * (4 + 16)]
        sizes += [4 * (256 * regions + 1)] * 2 + [block_means * 16 * (4 + 8), blocks * 16 * (4 + 8)]
        begin = 4096 + sum(-(-size // 4096) * 4096 for size in sizes[: names.index(WHERE[how])])
        begin += 0 if how == "guide" else 8
        other = struct.unpack("<i", changed[begin + 4 : begin + 8])[0]
        wrong = {"guide": 0x7C007C00, "no entry": -1, "an entry twice": other}.get(how, 10**9)
        changed[begin : begin + 4] = struct.pack("<i", wrong)
    if how in ("blocks", "block_means", "huge", "negative", "dimension"):
        changed[: header.size] = header.pack(magic, *numbers, scale)
    assert bytes(changed) != whole
    return bytes(changed)


@pytest.mark.parametrize(
    "how",
    [
        "short",
        "no header",
        "magic",
        "older",
        "blocks",
        "block_means",
        "huge",
        "negative",
        "dimension",
        *WHERE,
    ],
)
def test_a_damaged_file_is_rejected(clustered: ArrayKeys, tmp_path: Path, how: str) -> None:
    path = tmp_path / "index.native"
    info = build(clustered, "native;lists=32").save(path)
    path.write_bytes(damage(path.read_bytes(), how))
    with pytest.raises(MemoryFolderError, match=r"cannot be read.*ibidem index"):
        load_native(path, info, clustered)


def test_a_loaded_file_is_read_only(clustered: ArrayKeys, tmp_path: Path) -> None:
    path = tmp_path / "index.native"
    loaded = load_native(path, build(clustered, "native;lists=8").save(path), clustered)
    for array in (loaded.file.bytes, loaded.file.lists.entries, loaded.file.centroids.coding.mean):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_recall_against_exact_search(clustered: ArrayKeys) -> None:
    index = build(clustered)
    assert (index.size, index.dimension) == (6000, 32)
    assert index.recall is not None
    assert index.recall >= 0.99
    assert measure_recall(index, clustered, samples=300, seed=3) >= 0.98
    assert "recall@16 0.99" in index.description or "recall@16 1.0" in index.description


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_searching_all_lists_is_exact(data: st.DataObject) -> None:
    """All candidates are reranked, so neither codes nor lists can lose a neighbour, whatever the shape."""
    size = data.draw(st.sampled_from([1, 2, 15, 16, 17, 100, 333]))
    dimension = data.draw(st.sampled_from([4, 8, 12, 20, 36, 64, 100, 260]))
    lists = data.draw(st.integers(1, min(size, 40)))
    generator = np.random.default_rng(data.draw(st.integers(0, 999)))
    kind = data.draw(st.sampled_from([np.float16, np.float32]))
    keys = generator.standard_normal((size, dimension)) * data.draw(st.sampled_from([0.01, 1.0, 100.0]))
    # Duplicates, and for some components no spread at all.
    keys[generator.integers(size, size=size // 3)] = keys[0]
    keys[:, generator.integers(dimension)] = 3.0
    source = ArrayKeys(keys.astype(kind))
    k = data.draw(st.sampled_from([1, 7, 16, 64]))
    queries = torch.from_numpy(generator.standard_normal((5, dimension)).astype(np.float32))
    found = build(source, f"{EVERYWHERE};lists={lists}").search(queries, k)
    true = ExactIndex(source).search(queries, k)
    torch.testing.assert_close(found.distances, true.distances, rtol=1e-4, atol=1e-6)
    held = source.gather(np.arange(size)).astype(np.float64)
    for row, query in enumerate(queries.double().numpy()):
        ids = found.entries[row][found.entries[row] >= 0].numpy()
        assert len(set(ids.tolist())) == len(ids) == min(k, size)
        np.testing.assert_allclose(found.distances[row, : len(ids)], np.square(held[ids] - query).sum(1), rtol=1e-4)


def test_distances_are_exact_and_ascending(clustered: ArrayKeys) -> None:
    queries = torch.from_numpy(clustered.gather(np.arange(50)).astype(np.float32)) + 0.05
    found = build(clustered).search(queries, 8)
    held = torch.from_numpy(clustered.gather(found.entries.flatten().numpy()).astype(np.float64)).view(50, 8, -1)
    true = (queries[:, None].double() - held).square().sum(2)
    torch.testing.assert_close(found.distances.double(), true, rtol=1e-5, atol=0)
    assert (found.distances.diff(dim=1) >= 0).all()


def test_equal_distances_are_ordered_by_entry() -> None:
    keys = np.zeros((100, 8), np.float16)
    keys[50:] = 2.0
    found = build(ArrayKeys(keys)).search(torch.full((1, 8), 2.0), 5)
    assert found.entries.tolist() == [[50, 51, 52, 53, 54]]


def test_parameters_change_the_search_and_not_the_index() -> None:
    keys = ArrayKeys(np.random.default_rng(0).standard_normal((4000, 32)).astype(np.float16))
    narrow, wide = build(keys, "native;nprobe=1"), build(keys, "native;nprobe=64;prune_ratio=100")
    recalls = [measure_recall(index, keys, seed=0) for index in (narrow, wide)]
    assert recalls[0] < recalls[1] - 0.05
    assert np.array_equal(narrow.file.bytes, wide.file.bytes)
    patient = build(keys, "native;nprobe=64;prune_ratio=1")
    assert measure_recall(patient, keys, seed=0) < recalls[1]


def test_hidden_entries_are_never_found(clustered: ArrayKeys) -> None:
    index = build(clustered, EVERYWHERE)
    removed = np.random.default_rng(0).random(6000) < 0.7
    hidden = np.flatnonzero(removed)
    queries = torch.from_numpy(clustered.gather(np.arange(40)).astype(np.float32)) + 0.01
    found = index.without(hidden[::2]).without(hidden[1::2]).search(queries, 16)
    kept = np.flatnonzero(~removed)
    true = ExactIndex(ArrayKeys(clustered.gather(kept))).search(queries, 16)
    torch.testing.assert_close(found.distances, true.distances, rtol=1e-5, atol=1e-7)
    assert not removed[found.entries.numpy()].any()
    assert index.search(queries, 1).entries[:, 0].tolist() != found.entries[:, 0].tolist()
    nothing = index.without(np.arange(6000)).search(queries, 3)
    assert nothing.entries.eq(-1).all()


def test_an_exact_part_of_newer_keys_is_comparable(clustered: ArrayKeys) -> None:
    """The native index returns true distances, so an exact part needs no recoding."""
    everything = clustered.gather(np.arange(6000))
    gone = np.arange(7, 5000, 11)
    main = main_part(build(ArrayKeys(everything[:5000]), EVERYWHERE), gone, np.empty(0, np.int64))
    newer = exact_part(everything[5000:], 5000 - len(gone), np.empty(0, np.int64), main.index, "cpu")
    joined = CompositeIndex([main, newer], 6000 - len(gone), 32)
    queries = torch.from_numpy(everything[::40].astype(np.float32)) + 0.01
    found, true = (
        index.search(queries, 8) for index in (joined, ExactIndex(ArrayKeys(np.delete(everything, gone, axis=0))))
    )
    torch.testing.assert_close(found.distances, true.distances, rtol=1e-5, atol=1e-7)
    assert (found.entries == true.entries).float().mean() > 0.9  # any of several duplicates


def test_an_index_is_loaded_without_entries_that_were_removed(clustered: ArrayKeys, tmp_path: Path) -> None:
    """The remaining entries are numbered as the remaining keys, with the library and in numpy."""
    path = tmp_path / "index.native"
    info = build(clustered, EVERYWHERE).save(path)
    gone = np.flatnonzero(np.random.default_rng(0).random(6000) < 0.3)
    left = ArrayKeys(np.delete(clustered.gather(np.arange(6000)), gone, axis=0))
    loaded = load_native(path, info, left, gone)
    assert loaded.size == left.size
    queries = torch.from_numpy(left.gather(np.arange(0, left.size, 50)).astype(np.float32)) + 0.01
    for hidden in (np.empty(0, np.int64), np.arange(0, left.size, 3)):
        index = loaded.without(hidden)
        found = index.search(queries, 8)
        exact = ExactIndex(left)
        true = (exact.without(hidden) if len(hidden) else exact).search(queries, 8)
        torch.testing.assert_close(found.distances, true.distances, rtol=1e-5, atol=1e-7)
        assert (found.entries == true.entries).float().mean() > 0.9  # any of several duplicates
        reference = ReferenceIvf(loaded.file.centroids, loaded.file.lists, loaded.keys)
        plain = reference.search(queries[:20], 8, index.probing(8), index.live)[1]
        assert torch.equal(plain, found.entries[:20])
    with pytest.raises(MemoryFolderError, match=r"5999 keys.*ibidem index"):
        load_native(path, info, left, gone[:1])
    nothing = load_native(path, info, FirstKeys(clustered, 0), np.arange(6000))
    assert nothing.search(queries, 3).entries.eq(-1).all()


def test_more_neighbours_than_keys_and_queries_that_are_not_finite(draw_keys: Callable[..., np.ndarray]) -> None:
    keys = ArrayKeys(draw_keys(160, 32, seed=1))
    queries = torch.from_numpy(keys.gather(np.arange(4)).astype(np.float32))
    queries[1, 4] = torch.nan
    queries[2] = 1e20
    index = build(keys)
    found = index.search(queries, 200)
    assert found.entries[1:3].eq(-1).all()
    assert found.distances[1:3].isinf().all()
    for row in (0, 3):
        count = int((found.entries[row] >= 0).sum())
        assert 50 < count <= 160
        assert found.distances[row, :count].isfinite().all()
        assert found.distances[row, count:].isinf().all()
    assert index.search(queries[:0], 3).entries.shape == (0, 3)
    assert torch.equal(index.search(queries[:1].double(), 3).entries, index.search(queries[:1], 3).entries)
    far = index.search(torch.full((1, 32), 1e5), 3)
    assert (far.entries >= 0).all()


def test_save_and_load(clustered: ArrayKeys, tmp_path: Path) -> None:
    index = build(clustered, "native;nprobe=7;prune_ratio=2.5;rerank=40")
    path = tmp_path / "index.native"
    path.write_text("an older index")
    info = json.loads(json.dumps(index.save(path)))
    assert list(tmp_path.iterdir()) == [path]
    assert (info["kind"], info["nprobe"], info["size"], info["dimension"]) == ("native", 7, 6000, 32)
    loaded = load_native(path, info, clustered)
    assert (loaded.settings, loaded.recall) == (index.settings, index.recall)
    queries = torch.from_numpy(clustered.gather(np.arange(40)).astype(np.float32))
    for mine, other in zip(index.search(queries, 8), loaded.search(queries, 8), strict=True):
        assert torch.equal(mine, other)
    again = tmp_path / "again"
    loaded.save(again)
    assert again.read_bytes() == path.read_bytes()


def test_an_index_of_other_keys_is_rejected(clustered: ArrayKeys, tmp_path: Path) -> None:
    path = tmp_path / "index.native"
    info = build(clustered, "native;lists=32").save(path)
    with pytest.raises(MemoryFolderError, match=r"6000 keys of 32.*has 5999 of 32.*ibidem index"):
        load_native(path, info, ArrayKeys(clustered.gather(np.arange(5999))))
    for wrong in ({}, {**info, "nprobe": 0}, {**info, "prune_ratio": "much"}):
        with pytest.raises(MemoryFolderError, match=r"incomplete.*ibidem index"):
            load_native(path, wrong, clustered)
    with pytest.raises(MemoryFolderError, match="cannot be read"):
        load_native(tmp_path / "none", info, clustered)


def test_save_into_a_missing_folder(clustered: ArrayKeys, tmp_path: Path) -> None:
    with pytest.raises(MemoryFolderError, match=r"could not be written.*ibidem index"):
        build(clustered, "native;lists=8").save(tmp_path / "nowhere" / "index.native")


def test_results_do_not_depend_on_the_batch(clustered: ArrayKeys) -> None:
    index = build(clustered)
    queries = torch.from_numpy(clustered.gather(np.arange(0, 6000, 50)).astype(np.float32)) + 0.05
    queries = queries.repeat_interleave(torch.tensor([1, 2, 3, 1] * 30), dim=0)
    group_size = index.search(queries, 8)
    for row in range(0, len(queries), 7):
        alone = index.search(queries[row : row + 1], 8)
        assert torch.equal(alone.entries[0], group_size.entries[row])
        assert torch.equal(alone.distances[0], group_size.distances[row])


def draw_beams(keys: ArrayKeys, away: float, beam: int = 5) -> torch.Tensor:
    """Draw queries [40 x beam, d] of sentences whose hypotheses are about `away` apart."""
    first = torch.from_numpy(keys.gather(np.arange(0, 6000, 150)).astype(np.float32))
    noise = torch.randn(len(first), beam, keys.dimension, generator=torch.Generator().manual_seed(5))
    noise = noise / noise.norm(dim=2, keepdim=True) * away
    return (first[:, None] + 0.05 + noise).flatten(0, 1)


@pytest.mark.parametrize("away", [0.0, 0.01, 0.1, 0.5, 3.0])
def test_similar_hypotheses_share_a_search(clustered: ArrayKeys, away: float) -> None:
    """Sharing costs little recall, and none for hypotheses that are equal or far apart."""
    index = build(clustered)
    assert isinstance(index.ivf, Ivf)
    queries = draw_beams(clustered, away)
    probing = index.probing(8)
    alone, alone_entries = index.ivf.search(queries, 8, probing)
    shared, entries = index.ivf.search(queries, 8, probing, group_size=5)
    held = torch.from_numpy(clustered.gather(entries.flatten().numpy()).astype(np.float32)).view(*entries.shape, -1)
    torch.testing.assert_close(shared, (queries[:, None] - held).square().sum(2), rtol=1e-4, atol=1e-6)
    assert (shared.diff(dim=1) >= 0).all()
    if away in (0.0, 3.0):
        assert torch.equal(entries, alone_entries)
        assert torch.equal(shared, alone)
    exact = ExactIndex(clustered).search(queries, 8).distances[:, -1:]
    found = (shared <= exact * (1 + 1e-5)).float().mean()
    assert found >= (alone <= exact * (1 + 1e-5)).float().mean() - 0.01


def test_sharing_depends_only_on_the_sentence(clustered: ArrayKeys) -> None:
    index = build(clustered)
    assert isinstance(index.ivf, Ivf)
    queries = torch.cat([draw_beams(clustered, away) for away in (0.05, 0.2, 0.5)])
    queries[3::7] = torch.nan
    queries[50:55] = torch.nan
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        distances, entries = index.ivf.search(queries, 8, index.probing(8), group_size=5, threads=3)
        for _ in range(20):  # whichever thread is first
            assert torch.equal(index.ivf.search(queries, 8, index.probing(8), group_size=5, threads=3)[1], entries)
    finally:
        torch.set_num_threads(before)
    assert entries[3::7].eq(-1).all()
    assert distances[50:55].isinf().all()
    for first in range(0, len(queries), 5):
        rows = slice(first, first + 5)
        alone, alone_entries = index.ivf.search(queries[rows], 8, index.probing(8), group_size=5, threads=1)
        assert torch.equal(alone_entries, entries[rows])
        assert torch.equal(alone, distances[rows])


def test_a_shared_search_reuses_the_candidates_of_one_query(
    clustered: ArrayKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With k candidates only, both queries have the same neighbours, each by its own distances."""
    index = build(clustered, "native;lists=1;nprobe=1")  # every key is in one list
    assert isinstance(index.ivf, Ivf)
    probing = replace(index.probing(7), rerank=7)
    monkeypatch.setattr(SearchLimits, "rerank_for", lambda self, k: self.rerank)  # noqa: ARG005
    one = draw_beams(clustered, 0.0, beam=1)
    reach = index.ivf.search(one, 7, probing)[0][:, -1:].sqrt()
    aside = torch.randn(len(one), 32, generator=torch.Generator().manual_seed(7))
    aside = aside / aside.norm(dim=1, keepdim=True) * reach
    queries = torch.stack([one, one - 3 * aside, one + 0.3 * aside], 1).flatten(0, 1)

    def same(group_size: int) -> float:
        _, entries = index.ivf.search(queries, 7, probing, group_size=group_size)
        return float(np.mean([set(row[0]) == set(row[2]) for row in entries.view(-1, 3, 7).tolist()]))

    assert same(3) > 0.9 > 0.5 > same(1)
