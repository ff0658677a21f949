"""Native indexes for the tests of this folder."""

from __future__ import annotations

from typing import Any

import numpy as np

from ibidem.memory import KeyCoding
from ibidem.retrieve import ArrayKeys, NativeIndex, build_index

# Every list is searched and every candidate reranked.
EVERYWHERE = "native;nprobe=1000000;prune_ratio=1000000;rerank=1000"


def build(keys: ArrayKeys, setting: str = "native", seed: int = 1) -> NativeIndex:
    index = build_index(keys, setting, seed=seed, threads=1)
    assert isinstance(index, NativeIndex)
    return index


def code(keys: np.ndarray) -> ArrayKeys:
    """Return keys [n, d] as int8 codes."""
    coding = KeyCoding.fit(keys)
    return ArrayKeys(coding.encode(keys), coding)


class ChunkedKeys(ArrayKeys):
    """Keys that lie in several arrays, as those of a memory of several segments."""

    def __init__(self, keys: ArrayKeys, sizes: list[int]) -> None:
        (array,) = keys.chunks()
        super().__init__(array, keys.coding)
        self._sizes = sizes

    def chunks(self) -> list[Any]:
        return [part.copy() for part in np.split(self._array, np.cumsum(self._sizes))]
