"""Building, searching, saving and loading the native index, with exact search as the oracle."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.errors import MemoryFolderError, UsageError
from ibidem.native import COARSE_BITS, FINE_BITS, Ivf, Probing
from ibidem.retrieve import (
    ArrayKeys,
    CompositeIndex,
    ExactIndex,
    NativeIndex,
    build_index,
    exact_part,
    load_native,
    main_part,
    measure_recall,
    resolve,
)
from ibidem.retrieve.ivf import building, training
from ibidem.retrieve.ivf.plain import PlainIvf, _decode
from ibidem.retrieve.ivf.settings import default_lists

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


pytestmark = pytest.mark.usefixtures("native_build")


def build(keys: ArrayKeys, setting: str = "native", seed: int = 1) -> NativeIndex:
    index = build_index(keys, setting, seed=seed, threads=1)
    assert isinstance(index, NativeIndex)
    return index


EVERYWHERE = "native;nprobe=1000000;gamma=1000000;refine=1000"


def test_recall_against_exact_search(clustered: ArrayKeys) -> None:
    index = build(clustered)
    assert (index.size, index.dimension) == (6000, 32)
    assert index.recall is not None
    assert index.recall >= 0.99
    assert measure_recall(index, clustered, samples=300, seed=3) >= 0.98
    assert "recall@16 0.99" in index.description or "recall@16 1.0" in index.description


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_search_of_all_lists_is_exact(data: st.DataObject) -> None:
    """Every candidate refined, so neither codes nor lists may lose anything, whatever the shape."""
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


def test_equally_near_keys_come_by_entry() -> None:
    keys = np.zeros((100, 8), np.float16)
    keys[50:] = 2.0
    found = build(ArrayKeys(keys)).search(torch.full((1, 8), 2.0), 5)
    assert found.entries.tolist() == [[50, 51, 52, 53, 54]]


def test_parameters_change_the_search_and_not_the_index() -> None:
    keys = ArrayKeys(np.random.default_rng(0).standard_normal((4000, 32)).astype(np.float16))
    narrow, wide = build(keys, "native;nprobe=1"), build(keys, "native;nprobe=64;gamma=100")
    recalls = [measure_recall(index, keys, seed=0) for index in (narrow, wide)]
    assert recalls[0] < recalls[1] - 0.05
    assert np.array_equal(narrow.file.bytes, wide.file.bytes)
    patient = build(keys, "native;nprobe=64;gamma=1")
    assert measure_recall(patient, keys, seed=0) < recalls[1]


def test_it_looks_farther_until_recall_is_good() -> None:
    """Keys without clusters: the nearest are in many lists."""
    keys = ArrayKeys(np.random.default_rng(0).standard_normal((20_000, 24)).astype(np.float16))
    stages: list[tuple[str, int, int]] = []
    index = build_index(keys, "native", seed=1, threads=1, progress=lambda *step: stages.append(step))
    assert isinstance(index, NativeIndex)
    assert index.settings.nprobe > 64
    assert index.recall is not None
    assert index.recall > 0.97
    assert [step for step in stages if step[0] == "add"][-1] == ("add", 20_000, 20_000)
    assert stages[-1] == ("measure", 1, 1)
    fixed = build(keys, "native;nprobe=64")
    assert fixed.settings.nprobe == 64
    assert fixed.recall is not None
    assert fixed.recall < index.recall


def test_recall_that_stays_low_is_said(clustered: ArrayKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "MOST_GAMMA", 1.0)
    monkeypatch.setattr(building, "recall_at", lambda *_: 0.5)
    assert "below 0.98:" in build(clustered).settings.notes[-1]


def test_the_seed_decides(clustered: ArrayKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "TRAIN_PER_LIST", 20)
    monkeypatch.setattr(building, "_ELEMENTS", 32_000)
    one, same, other = (build(clustered, "native", seed).file.bytes for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_a_sample_has_as_many_keys_as_there_is_room_for(clustered: ArrayKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_of_key = clustered.gather(np.arange(1)).nbytes
    for room, wanted in ((1, 24), (30, 30), (1000, 128)):
        monkeypatch.setattr(building, "TRAIN_BYTES", 10 * room * bytes_of_key)
        sample = building._draw_sample(clustered, 10, 1)
        assert len(sample) == 10 * wanted
        assert sample.dtype == clustered.gather(np.arange(1)).dtype  # half of the room that float32 would take
    assert len(building._draw_sample(clustered, 1000, 1)) == clustered.size


def test_threads_change_nothing_and_are_given_back(clustered: ArrayKeys) -> None:
    before = torch.get_num_threads()
    queries = torch.from_numpy(clustered.gather(np.arange(64)).astype(np.float32))
    answers = []
    for threads in (1, 3):
        index = build_index(clustered, "native", seed=1, threads=threads)
        answers.append(index.search(queries, 8))
    assert torch.get_num_threads() == before
    assert torch.equal(answers[0].entries, answers[1].entries)


def test_entries_that_are_marked_are_passed_over(clustered: ArrayKeys) -> None:
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


def test_what_came_after_it_is_searched_beside_it(clustered: ArrayKeys) -> None:
    """The native index measures true distances, so an exact index of newer keys needs no codes to compare with it."""
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
    assert (found.entries == true.entries).float().mean() > 0.9  # of duplicates any


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
    index = build(clustered, "native;nprobe=7;gamma=2.5;refine=40")
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


def test_load_refuses_what_does_not_belong(clustered: ArrayKeys, tmp_path: Path) -> None:
    path = tmp_path / "index.native"
    info = build(clustered, "native;lists=32").save(path)
    with pytest.raises(MemoryFolderError, match=r"6000 keys of 32.*has 5999 of 32.*ibidem index"):
        load_native(path, info, ArrayKeys(clustered.gather(np.arange(5999))))
    for wrong in ({}, {**info, "nprobe": 0}, {**info, "gamma": "much"}):
        with pytest.raises(MemoryFolderError, match=r"incomplete.*ibidem index"):
            load_native(path, wrong, clustered)
    with pytest.raises(MemoryFolderError, match="cannot be read"):
        load_native(tmp_path / "none", info, clustered)


# In which array these are.
WHERE = {name: name for name in ("region", "list offsets", "guide offsets", "guide", "slots", "entries")}
WHERE |= {"no slot": "slots", "an entry twice": "entries"}


def damage(whole: bytes, how: str) -> bytes:
    """Ways in which a file can be wrong that the library would follow into the void."""
    header = struct.Struct("<16s7qd")
    magic, *numbers, scale = header.unpack(whole[: header.size])
    changed = bytearray(whole)
    if how == "short":
        return whole[:-1]
    if how == "no header":
        return whole[:50]
    if how == "magic":
        changed[:3] = b"abc"
    elif how == "older":
        changed[:16] = b"ibidem-native-4\n"
    elif how == "blocks":
        numbers[5] += 1
    elif how == "guides":
        numbers[6] += 1
    elif how == "huge":
        numbers[0] = 2**62
    elif how == "negative":
        numbers[4] = -1
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
            "slots",
            "entries",
        ]
        regions, blocks, guides = numbers[4:]
        sizes = [4 * 32, -(-regions // 16) * 16 * (4 + 32), regions * 16 * (4 + 16), 16 * regions * 16 * (4 + 16)]
        sizes += [4 * (256 * regions + 1)] * 2 + [guides * 16 * (4 + 8), blocks * 16 * (4 + 8), blocks * 16 * 4]
        begin = 4096 + sum(-(-size // 4096) * 4096 for size in sizes[: names.index(WHERE[how])])
        begin += 0 if how == "guide" else 8
        other = struct.unpack("<i", changed[begin + 4 : begin + 8])[0]
        wrong = {"guide": 0x7C007C00, "no slot": -1, "an entry twice": other}.get(how, 10**9)
        changed[begin : begin + 4] = struct.pack("<i", wrong)
    if how in ("blocks", "guides", "huge", "negative", "dimension"):
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
        "guides",
        "huge",
        "negative",
        "dimension",
        *WHERE,
    ],
)
def test_a_damaged_file_is_refused(clustered: ArrayKeys, tmp_path: Path, how: str) -> None:
    path = tmp_path / "index.native"
    info = build(clustered, "native;lists=32").save(path)
    path.write_bytes(damage(path.read_bytes(), how))
    with pytest.raises(MemoryFolderError, match=r"cannot be read.*ibidem index"):
        load_native(path, info, clustered)


def test_save_into_no_folder(clustered: ArrayKeys, tmp_path: Path) -> None:
    with pytest.raises(MemoryFolderError, match=r"could not be written.*ibidem index"):
        build(clustered, "native;lists=8").save(tmp_path / "nowhere" / "index.native")


def test_settings() -> None:
    chosen = resolve("native", 4_000_000, 64)
    assert (chosen.lists, chosen.nprobe, chosen.target_recall) == (32_768, 64, 0.98)
    given_ones = resolve(" native ; nprobe=128; gamma=1.5 ;lists=100;refine=64", 10_000, 64)
    assert (given_ones.lists, given_ones.nprobe, given_ones.gamma, given_ones.refine) == (100, 128, 1.5, 64)
    assert given_ones.target_recall is None
    assert resolve("native;nprobe=512", 10_000, 64).gamma > resolve("native;nprobe=32", 10_000, 64).gamma >= 1
    assert [default_lists(size) for size in (1, 48, 2000, 500_000, 1_080_000, 154_000_000)] == [
        1,
        1,
        32,
        8192,
        16_384,
        65_536,
    ]
    for wrong in (
        "native;nprobe",
        "native;nprobe=0",
        "native;nprobe=1.5",
        "native;probes=3",
        "native;gamma=nan",
        "native;",
    ):
        with pytest.raises(UsageError, match="no parameter of it"):
            resolve(wrong, 1000, 64)
    with pytest.raises(UsageError, match="not of 30"):
        resolve("native", 1000, 30)
    with pytest.raises(UsageError, match="not of 1028"):
        resolve("native", 1000, 1028)
    with pytest.raises(UsageError, match="2000 lists"):
        resolve("native;lists=2000", 1000, 64)


def test_what_cannot_be_built_is_said(clustered: ArrayKeys) -> None:
    with pytest.raises(UsageError, match="memory is empty"):
        build(ArrayKeys(np.ones((0, 8), dtype=np.float16)))
    spoilt = clustered.gather(np.arange(6000)).copy()
    spoilt[4321, 3] = np.nan
    with pytest.raises(MemoryFolderError, match="1 keys are not finite"):
        build(ArrayKeys(spoilt))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30).filter(any), st.data())
def test_shares_are_just(counts: list[int], data: st.DataObject) -> None:
    total = data.draw(st.integers(0, sum(counts)))
    shares = training.divide(counts, total)
    assert sum(shares) == total
    assert all(0 <= share <= count for share, count in zip(shares, counts, strict=True))
    assert all(abs(share - count * total / sum(counts)) < 1 for share, count in zip(shares, counts, strict=True))


@pytest.mark.parametrize("setting", ["native;nprobe=6", "native;lists=40;nprobe=40;gamma=1.2", "native;refine=300"])
def test_without_the_library_the_same_is_found(
    clustered: ArrayKeys, tmp_path: Path, request: pytest.FixtureRequest, setting: str
) -> None:
    """A reading of the file in numpy, with all entries and without some: it knows nothing of blocks in registers."""
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
def test_the_library_finds_what_a_plain_reading_finds(data: st.DataObject) -> None:
    """Whatever the shape and however far it looks; its own rounding may swap keys that are all but equally near."""
    size, dimension = data.draw(st.sampled_from([40, 500, 3000])), data.draw(st.sampled_from([4, 20, 64, 100]))
    generator = np.random.default_rng(data.draw(st.integers(0, 999)))
    centres = 2 * generator.standard_normal((20, dimension))
    source = ArrayKeys(
        (centres[generator.integers(20, size=size)] + generator.standard_normal((size, dimension))).astype(np.float16)
    )
    index = build(source, f"native;nprobe=1;lists={data.draw(st.integers(1, size // 5))}")
    queries = torch.from_numpy(source.gather(np.arange(0, size, size // 20)).astype(np.float32)) + 0.2
    probing = Probing(
        probes=data.draw(st.sampled_from([1, 5, 40, 200])),
        pool=data.draw(st.sampled_from([8, 30])),
        patience=data.draw(st.sampled_from([1.0, 1.2, 1.5, 100.0])),
        block_patience=data.draw(st.sampled_from([1.0, 1.2, 1.5, 100.0])),
        groups=data.draw(st.sampled_from([1, 6, 1000])),
    )
    parts = index.file.centroids, index.file.lists
    (far, found), (plain_far, plain) = (kind(*parts).search(queries, 8, probing) for kind in (Ivf, PlainIvf))
    both = (found[:, :, None] == plain[:, None, :]).any(2)  # one key more moves all behind it
    assert both.float().mean() > 0.98
    torch.testing.assert_close(far[found == plain], plain_far[found == plain])


class Points(NamedTuple):
    """The points [16 n, d] of blocks [n] by the formula of native/blocks.h, with bases [n, d]; in units of codes."""

    read: np.ndarray
    there: np.ndarray
    steps: np.ndarray
    norms: np.ndarray
    most: float  # that can be left of a point, in steps

    @classmethod
    def of(cls, blocks: np.ndarray, bases: np.ndarray, bits: int) -> Points:
        dimension, most = bases.shape[1], ((1 << bits) - 1) / 2
        halves = blocks[:, :64].copy().view(np.float16).astype(np.float64).reshape(-1, 2, 16)
        norms, steps = halves[:, 0].reshape(-1), halves[:, 1].reshape(-1, 1)
        spans = blocks[:, 64:].reshape(len(blocks), -1, 16, 4)
        numbers = np.stack([spans >> shift & ((1 << bits) - 1) for shift in range(0, 8, bits)], 2)
        numbers = numbers.transpose(0, 3, 1, 2, 4).reshape(len(norms), -1)[:, :dimension]
        return cls(bases.repeat(16, 0) + steps * (numbers - most), np.isfinite(norms), steps, norms, most)

    def check(self, exact: np.ndarray, bases: np.ndarray, nearer: np.ndarray | float = 0.0) -> None:
        """Each is read as what is nearest to it, and its norm is that of the formula."""
        left, read = (each[self.there] - bases.repeat(16, 0)[self.there] for each in (exact, self.read))
        steps, unit = self.steps[self.there], 8 * (exact.shape[1] + 12)
        inside = np.abs(left) <= (self.most + 0.5) * steps
        assert (np.abs(left - read)[inside] <= np.broadcast_to(0.501 * steps + 1e-3, left.shape)[inside]).all()
        assert np.allclose(np.abs(read)[~inside], np.broadcast_to(self.most * steps, left.shape)[~inside])
        expected = (read * (read + 2 * bases.repeat(16, 0)[self.there])).sum(1)
        expected -= np.broadcast_to(nearer, self.there.shape)[self.there]
        size = np.abs(read).sum(1) * (np.abs(bases).max(initial=1) + 1)
        assert (np.abs(unit * self.norms[self.there] - expected) <= 1e-3 * (np.abs(expected) + size) + 0.1).all()


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_all_of_the_tree_is_near_what_it_stands_for(data: st.DataObject) -> None:
    """Guides are the means of their blocks; every key stands once, and has a place in two lists if there are two."""
    size, dimension = data.draw(st.sampled_from([1, 17, 400, 2000])), data.draw(st.sampled_from([4, 12, 64]))
    kind = data.draw(st.sampled_from([np.float16, np.float32]))
    keys = np.random.default_rng(data.draw(st.integers(0, 99))).standard_normal((size, dimension)).astype(kind)
    file = build(ArrayKeys(keys), f"native;nprobe=1;lists={data.draw(st.integers(1, max(1, size // 8)))}").file
    tree, lists = file.centroids, file.lists
    regions = _decode(tree.region_blocks)[0].astype(np.float64)[: len(tree.group_blocks)]
    groups = Points.of(tree.group_blocks, regions, COARSE_BITS)
    centroids = Points.of(tree.centroid_blocks, groups.read, COARSE_BITS)
    blocks_of = np.diff(lists.list_offsets)
    assert centroids.there[blocks_of > 0].all()
    assert groups.there.repeat(16)[centroids.there].all()
    guides_of = np.diff(lists.guide_offsets)
    guides = Points.of(lists.guides, centroids.read.repeat(guides_of, 0), FINE_BITS)
    # A block's place in the guides of its list.
    first = 16 * lists.guide_offsets[:-1].repeat(blocks_of) - lists.list_offsets[:-1].repeat(blocks_of)
    own = first + np.arange(len(lists.blocks))
    assert np.array_equal(np.flatnonzero(guides.there), own)
    held = Points.of(lists.blocks, guides.read[own], FINE_BITS)

    there = lists.slots >= 0
    assert sorted(lists.entries) == list(range(size))
    assert np.array_equal(lists.keys, keys[lists.entries])
    assert np.array_equal(held.there, there)
    list_of = np.arange(len(blocks_of)).repeat(16 * blocks_of)[there]
    named = set(zip(lists.slots[there].tolist(), list_of.tolist(), strict=True))
    assert len(named) == there.sum() == size * min(2, int((blocks_of > 0).sum()))
    exact = np.zeros((len(there), dimension))
    exact[there] = (lists.keys[lists.slots[there]].astype(np.float64) - tree.coding.mean) * tree.coding.scale
    counts = there.reshape(-1, 16).sum(1)[:, None]
    sums = exact.reshape(-1, 16, dimension).sum(1)
    means = np.zeros_like(guides.read)
    means[own] = sums / counts
    spread = np.square(exact - np.where(there[:, None], means[own].repeat(16, 0), 0)).sum(1).reshape(-1, 16).sum(1)
    nearer = 0.15 * spread / counts[:, 0]
    seeming = np.zeros(len(guides.read))
    seeming[own] = nearer
    guides.check(means, centroids.read.repeat(guides_of, 0), seeming)
    held.check(exact, guides.read[own], -nearer.repeat(16))


def test_blocks_are_tighter_than_their_lists(clustered: ArrayKeys) -> None:
    lists = build(clustered, "native;lists=20;nprobe=1").file.lists
    generator = np.random.default_rng(0)

    def spread(keys: np.ndarray) -> float:
        blocks = keys[: len(keys) // 16 * 16].reshape(-1, 16, 32)
        return float(np.square(blocks - blocks.mean(1, keepdims=True)).sum(2).mean())

    for first, last in zip(lists.list_offsets[:-1], lists.list_offsets[1:], strict=True):
        slots = lists.slots[16 * first : 16 * last]
        own = lists.keys[slots[slots >= 0]].astype(np.float64)
        if len(own) > 100:
            assert spread(own) < 0.8 * spread(generator.permutation(own))


def test_a_query_finds_the_same_in_any_batch(clustered: ArrayKeys) -> None:
    index = build(clustered)
    queries = torch.from_numpy(clustered.gather(np.arange(0, 6000, 50)).astype(np.float32)) + 0.05
    queries = queries.repeat_interleave(torch.tensor([1, 2, 3, 1] * 30), dim=0)
    group_size = index.search(queries, 8)
    for row in range(0, len(queries), 7):
        alone = index.search(queries[row : row + 1], 8)
        assert torch.equal(alone.entries[0], group_size.entries[row])
        assert torch.equal(alone.distances[0], group_size.distances[row])


@given(st.integers(1, 300), st.integers(0, 99))
def test_groups_take_sixteen_at_most(count: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(count, 4, generator=generator)
    places = training.arrange(points, points[: -(-count // 13)])
    assert len(set(places.tolist())) == count
    assert places.min() >= 0
    assert places.max() < 16 * -(-count // 13)


def test_a_loaded_file_cannot_be_written_to(clustered: ArrayKeys, tmp_path: Path) -> None:
    path = tmp_path / "index.native"
    loaded = load_native(path, build(clustered, "native;lists=8").save(path), clustered)
    for array in (loaded.file.bytes, loaded.file.lists.keys, loaded.file.centroids.coding.mean):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def sentences(keys: ArrayKeys, away: float, beam: int = 5) -> torch.Tensor:
    """Queries [40 x beam, d] of sentences whose hypotheses lie about so far from each other."""
    first = torch.from_numpy(keys.gather(np.arange(0, 6000, 150)).astype(np.float32))
    noise = torch.randn(len(first), beam, keys.dimension, generator=torch.Generator().manual_seed(5))
    noise = noise / noise.norm(dim=2, keepdim=True) * away
    return (first[:, None] + 0.05 + noise).flatten(0, 1)


@pytest.mark.parametrize("away", [0.0, 0.01, 0.1, 0.5, 3.0])
def test_hypotheses_that_are_nearly_the_same_share_a_search(clustered: ArrayKeys, away: float) -> None:
    """What is shared is found nearly as well; what is the same or far apart, just as well."""
    index = build(clustered)
    assert isinstance(index.ivf, Ivf)
    queries = sentences(clustered, away)
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


def test_what_is_shared_depends_on_the_sentence_alone(clustered: ArrayKeys) -> None:
    index = build(clustered)
    assert isinstance(index.ivf, Ivf)
    queries = torch.cat([sentences(clustered, away) for away in (0.05, 0.2, 0.5)])
    queries[3::7] = torch.nan
    queries[50:55] = torch.nan
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        distances, entries = index.ivf.search(queries, 8, index.probing(8), group_size=5, threads=3)
        for _ in range(20):  # whoever comes first
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


def test_what_is_shared_is_what_one_search_has_found(clustered: ArrayKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a candidate to spare, a query that shares has the neighbours of the other, by its own distances."""
    index = build(clustered, "native;lists=1;nprobe=1")  # where every key has one place
    assert isinstance(index.ivf, Ivf)
    probing = replace(index.probing(7), pool=7)
    monkeypatch.setattr(Probing, "pool_for", lambda self, k: self.pool)  # noqa: ARG005
    one = sentences(clustered, 0.0, beam=1)
    reach = index.ivf.search(one, 7, probing)[0][:, -1:].sqrt()
    aside = torch.randn(len(one), 32, generator=torch.Generator().manual_seed(7))
    aside = aside / aside.norm(dim=1, keepdim=True) * reach
    queries = torch.stack([one, one - 3 * aside, one + 0.3 * aside], 1).flatten(0, 1)

    def same(group_size: int) -> float:
        _, entries = index.ivf.search(queries, 7, probing, group_size=group_size)
        return float(np.mean([set(row[0]) == set(row[2]) for row in entries.view(-1, 3, 7).tolist()]))

    assert same(3) > 0.9 > 0.5 > same(1)


@given(st.sampled_from([1, 5, 16]), st.integers(2, 12), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_a_key_that_is_found_twice_counts_once(k: int, lists: int, seed: int) -> None:
    """However few the candidates are, there are k neighbours, and no two of them the same."""
    keys = np.random.default_rng(seed).standard_normal((120, 8)).astype(np.float32)
    index = build(ArrayKeys(keys), f"native;nprobe={lists};gamma=1000;lists={lists};refine=1")
    for ivf in (index.ivf, PlainIvf(index.file.centroids, index.file.lists)):
        _, entries = ivf.search(torch.from_numpy(keys[:20]) + 0.1, k, index.probing(k))
        assert (entries >= 0).all()
        assert all(len(set(row)) == k for row in entries.tolist())


@given(st.integers(1, 9), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_the_second_list_makes_up_for_the_first(lists: int, seed: int) -> None:
    """Its centroid is near, and what that leaves of a key is not what the first one leaves: the loss of SOAR."""
    keys = np.random.default_rng(seed).standard_normal((200, 12)).astype(np.float32)
    tree = build(ArrayKeys(keys), f"native;lists={lists};nprobe=1").file.centroids
    first, second = Ivf(tree).assign_twice(keys, 40)
    regions = _decode(tree.region_blocks)[0].astype(np.float64)[: len(tree.group_blocks)]
    groups = Points.of(tree.group_blocks, regions, COARSE_BITS)
    centroids = Points.of(tree.centroid_blocks, groups.read, COARSE_BITS)
    if lists == 1:
        assert (second == -1).all()
        return
    left = ((keys - tree.coding.mean) * tree.coding.scale)[:, None] - centroids.read
    before = left[np.arange(len(keys)), first]
    along = (left * before[:, None]).sum(2) ** 2 / np.square(before).sum(1, keepdims=True)
    loss = np.where(centroids.there, np.square(left).sum(2) + along, np.inf)
    loss[np.arange(len(keys)), first] = np.inf
    assert (first != second).all()
    assert np.allclose(loss[np.arange(len(keys)), second], loss.min(1), rtol=1e-4)
