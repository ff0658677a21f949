"""Build, search, save and load faiss indexes, with exact search as the oracle."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import faiss
import numpy as np
import pytest
import torch

from ibidem.errors import MemoryFolderError, UsageError
from ibidem.retrieve import ArrayKeys, ExactIndex, FaissIndex, build_index, faiss_index, measure_recall
from ibidem.retrieve import index_settings as settings_module
from ibidem.retrieve.faiss_index import load_faiss_index

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def build(keys: ArrayKeys, setting: str, seed: int = 1) -> FaissIndex:
    index = build_index(keys, setting, seed=seed, threads=1)
    assert isinstance(index, FaissIndex)
    return index


@pytest.mark.parametrize(
    ("setting", "least"),
    [
        ("Flat", 1.0),
        ("IVF32,SQ8;nprobe=16", 0.95),
        ("IVF32,SQfp16;nprobe=32", 0.999),
        ("HNSW16;ef_search=200", 0.95),
        ("IVF32_HNSW8,SQ8;nprobe=16;ef_search=32", 0.95),
        ("PCA24,IVF32,SQ8;nprobe=16", 0.6),
        ("IVF32,PQ16x4fs,Refine(SQfp16);nprobe=32;k_factor=16", 0.95),
    ],
)
def test_recall_against_exact_search(clustered: ArrayKeys, setting: str, least: float) -> None:
    index = build(clustered, setting)
    assert measure_recall(index, clustered, samples=200, seed=3) >= least
    assert (index.size, index.dimension) == (6000, 32)
    assert setting.split(";")[0] in index.description


def test_distances_are_squared_and_ascending(clustered: ArrayKeys) -> None:
    queries = torch.from_numpy(clustered.gather(np.arange(50)).astype(np.float32)) + 0.05
    found = build(clustered, "IVF32,SQfp16;nprobe=32").search(queries, 8)
    true = ExactIndex(clustered).search(queries, 8)
    torch.testing.assert_close(found.distances, true.distances, rtol=1e-2, atol=1e-2)
    assert (found.distances.diff(dim=1) >= 0).all()


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        ("IVF64,SQ8;nprobe=1", "IVF64,SQ8;nprobe=64"),
        ("PCA30,IVF64,SQ8;nprobe=1", "PCA30,IVF64,SQ8;nprobe=64"),
        ("HNSW8;ef_search=16", "HNSW8;ef_search=200"),
        ("IVF64,PQ8x4fs,Refine(Flat);nprobe=64", "IVF64,PQ8x4fs,Refine(Flat);nprobe=64;k_factor=20"),
        ("IVF512_HNSW4,Flat;nprobe=16;ef_search=1", "IVF512_HNSW4,Flat;nprobe=16;ef_search=200"),
    ],
)
def test_parameters_change_the_search_and_not_the_index(narrow: str, wide: str) -> None:
    keys = ArrayKeys(np.random.default_rng(0).standard_normal((2000, 32)).astype(np.float16))
    indexes = build(keys, narrow), build(keys, wide)
    saved = [faiss.serialize_index(index.index) for index in indexes]
    recalls = [measure_recall(index, keys, seed=0) for index in indexes]
    assert recalls[0] < recalls[1] - 0.05
    assert np.array_equal(saved[0], saved[1])
    assert np.array_equal(saved[0], faiss.serialize_index(indexes[0].index))


def test_paper(draw_keys: Callable[..., np.ndarray]) -> None:
    keys = ArrayKeys(draw_keys(3000, 8, seed=2))
    index = build(keys, "paper")
    assert index.settings.factory == "IVF64,PQ8"
    assert len(index.settings.notes) == 2
    assert measure_recall(index, keys, seed=0) > 0.8


@pytest.mark.usefixtures("no_native")
def test_auto_raises_nprobe_until_recall_is_good(clustered: ArrayKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_module, "EXACT_BELOW", 1000)
    monkeypatch.setattr(settings_module, "DEFAULT_NPROBE", 1)
    stages: list[tuple[str, int, int]] = []
    index = build_index(clustered, "auto", seed=1, threads=1, progress=lambda *step: stages.append(step))
    assert isinstance(index, FaissIndex)
    assert index.settings.factory == "IVF128,SQfp16"
    assert index.settings.nprobe is not None
    assert index.settings.nprobe > 1
    assert index.recall is not None
    assert index.recall >= 0.97
    assert "recall@16 0.9" in index.description or "recall@16 1.0" in index.description
    assert index.recall == measure_recall(index, clustered, seed=1)
    assert [step for step in stages if step[0] == "train"] == [("train", 0, 6000), ("train", 6000, 6000)]
    assert [step for step in stages if step[0] == "add"][-1] == ("add", 6000, 6000)
    assert stages[-1] == ("measure", 1, 1)


@pytest.mark.usefixtures("no_native")
def test_a_recall_below_the_target_gives_a_note(clustered: ArrayKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_module, "EXACT_BELOW", 1000)
    monkeypatch.setattr(settings_module, "DEFAULT_NPROBE", 1)
    monkeypatch.setattr(faiss_index, "MOST_NPROBE", 1)
    index = build(clustered, "auto")
    assert "below 0.97" in index.settings.notes[-1]


@pytest.mark.parametrize("setting", ["IVF32,SQ8", "HNSW8", "IVF32_HNSW8,SQ8", "IVF8,PQ4x4"])
def test_the_same_seed_gives_the_same_index(
    clustered: ArrayKeys, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setattr(faiss_index, "TRAIN_AT_LEAST", 2000)
    monkeypatch.setattr(faiss_index, "_ADD_ELEMENTS", 32_000)
    one, same, other = (faiss.serialize_index(build(clustered, setting, seed).index) for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_threads_are_restored(clustered: ArrayKeys) -> None:
    before = faiss.omp_get_max_threads()
    index = build_index(clustered, "IVF32,SQ8", seed=0, threads=before + 1)
    index.search(torch.zeros(3, 32), 4)
    assert faiss.omp_get_max_threads() == before


def test_save_and_load(clustered: ArrayKeys, tmp_path: Path) -> None:
    index = build(clustered, "IVF32,SQ8;nprobe=7")
    path = tmp_path / "index.faiss"
    path.write_text("an older index")
    info = json.loads(json.dumps(index.save(path)))
    assert list(tmp_path.iterdir()) == [path]
    assert (info["factory"], info["nprobe"], info["size"], info["dimension"]) == ("IVF32,SQ8", 7, 6000, 32)
    loaded = load_faiss_index(path, info, clustered)
    assert loaded.settings == index.settings
    queries = torch.from_numpy(clustered.gather(np.arange(40)).astype(np.float32))
    for mine, other in zip(index.search(queries, 8), loaded.search(queries, 8), strict=True):
        assert torch.equal(mine, other)


def test_an_index_of_other_keys_is_rejected(clustered: ArrayKeys, tmp_path: Path) -> None:
    path = tmp_path / "index.faiss"
    info = build(clustered, "IVF32,SQ8").save(path)
    fewer = ArrayKeys(clustered.gather(np.arange(5999)))
    with pytest.raises(MemoryFolderError, match=r"6000 keys of 32.*has 5999 of 32.*ibidem index"):
        load_faiss_index(path, info, fewer)
    with pytest.raises(MemoryFolderError, match="file of the index"):
        load_faiss_index(path, {**info, "size": 5999}, fewer)
    with pytest.raises(MemoryFolderError, match="6000 of 31"):
        load_faiss_index(path, info, ArrayKeys(clustered.gather(np.arange(6000))[:, :31]))
    for wrong in ({}, {**info, "nprobe": -4}, {**info, "size": "many"}):
        with pytest.raises(MemoryFolderError, match=r"incomplete.*ibidem index"):
            load_faiss_index(path, wrong, clustered)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(MemoryFolderError, match=r"cannot be read.*ibidem index"):
        load_faiss_index(path, info, clustered)


def test_save_into_a_missing_folder(clustered: ArrayKeys, tmp_path: Path) -> None:
    with pytest.raises(MemoryFolderError, match=r"could not be written.*ibidem index"):
        build(clustered, "Flat").save(tmp_path / "nowhere" / "index.faiss")


@pytest.mark.parametrize("setting", ["Flat", "IVF4,SQ8", "HNSW8", "IVF4,PQ16x4fs,Refine(Flat)"])
def test_more_neighbours_than_keys_and_queries_that_are_not_finite(
    setting: str, draw_keys: Callable[..., np.ndarray]
) -> None:
    keys = ArrayKeys(draw_keys(160, 32, seed=1))
    queries = torch.from_numpy(keys.gather(np.arange(3)).astype(np.float32))
    queries[1, 4] = torch.nan
    found = build(keys, setting).search(queries, 200)
    assert found.entries[1].eq(-1).all()
    assert found.distances[1].isinf().all()
    for row in (0, 2):
        count = int((found.entries[row] >= 0).sum())
        assert 50 < count <= 160
        assert found.distances[row, :count].isfinite().all()
        assert found.distances[row, count:].isinf().all()
    assert build(keys, setting).search(queries[:0], 3).entries.shape == (0, 3)


def test_what_cannot_be_built_is_rejected(clustered: ArrayKeys) -> None:
    with pytest.raises(UsageError, match=r"'PQ16x13' over 6000 keys.*'auto'"):
        build(clustered, "PQ16x13")
    with pytest.raises(UsageError, match="memory is empty"):
        build(ArrayKeys(np.ones((0, 8), dtype=np.float16)), "Flat")
    spoilt = clustered.gather(np.arange(6000)).copy()
    spoilt[4321, 3] = np.nan
    with pytest.raises(MemoryFolderError, match=r"1 keys are not finite.*entry 4321"):
        build(ArrayKeys(spoilt), "Flat")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_queries_on_cuda(clustered: ArrayKeys) -> None:
    found = build(clustered, "Flat").search(torch.zeros(3, 32, device="cuda"), 4)
    assert found.entries.device.type == found.distances.device.type == "cuda"
