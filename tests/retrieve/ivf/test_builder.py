"""Build the native index: training, tuning, and what is written."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.errors import MemoryFolderError, UsageError
from ibidem.native import COARSE_BITS, FINE_BITS, Ivf
from ibidem.retrieve import ArrayKeys, NativeIndex, build_index
from ibidem.retrieve.builder import exact_index
from ibidem.retrieve.ivf import builder
from ibidem.retrieve.ivf.reference import decode_regions

from .samples import build

pytestmark = pytest.mark.usefixtures("native_build")


def test_the_search_is_widened_until_recall_reaches_the_target() -> None:
    """In keys without clusters the nearest are in many lists."""
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


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_more_lists_than_16_bits_can_count() -> None:
    """Of 140,000 keys in 70,000 lists, a search of all finds what exact search finds, and one of some nearly all."""
    generator = np.random.default_rng(0)
    centres = generator.standard_normal((3000, 8))
    places = centres[generator.integers(3000, size=140_000)] + 0.4 * generator.standard_normal((140_000, 8))
    keys = ArrayKeys(places.astype(np.float16))
    index = build(keys, "native;lists=70000")
    assert index.settings.lists == 70_000
    assert index.recall is not None
    assert index.recall > 0.97
    queries = torch.from_numpy(keys.gather(np.arange(0, 140_000, 1400)).astype(np.float32)) + 0.01
    everywhere = index.searching(replace(index.settings, nprobe=1 << 20, prune_ratio=1e6, rerank=1000))
    found, expected = everywhere.search(queries, 16), exact_index(keys, torch.device("cpu")).search(queries, 16)
    assert torch.equal(found.entries.sort(1).values, expected.entries.sort(1).values)


def test_a_recall_below_the_target_gives_a_note(clustered: ArrayKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "MOST_PRUNE_RATIO", 1.0)
    monkeypatch.setattr(builder, "recall_at", lambda *_: 0.5)
    assert "below 0.98:" in build(clustered).settings.notes[-1]


def test_the_same_seed_gives_the_same_file(clustered: ArrayKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "TRAIN_PER_LIST", 20)
    monkeypatch.setattr(builder, "_ELEMENTS", 32_000)
    one, same, other = (build(clustered, "native", seed).file.bytes for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_the_sample_fits_into_the_training_memory(clustered: ArrayKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_of_key = clustered.gather(np.arange(1)).nbytes
    for room, wanted in ((1, 24), (30, 30), (1000, 128)):
        monkeypatch.setattr(builder, "TRAIN_BYTES", 10 * room * bytes_of_key)
        sample = builder._draw_sample(clustered, 10, 1)
        assert len(sample) == 10 * wanted
        assert sample.dtype == clustered.gather(np.arange(1)).dtype  # half of the bytes that float32 would take
    assert len(builder._draw_sample(clustered, 1000, 1)) == clustered.size


def test_threads_do_not_change_results_and_are_restored(clustered: ArrayKeys) -> None:
    before = torch.get_num_threads()
    queries = torch.from_numpy(clustered.gather(np.arange(64)).astype(np.float32))
    answers = []
    for threads in (1, 3):
        index = build_index(clustered, "native", seed=1, threads=threads)
        answers.append(index.search(queries, 8))
    assert torch.get_num_threads() == before
    assert torch.equal(answers[0].entries, answers[1].entries)


def test_empty_and_damaged_keys_are_rejected(clustered: ArrayKeys) -> None:
    with pytest.raises(UsageError, match="memory is empty"):
        build(ArrayKeys(np.ones((0, 8), dtype=np.float16)))
    spoilt = clustered.gather(np.arange(6000)).copy()
    spoilt[4321, 3] = np.nan
    with pytest.raises(MemoryFolderError, match="1 keys are not finite"):
        build(ArrayKeys(spoilt))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30).filter(any), st.data())
def test_shares_are_proportional(counts: list[int], data: st.DataObject) -> None:
    total = data.draw(st.integers(0, sum(counts)))
    shares = builder.apportion(counts, total)
    assert sum(shares) == total
    assert all(0 <= share <= count for share, count in zip(shares, counts, strict=True))
    assert all(abs(share - count * total / sum(counts)) < 1 for share, count in zip(shares, counts, strict=True))


@given(st.integers(1, 300), st.integers(0, 99))
def test_a_group_has_at_most_sixteen_places(count: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(count, 4, generator=generator)
    places = builder.assign_places(points, points[: -(-count // 13)])
    assert len(set(places.tolist())) == count
    assert places.min() >= 0
    assert places.max() < 16 * -(-count // 13)


class Points(NamedTuple):
    """The points [16 n, d] of blocks [n] with bases [n, d], decoded as in native/index/blocks.h, in units of codes."""

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
        """Check that each point is decoded to the nearest code, and that its norm follows the formula."""
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
def test_the_codes_of_the_file_decode_to_what_they_encode(data: st.DataObject) -> None:
    """Guides are the means of their blocks; every key is in two lists if there are two."""
    size, dimension = data.draw(st.sampled_from([1, 17, 400, 2000])), data.draw(st.sampled_from([4, 12, 64]))
    kind = data.draw(st.sampled_from([np.float16, np.float32]))
    keys = np.random.default_rng(data.draw(st.integers(0, 99))).standard_normal((size, dimension)).astype(kind)
    file = build(ArrayKeys(keys), f"native;nprobe=1;lists={data.draw(st.integers(1, max(1, size // 8)))}").file
    tree, lists = file.centroids, file.lists
    regions = decode_regions(tree.region_blocks)[0].astype(np.float64)[: len(tree.group_blocks)]
    groups = Points.of(tree.group_blocks, regions, COARSE_BITS)
    centroids = Points.of(tree.centroid_blocks, groups.read, COARSE_BITS)
    blocks_of = np.diff(lists.list_offsets)
    assert centroids.there[blocks_of > 0].all()
    assert groups.there.repeat(16)[centroids.there].all()
    means_of = np.diff(lists.means_offsets)
    block_means = Points.of(lists.block_means, centroids.read.repeat(means_of, 0), FINE_BITS)
    # A block's place in the block_means of its list.
    first = 16 * lists.means_offsets[:-1].repeat(blocks_of) - lists.list_offsets[:-1].repeat(blocks_of)
    own = first + np.arange(len(lists.blocks))
    assert np.array_equal(np.flatnonzero(block_means.there), own)
    held = Points.of(lists.blocks, block_means.read[own], FINE_BITS)

    there = lists.entries >= 0
    assert np.array_equal(held.there, there)
    list_of = np.arange(len(blocks_of)).repeat(16 * blocks_of)[there]
    named = set(zip(lists.entries[there].tolist(), list_of.tolist(), strict=True))
    assert len(named) == there.sum() == size * min(2, int((blocks_of > 0).sum()))
    exact = np.zeros((len(there), dimension))
    exact[there] = (keys[lists.entries[there]].astype(np.float64) - tree.coding.mean) * tree.coding.scale
    counts = there.reshape(-1, 16).sum(1)[:, None]
    sums = exact.reshape(-1, 16, dimension).sum(1)
    means = np.zeros_like(block_means.read)
    means[own] = sums / counts
    spread = np.square(exact - np.where(there[:, None], means[own].repeat(16, 0), 0)).sum(1).reshape(-1, 16).sum(1)
    nearer = 0.15 * spread / counts[:, 0]
    seeming = np.zeros(len(block_means.read))
    seeming[own] = nearer
    block_means.check(means, centroids.read.repeat(means_of, 0), seeming)
    held.check(exact, block_means.read[own], -nearer.repeat(16))


def test_blocks_are_tighter_than_their_lists(clustered: ArrayKeys) -> None:
    lists = build(clustered, "native;lists=20;nprobe=1").file.lists
    generator = np.random.default_rng(0)

    def spread(keys: np.ndarray) -> float:
        blocks = keys[: len(keys) // 16 * 16].reshape(-1, 16, 32)
        return float(np.square(blocks - blocks.mean(1, keepdims=True)).sum(2).mean())

    for first, last in zip(lists.list_offsets[:-1], lists.list_offsets[1:], strict=True):
        entries = lists.entries[16 * first : 16 * last]
        own = clustered.gather(entries[entries >= 0]).astype(np.float64)
        if len(own) > 100:
            assert spread(own) < 0.8 * spread(generator.permutation(own))


@given(st.integers(1, 9), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_the_second_list_minimises_the_loss_of_soar(lists: int, seed: int) -> None:
    """SOAR prefers a second centroid whose residual is not parallel to that of the first."""
    keys = np.random.default_rng(seed).standard_normal((200, 12)).astype(np.float32)
    tree = build(ArrayKeys(keys), f"native;lists={lists};nprobe=1").file.centroids
    first, second = Ivf(tree).assign_twice(keys, 40)
    regions = decode_regions(tree.region_blocks)[0].astype(np.float64)[: len(tree.group_blocks)]
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
