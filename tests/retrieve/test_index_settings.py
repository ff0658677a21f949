"""What each index setting resolves to, and the error of an invalid one."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.errors import UsageError
from ibidem.retrieve import ArrayKeys, ExactIndex, FaissSettings, build_index, resolve
from ibidem.retrieve.index_settings import ExactSettings, ListSettings, native_lists


def test_paper() -> None:
    assert resolve("paper", 1_000_000, 64) == FaissSettings("IVF1024,PQ64", nprobe=32)
    assert resolve("paper", 39 * 1024, 1024) == FaissSettings("IVF1024,PQ64", nprobe=32)


def test_notes_describe_how_the_paper_index_differs() -> None:
    settings = resolve("paper", 39 * 1024 - 1, 100)
    assert (settings.factory, settings.nprobe) == ("IVF512,PQ50", 32)
    assert "100 dimensions allow 50" in settings.notes[0]
    assert "39935 keys allow 512" in settings.notes[1]
    assert resolve("paper", 300, 24).factory == "IVF4,PQ24"
    flat = resolve("paper", 200, 64)
    assert flat.factory == "Flat"
    assert "there are 200" in flat.notes[0]


@given(size=st.integers(256, 10**9), dimension=st.integers(1, 2048))
def test_paper_always_fits(size: int, dimension: int) -> None:
    factory = resolve("paper", size, min(dimension, 97)).factory
    lists, code_bytes = (int(part.strip("IVFPQ")) for part in factory.split(","))
    assert size >= 39 * lists
    assert min(dimension, 97) % code_bytes == 0
    assert code_bytes <= 64


@pytest.mark.usefixtures("no_native")
def test_auto_without_the_native_library() -> None:
    assert resolve("auto", 19_999, 64) == ExactSettings()
    small = resolve("auto", 20_000, 64)
    assert (small.factory, small.nprobe, small.target_recall) == ("IVF512,SQfp16", 32, 0.97)
    assert resolve("auto", 3_600_000, 512).factory == "IVF8192,SQ8"
    assert resolve("auto", 60_000_000, 64).factory == "IVF32768_HNSW32,SQfp16"


@pytest.mark.usefixtures("native_build")
def test_auto_with_the_native_library() -> None:
    assert resolve("auto", 9_999, 64) == ExactSettings()
    assert resolve("auto", 3_600_000, 64) == resolve("native", 3_600_000, 64)
    assert isinstance(resolve("auto", 3_600_000, 30), FaissSettings)


@pytest.mark.parametrize("triton", [False, True])
def test_auto_on_a_gpu(triton: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ibidem.retrieve.index_settings.has_triton", lambda: triton)
    assert resolve("auto", 7_999_999, 64, device="cuda:0") == ExactSettings()
    assert resolve("auto", 10**8, 512, device="cuda:0") == ExactSettings()
    large = resolve("auto", 10**8, 64, device="cuda:0")
    assert large == (resolve("lists", 10**8, 64, device="cuda:0") if triton else ExactSettings())


def test_factory_strings_with_parameters() -> None:
    assert resolve("exact", 0, 64) == ExactSettings()
    assert resolve("IVF16,SQ8;nprobe=5", 999, 64) == FaissSettings("IVF16,SQ8", nprobe=5)
    assert resolve(" HNSW16 ; efSearch=80", 999, 64) == FaissSettings("HNSW16", ef_search=80)
    refined = resolve("IVF16,PQ32x4fs,Refine(SQfp16);nprobe=8;k_factor=2.5", 999, 64)
    assert (refined.nprobe, refined.k_factor) == (8, 2.5)
    unsaid = resolve("IVF16,SQ8", 999, 64)
    assert unsaid.nprobe == 32
    assert "nprobe was not given" in unsaid.notes[0]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("bogus", "'bogus'.*IVF1024,SQ8;nprobe=32"),
        ("", "names no index"),
        ("IVF16,PQ7", "'IVF16,PQ7'.*64 dimensions.*must divide"),
        ("IVF2000,Flat", "2000 lists, but there are 999 keys. Use at most 25 lists"),
        ("IVF2k,Flat", "2048 lists"),
        ("IVF0,Flat", "0 lists"),
        ("HNSW0", "zero"),
        ("LSH", "squared distances"),
        ("IDMap,Flat", "numbered keys"),
        ("HNSW16;nprobe=3", "nprobe, which 'HNSW16' does not have"),
        ("IVF16,SQ8;nprobe=x", "'nprobe=x'"),
        ("IVF16,SQ8;nprobe=0", "'nprobe=0'"),
        ("IVF16,SQ8;nprobe=2.5", "'nprobe=2.5'"),
        ("IVF16,SQ8;speed=3", "'speed=3'"),
        ("IVF16,SQ8;nprobe=nan", "'nprobe=nan'"),
    ],
)
def test_an_invalid_setting_is_rejected_with_advice(setting: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve(setting, 999, 64)


def test_few_keys_are_advised_to_use_exact() -> None:
    with pytest.raises(UsageError, match=r"there are 20 keys. Use 'exact'"):
        resolve("IVF64,Flat", 20, 64)


@pytest.mark.usefixtures("no_native")
def test_without_faiss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    keys = ArrayKeys(np.ones((30_000, 2), dtype=np.float16))
    with pytest.raises(UsageError, match="pip install faiss-cpu"):
        build_index(keys, "paper", seed=0)
    assert isinstance(build_index(keys, "exact", seed=0), ExactIndex)
    with pytest.warns(UserWarning, match="pip install faiss-cpu"):
        assert isinstance(build_index(keys, "auto", seed=0), ExactIndex)
    assert "pip install faiss-cpu" in resolve("auto", 30_000, 2).notes[0]


@pytest.mark.usefixtures("native_build")
def test_native_settings() -> None:
    chosen = resolve("native", 4_000_000, 64)
    assert (chosen.lists, chosen.nprobe, chosen.target_recall) == (32_768, 64, 0.98)
    given_ones = resolve(" native ; nprobe=128; prune_ratio=1.5 ;lists=100;rerank=64", 10_000, 64)
    assert (given_ones.lists, given_ones.nprobe, given_ones.prune_ratio, given_ones.rerank) == (100, 128, 1.5, 64)
    assert given_ones.target_recall is None
    # Memories store the names 'gamma' and 'refine'.
    renamed = resolve("native;nprobe=128;prune_ratio=1.5;lists=100;rerank=64", 10_000, 64)
    assert renamed == given_ones
    assert (
        resolve("native;nprobe=512", 10_000, 64).prune_ratio > resolve("native;nprobe=32", 10_000, 64).prune_ratio >= 1
    )
    sizes = (1, 48, 2000, 500_000, 1_080_000, 20_000_000, 154_000_000, 1_000_000_000, 10**12)
    lists = [1, 1, 32, 8192, 16_384, 65_536, 262_144, 524_288, 1_048_576]
    assert [native_lists(size) for size in sizes] == lists
    for wrong in (
        "native;nprobe",
        "native;nprobe=0",
        "native;nprobe=1.5",
        "native;probes=3",
        "native;prune_ratio=nan",
        "native;",
    ):
        with pytest.raises(UsageError, match="Invalid parameter"):
            resolve(wrong, 1000, 64)
    with pytest.raises(UsageError, match="not of 30"):
        resolve("native", 1000, 30)
    with pytest.raises(UsageError, match="not of 1028"):
        resolve("native", 1000, 1028)
    with pytest.raises(UsageError, match="2000 lists"):
        resolve("native;lists=2000", 1000, 64)


def test_list_settings() -> None:
    assert resolve("lists", 4_300_000, 64, device="cuda") == ListSettings(8_192)
    assert resolve(" lists; nprobe=96 ;lists=512", 1000, 64, device="cuda") == ListSettings(512, 96)
    assert resolve("int8", 1000, 64, device="cuda:1") == ExactSettings(coded=True)
    for wrong in ("lists;nprobe=0", "lists;probes=3", "lists;nprobe=1.5", "lists;"):
        with pytest.raises(UsageError, match="nprobe=128"):
            resolve(wrong, 1000, 64)
    with pytest.raises(UsageError, match="takes none"):
        resolve("int8;nprobe=3", 1000, 64, device="cuda")


def test_paper_depends_on_the_device() -> None:
    assert isinstance(resolve("paper", 5_000_000, 64), FaissSettings)
    assert resolve("paper", 5_000_000, 64, device="cuda") == ListSettings(1024, 32, 64)
    assert resolve("paper", 5_000_000, 512, device="cuda") == ListSettings(1024, 32, 64)
    assert isinstance(resolve("paper", 100, 64, device="cuda"), ExactSettings)
