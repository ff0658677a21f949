"""The search of fixed shape against the ordinary one, token for token; on a CPU without its graph."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch

from ibidem.combine import AdaptiveCombiner, EntryTable, FixedCombiner, MetaK, combiners, mixture
from ibidem.compact import NetworkCompactor, compactors
from ibidem.decode import BaseScorer, MemoryScorer, SearchSettings, beam_search, never_stop
from ibidem.decode.beam_search import length_limits, make_rules
from ibidem.decode.cuda_graph import CudaGraphSearch, round_up
from ibidem.native import has_triton
from ibidem.retrieve import ArrayKeys, CompactedIndex, ListIndex, ScanIndex

from .oracle import limited
from .test_beam_search import LINES, Count, StoppedError

if TYPE_CHECKING:
    from ibidem.decode import Hypothesis, Scorer
    from ibidem.model import BaseModel

LIMIT = 14


def search(
    model: BaseModel, sources: list[list[int]], settings: SearchSettings, scorer: Scorer
) -> list[list[Hypothesis]]:
    assert model.fast_marian is not None
    limits = [settings.limit(len(ids), model.tokens.max_target_length) for ids in sources]
    return CudaGraphSearch(model, model.fast_marian, scorer).search(
        sources, make_rules(model, settings), limits, never_stop
    )


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    for mine, theirs in zip(found, expected, strict=True):
        assert [best.tokens for best in mine] == [best.tokens for best in theirs]
        assert [best.score for best in mine] == pytest.approx([best.score for best in theirs], abs=1e-4)
        assert [best.cut for best in mine] == [best.cut for best in theirs]
        assert [best.skipped for best in mine] == [best.skipped for best in theirs]


@pytest.mark.parametrize("kind", ["marian", "fsmt"])
@pytest.mark.parametrize("beam", [1, 3, 4])
def test_the_base_model(model_of: Any, short: list[Any], kind: str, beam: int) -> None:
    model = model_of(kind)
    sources = model.tokens.encode_sources(s.german for s in short)
    settings = limited(LIMIT, beam)
    assert_same(search(model, sources, settings, BaseScorer()), beam_search(model, sources, settings, BaseScorer()))


@pytest.mark.parametrize(("beam", "margin"), [(1, math.inf), (4, math.inf), (4, 0.5)])
def test_with_a_memory(tiny: BaseModel, short: list[Any], beam: int, margin: float) -> None:
    states = tiny.states(
        tiny.tokens.encode_sources(s.german for s in short), tiny.tokens.encode_targets(s.english for s in short)
    )
    index = ScanIndex(ArrayKeys(states.keys.half().numpy()), "cpu")
    scorer = MemoryScorer(index, EntryTable(states.values), FixedCombiner(4, 0.6, 5.0))
    sources = tiny.tokens.encode_sources(s.german for s in short)
    settings = limited(LIMIT, beam, n_best=beam, retrieval_margin=margin)
    found = search(tiny, sources, settings, scorer)
    assert_same(found, beam_search(tiny, sources, settings, scorer))
    assert any(best.skipped for hypotheses in found for best in hypotheses) == (margin < math.inf)


def test_buffers_are_used_again(tiny: BaseModel, short: list[Any]) -> None:
    """A batch does not change the results of the next one."""
    assert tiny.fast_marian is not None
    settings = limited(LIMIT, 3)
    graphs = CudaGraphSearch(tiny, tiny.fast_marian, BaseScorer())
    sources = tiny.tokens.encode_sources(s.german for s in short)
    for batch in (sources[:4], sources[4:7], sources[:4][::-1]):
        limits = [settings.limit(len(ids), tiny.tokens.max_target_length) for ids in batch]
        found = graphs.search(batch, make_rules(tiny, settings), limits, never_stop)
        assert_same(found, beam_search(tiny, batch, settings, BaseScorer()))
    assert len(graphs._buffers) == 1


def test_sizes_are_doubled() -> None:
    assert [round_up(count, 32) for count in (1, 32, 33, 65, 200)] == [32, 32, 64, 128, 256]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("beam", [1, 4])
def test_the_captured_step(tiny_folder: Any, short: list[Any], beam: int) -> None:
    from ibidem.model import load_model

    model = load_model(tiny_folder, device="cuda")
    sources = model.tokens.encode_sources(s.german for s in short)
    states = model.states(sources, model.tokens.encode_targets(s.english for s in short))
    index = ScanIndex(ArrayKeys(states.keys.cpu().half().numpy()), "cuda")
    scorer = MemoryScorer(index, EntryTable(states.values), FixedCombiner(4, 0.6, 5.0))
    for settings in (limited(LIMIT, beam), limited(2 * LIMIT, beam)):
        assert_same(search(model, sources, settings, scorer), beam_search(model, sources, settings, scorer))


def test_a_check_stops_the_search(tiny: BaseModel) -> None:
    assert tiny.fast_marian is not None
    settings = SearchSettings(beam=2, max_length_ratio=0, max_length_extra=40)
    sources = tiny.tokens.encode_sources(LINES)
    graphs = CudaGraphSearch(tiny, tiny.fast_marian, BaseScorer())
    check = Count(3)
    with pytest.raises(StoppedError):
        graphs.search(sources, make_rules(tiny, settings), length_limits(tiny, sources, settings), check)
    found = graphs.search(sources, make_rules(tiny, settings), length_limits(tiny, sources, settings), Count(-1))
    assert [best[0].tokens for best in found] == [
        best[0].tokens for best in beam_search(tiny, sources, settings, BaseScorer())
    ]


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
    scorer = MemoryScorer(CompactedIndex(index, compactor), EntryTable(states.values), combiner)
    settings = limited(3, 2)
    expected = beam_search(tiny, sources[:2], settings, scorer)

    for module in (combiners, mixture, compactors):
        monkeypatch.setattr(module, "runs_triton", lambda _: True)
    index._keys = index._keys.half()
    index._fused = True
    if kind != "lists":
        tiles = len(index._keys) // 128
        index._starts = torch.arange(0, tiles + 8, 8).clamp(max=tiles).int()
    assert_same(search(tiny, sources[:2], settings, scorer), expected)
