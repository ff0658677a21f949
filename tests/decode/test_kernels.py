"""A whole step of fixed shape with Triton's kernels, by its interpreter, against the ordinary search without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from ibidem.combine import AdaptiveCombiner, MetaK, adaptive, candidates
from ibidem.compact import NetworkCompactor, network
from ibidem.decode import MemoryScorer, beam_search
from ibidem.native import has_triton
from ibidem.retrieve import ArrayKeys, CompactedIndex, ListIndex, ScanIndex

from .oracle import limited
from .test_fused import assert_same, search

if TYPE_CHECKING:
    from ibidem.model import BaseModel


@pytest.mark.skipif(not has_triton() or torch.cuda.is_available(), reason="needs Triton, and no CUDA")
@pytest.mark.parametrize("kind", ["exact", "int8", "lists"])
def test_a_step_by_kernels(tiny: BaseModel, short: list[Any], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(2)
    sources = tiny.tokens.encode_sources(s.german for s in short)
    states = tiny.states(sources, tiny.tokens.encode_targets(s.english for s in short))
    compactor = NetworkCompactor(tiny.dimension, 40, 32, "tanh").requires_grad_(False)
    keys = ArrayKeys(compactor(states.keys).half().numpy())
    index: Any = (
        ListIndex(keys, "cpu", lists=5, nprobe=3, seed=0)
        if kind == "lists"
        else ScanIndex(keys, "cpu", coded=kind == "int8")
    )
    combiner = AdaptiveCombiner(MetaK(4, 1.0).requires_grad_(False), 10.0)
    scorer = MemoryScorer(CompactedIndex(index, compactor), states.values, combiner)
    settings = limited(3, 2)
    expected = beam_search(tiny, sources[:2], settings, scorer)

    for module in (adaptive, candidates, network):
        monkeypatch.setattr(module, "runs_triton", lambda _: True)
    index._keys = index._keys.half()
    index._fused = True
    if kind != "lists":
        tiles = len(index._keys) // 128
        index._starts = torch.arange(0, tiles + 8, 8).clamp(max=tiles).int()
    assert_same(search(tiny, sources[:2], settings, scorer), expected)
