"""Native indexes for the tests of this folder."""

from __future__ import annotations

from ibidem.retrieve import ArrayKeys, NativeIndex, build_index

# Every list is searched and every candidate reranked.
EVERYWHERE = "native;nprobe=1000000;prune_ratio=1000000;rerank=1000"


def build(keys: ArrayKeys, setting: str = "native", seed: int = 1) -> NativeIndex:
    index = build_index(keys, setting, seed=seed, threads=1)
    assert isinstance(index, NativeIndex)
    return index
