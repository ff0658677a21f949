"""Stored combiners are read back unchanged, and damaged ones are refused."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save

from ibidem.combine import AdaptiveCombiner, FixedCombiner, MetaK, place_combiner
from ibidem.combine.storage import restore_adaptive, restore_fixed, store_adaptive, store_fixed
from ibidem.errors import DamagedMemoryError


@given(st.integers(1, 64), st.floats(0, 1), st.floats(1e-6, 1e6))
def test_a_fixed_combiner_is_read_back(k: int, weight: float, temperature: float) -> None:
    combiner = FixedCombiner(k, weight, temperature)
    stored = store_fixed(combiner)
    assert stored.extension == "json"
    assert restore_fixed(stored.payload) == combiner


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"null",
        b"[1, 2, 3]",
        b"\xff\xfe",
        b"{}",
        b'{"k": 4}',
        b'{"k": 0, "weight": 0.5, "temperature": 1.0}',
        b'{"k": 4, "weight": 1.5, "temperature": 1.0}',
        b'{"k": 4, "weight": NaN, "temperature": 1.0}',
        b'{"k": 4, "weight": 0.5, "temperature": 0}',
        b'{"k": "many", "weight": 0.5, "temperature": 1.0}',
        b'{"k": Infinity, "weight": 0.5, "temperature": 1.0}',
    ],
)
def test_a_damaged_fixed_combiner_is_refused(payload: bytes) -> None:
    with pytest.raises(DamagedMemoryError, match="ibidem tune") as caught:
        restore_fixed(payload)
    assert "\n" not in str(caught.value)


@pytest.fixture
def combiner() -> AdaptiveCombiner:
    torch.manual_seed(3)
    return AdaptiveCombiner(MetaK(8, scale=17.5, hidden=12).eval(), 25.0)


def test_an_adaptive_combiner_is_read_back(combiner: AdaptiveCombiner) -> None:
    stored = store_adaptive(combiner)
    again = restore_adaptive(stored.payload, 25.0)
    assert stored.extension == "safetensors"
    assert stored.summary == {"k": 8, "hidden": 12, "temperature": 25.0, "scale": 17.5}
    json.dumps(stored.summary)
    distances, values = torch.rand(5, 8).sort(dim=1).values * 40, torch.randint(0, 9, (5, 8))
    before, after = combiner.weigh(distances, values), again.weigh(distances, values)
    assert torch.equal(before.base, after.base)
    assert torch.equal(before.neighbours, after.neighbours)
    assert again.k == 8
    assert not any(parameter.requires_grad for parameter in again.network.parameters())


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_truncated_bytes_are_refused(data: st.DataObject) -> None:
    payload = store_adaptive(AdaptiveCombiner(MetaK(2, scale=1.0, hidden=3), 1.0)).payload
    cut = data.draw(st.integers(0, len(payload) - 1))
    with pytest.raises(DamagedMemoryError, match="ibidem tune"):
        restore_adaptive(payload[:cut], 1.0)


@pytest.mark.parametrize("name", ["inner.weight", "outer.bias", "scale"])
def test_missing_misshapen_and_not_finite_weights_are_refused(combiner: AdaptiveCombiner, name: str) -> None:
    tensors = load(store_adaptive(combiner).payload)
    wrong = {
        "missing": {key: tensor for key, tensor in tensors.items() if key != name},
        "misshapen": {**tensors, name: torch.zeros(7)},
        "odd": {**tensors, "inner.weight": torch.zeros(12, 6)},
        "nan": {**tensors, name: torch.full_like(tensors[name], torch.nan)},
    }
    for content in wrong.values():
        with pytest.raises(DamagedMemoryError, match="ibidem tune"):
            restore_adaptive(save(content), 25.0)


def test_a_combiner_for_a_gpu_is_not_native() -> None:
    """Native code reads the memory of the CPU only."""
    combiner = FixedCombiner(4, 0.5, 10.0)
    assert place_combiner(combiner, torch.device("cuda")) is combiner
