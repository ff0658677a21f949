"""Stored compactors are read back unchanged, and damaged ones are refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save

from ibidem.compact import Compactor, load_compactor, read_notes, restore_compactor, store_compactor
from ibidem.errors import DamagedMemoryError, UsageError

from .test_compactors import make_linear, make_network

if TYPE_CHECKING:
    from pathlib import Path

EVERY = [
    make_network("tanh"),
    make_network("sigmoid"),
    make_linear("pca", torch.ones(10)),
    make_linear("svd", None),
]


@pytest.mark.parametrize("compactor", EVERY)
def test_a_compactor_is_read_back(compactor: Compactor, tmp_path: Path) -> None:
    notes = {"model": "abc", "settings": {"updates": 3, "objectives": [["nce", 1.0]]}}
    payload = store_compactor(compactor, notes)
    path = tmp_path / "compactor.safetensors"
    path.write_bytes(payload)
    states, draws = torch.randn(6, 10).half(), torch.get_rng_state()
    for again in (restore_compactor(payload), load_compactor(path)):
        assert torch.equal(again(states), compactor(states))
        assert again.summary() == compactor.summary()
        assert not again(states).requires_grad
    assert torch.equal(torch.get_rng_state(), draws)
    assert read_notes(payload) == notes
    assert store_compactor(restore_compactor(payload), notes) == payload


def repack(payload: bytes, metadata: object, tensors: dict[str, torch.Tensor] | None = None) -> bytes:
    return save(load(payload) if tensors is None else tensors, metadata={"ibidem_compactor": json.dumps(metadata)})


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_truncated_bytes_are_refused(data: st.DataObject) -> None:
    payload = store_compactor(data.draw(st.sampled_from(EVERY)))
    cut = data.draw(st.integers(0, len(payload) - 1))
    with pytest.raises(DamagedMemoryError, match="ibidem compact") as caught:
        restore_compactor(payload[:cut])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        [],
        "network",
        {},
        {"kind": "identity"},
        {"kind": ["network"]},
        {"kind": "network"},
        {"kind": "network", "activation": "relu"},
        {"kind": "network", "activation": {}},
        {"kind": "pca"},
    ],
)
def test_another_header_is_refused(metadata: object) -> None:
    payload = repack(store_compactor(EVERY[0]), metadata)
    with pytest.raises(DamagedMemoryError, match="ibidem compact"):
        restore_compactor(payload)
    with pytest.raises(DamagedMemoryError, match="ibidem compact"):
        read_notes(payload)


@pytest.mark.parametrize("payload", [b"", b"junk", b"\xff" * 64, save({"inner.weight": torch.zeros(2, 2)})])
def test_junk_is_refused(payload: bytes, tmp_path: Path) -> None:
    for refuse in (restore_compactor, read_notes):
        with pytest.raises(DamagedMemoryError, match="ibidem compact"):
            refuse(payload)
    path = tmp_path / "junk"
    path.write_bytes(payload)
    with pytest.raises(DamagedMemoryError, match=r"junk: .*ibidem compact"):
        load_compactor(path)


@pytest.mark.parametrize("compactor", EVERY[1:])
def test_missing_misshapen_and_not_finite_tensors_are_refused(compactor: Compactor) -> None:
    payload = store_compactor(compactor)
    tensors = load(payload)
    metadata = {**compactor.summary(), "notes": {}}
    for name, tensor in tensors.items():
        spoilt = tensor.clone()
        spoilt.view(-1)[0] = torch.nan
        wrong = {
            "missing": {key: other for key, other in tensors.items() if key != name},
            "misshapen": {**tensors, name: torch.zeros(5)},
            "deep": {**tensors, name: torch.zeros(2, 2, 2)},
            "empty": {**tensors, name: tensor[:0]},
            "half": {**tensors, name: tensor.half()},
            "nan": {**tensors, name: spoilt},
        }
        for content in wrong.values():
            with pytest.raises(DamagedMemoryError, match="ibidem compact"):
                restore_compactor(repack(payload, metadata, content))
    assert restore_compactor(repack(payload, metadata, tensors)).dimension == 3


def test_a_path_without_a_file(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(UsageError, match=f"{path.name}.*give the path"):
            load_compactor(path)
