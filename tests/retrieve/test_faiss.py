"""Keys recoded as a faiss index would encode and decode them."""

from __future__ import annotations

import numpy as np
import pytest

from ibidem.retrieve import ArrayKeys, FaissIndex, build_index
from ibidem.retrieve import faiss as faiss_module
from ibidem.retrieve.faiss import Recoder, recode, transform


@pytest.fixture(scope="module")
def small() -> np.ndarray:
    random = np.random.default_rng(2)
    centres = random.standard_normal((20, 16))
    return (centres[random.integers(20, size=900)] + 0.3 * random.standard_normal((900, 16))).astype(np.float16)


def test_codes_of_no_keys(small: np.ndarray) -> None:
    for setting in ("IVF32,SQ8", "PCA8,Flat"):
        index = build_index(ArrayKeys(small), setting, seed=1, threads=1)
        assert isinstance(index, FaissIndex)
        nothing = np.empty((0, 16), np.float32)
        assert recode(index.index, nothing).shape[0] == transform(index.index, nothing).shape[0] == 0


def test_what_was_coded_once_is_not_coded_again(small: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle: all keys coded anew. Keys are added, sealed, removed in the middle, and added again."""
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
