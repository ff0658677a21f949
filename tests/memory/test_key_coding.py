"""Compact keys as int8 codes: rounding, clipping, files, and memories that store them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from ibidem.errors import DamagedMemoryError
from ibidem.memory import KeyCoding, Memory, ModelIdentity

from .samples import append, one, put_coding, record, sample

if TYPE_CHECKING:
    from pathlib import Path


@given(st.integers(0, 99), st.sampled_from([1e-3, 1.0, 50.0]), st.sampled_from([0.0, 1.0, -3.0]))
def test_codes_are_near_and_float16_holds_them_exactly(seed: int, scale: float, shift: float) -> None:
    """The error is half a step where nothing is clipped, and few components are."""
    keys = scale * (shift + np.random.default_rng(seed).standard_normal((500, 7)))
    coding = KeyCoding.fit(keys)
    codes = coding.encode(keys)
    decoded = coding.decode(codes)
    np.testing.assert_array_equal(decoded, coding.offset.astype(np.float64) + coding.step * codes.astype(np.float64))
    inside = np.abs(keys - coding.offset) <= 127.5 * coding.step
    assert inside.mean() > 0.999
    assert (np.abs(decoded - keys) <= 0.501 * coding.step)[inside].all()
    np.testing.assert_allclose(coding.step, 4.5 * keys.std(axis=0) / 127, rtol=0.13)
    np.testing.assert_array_equal(coding.encode(decoded), codes)


def test_components_beyond_the_codes_are_clipped() -> None:
    coding = KeyCoding(np.array([1.0, 0.0], np.float32), np.array([0.5, 2.0], np.float32))
    assert coding.encode(np.array([[1e4, -1e4]])).tolist() == [[127, -127]]


def test_dimensions_without_spread_have_a_step() -> None:
    coding = KeyCoding.fit(np.full((3, 2), 0.25, np.float16))
    np.testing.assert_array_equal(coding.decode(coding.encode(np.full((1, 2), 0.25))), 0.25)


def test_a_coding_is_read_back_from_its_file() -> None:
    coding = KeyCoding.fit(np.random.default_rng(0).standard_normal((50, 3)))
    again = KeyCoding.read(save(coding.tensors()))
    np.testing.assert_array_equal(again.offset, coding.offset)
    np.testing.assert_array_equal(again.step, coding.step)


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"key_offset": np.zeros(2, np.float32)},
        {"key_offset": np.zeros(2, np.float32), "key_step": np.ones(3, np.float32)},
        {"key_offset": np.zeros(2, np.float32), "key_step": np.zeros(2, np.float32)},
        {"key_offset": np.full(2, np.nan, np.float32), "key_step": np.ones(2, np.float32)},
    ],
)
def test_files_without_a_valid_coding_are_refused(tensors: dict[str, np.ndarray]) -> None:
    with pytest.raises(DamagedMemoryError, match="train the compactor again"):
        KeyCoding.read(save(tensors))
    with pytest.raises(DamagedMemoryError, match="train the compactor again"):
        KeyCoding.read(b"nothing")


def test_compact_keys_need_their_compactor(path: Path) -> None:
    append(path, 1)
    with Memory.open(path).edit() as edit:
        edit.put_array("compact", lambda start, stop: np.zeros((stop - start, 2), np.int8))
        memory = edit.commit()
    with pytest.raises(DamagedMemoryError, match="no compactor"):
        _ = memory.search_keys
    with memory.edit() as edit:
        put_coding(edit, 3)
        memory = edit.commit()
    with pytest.raises(DamagedMemoryError, match="not the one of its keys"):
        _ = memory.search_keys
    with memory.edit() as edit:
        put_coding(edit, 2)
        memory = edit.commit()
    assert not memory.search_keys.read(0, memory.entries).any()
    assert [chunk.dtype for chunk in memory.search_keys.chunks()] == [np.int8]
    memory = record(path, one(7, compact=2))
    np.testing.assert_array_equal(memory.tail_keys(), np.full((one(7).entries, 2), 7))


def test_values_are_stored_in_two_bytes_where_they_fit(tmp_path: Path) -> None:
    identity = ModelIdentity("large", "model", "tokenizer", 4, 100_000, "de", "en")
    memory = Memory.create(tmp_path / "memory", identity)
    small, large = sample(1), sample(2)
    large.values[0] = 70_000
    with memory.edit() as edit:
        edit.append_segment(small)
        edit.append_segment(large)
        memory = edit.commit()
    assert [file.stat().st_size for file in sorted(memory.path.glob("segments/*/values.bin"))] == [
        2 * small.entries,
        4 * large.entries,
    ]
    assert memory.values().dtype == np.int32
    assert memory.values().tolist() == [*small.values, *large.values]
    np.testing.assert_allclose(memory.log_probs()[: small.entries], small.log_probs, rtol=1e-3)
    assert memory.verify() == []


def test_the_steps_give_the_typical_distance() -> None:
    keys = np.random.default_rng(1).normal(3.0, [0.5, 2.0, 7.0], (4000, 3))
    expected = 2 * keys.var(axis=0).sum()
    assert KeyCoding.fit(keys).typical_distance() == pytest.approx(expected, rel=0.1)
