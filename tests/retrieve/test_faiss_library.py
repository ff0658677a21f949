"""Keys recoded as a faiss index would encode and decode them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ibidem.retrieve import ArrayKeys, FaissIndex, build_index
from ibidem.retrieve import faiss_library as faiss_module
from ibidem.retrieve.faiss_library import Recoder, recode, transform

if TYPE_CHECKING:
    import pytest


def test_recoding_no_keys(small: np.ndarray) -> None:
    for setting in ("IVF32,SQ8", "PCA8,Flat"):
        index = build_index(ArrayKeys(small), setting, seed=1, threads=1)
        assert isinstance(index, FaissIndex)
        nothing = np.empty((0, 16), np.float32)
        assert recode(index.index, nothing).shape[0] == transform(index.index, nothing).shape[0] == 0


def test_each_key_is_recoded_once(small: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are added, sealed, removed in the middle and added again; the oracle recodes all of them."""
    index = build_index(ArrayKeys(small[:600]), "IVF32,SQ8", seed=1, threads=1)
    assert isinstance(index, FaissIndex)
    counted = []
    monkeypatch.setattr(faiss_module, "recode", lambda index, keys: [recode(index, keys), counted.append(len(keys))][0])
    recoder = Recoder(index.index)

    def check(codes: np.ndarray, keys: np.ndarray, new: int) -> None:
        np.testing.assert_array_equal(codes, recode(index.index, keys.astype(np.float32)))
        assert sum(counted) == new
        counted.clear()

    check(recoder.tail(small[600:610]), small[600:610], 10)
    check(recoder.tail(small[600:613]), small[600:613], 3)
    check(recoder.sealed(small[600:613]), small[600:613], 0)
    check(recoder.tail(small[613:620]), small[613:620], 7)
    check(recoder.sealed(small[600:613]), small[600:613], 0)  # something older was removed
    check(recoder.tail(small[613:621]), small[613:621], 1)
    check(recoder.sealed(small[600:621]), small[600:621], 0)
    left = np.delete(small[600:621], 12, axis=0)
    check(recoder.sealed(left), left, 8)
    check(recoder.tail(small[700:700]), small[700:700], 0)
