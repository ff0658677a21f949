"""The search of fixed shape against the ordinary one, token for token; on a CPU without its graph."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch

from ibidem.combine import FixedCombiner
from ibidem.decode import BaseScorer, MemoryScorer, beam_search
from ibidem.decode.fused import CudaGraphSearch, round_up
from ibidem.decode.search import rules_of
from ibidem.retrieve import ArrayKeys, ScanIndex

from .oracle import limited

if TYPE_CHECKING:
    from ibidem.decode import Hypothesis, Scorer, SearchSettings
    from ibidem.model import BaseModel

LIMIT = 14


def search(
    model: BaseModel, sources: list[list[int]], settings: SearchSettings, scorer: Scorer
) -> list[list[Hypothesis]]:
    assert model.lean is not None
    limits = [settings.limit(len(ids), model.tokens.longest_target) for ids in sources]
    return CudaGraphSearch(model, model.lean, scorer).search(sources, rules_of(model, settings), limits)


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


@pytest.mark.parametrize(("beam", "within"), [(1, math.inf), (4, math.inf), (4, 0.5)])
def test_with_a_memory(tiny: BaseModel, short: list[Any], beam: int, within: float) -> None:
    states = tiny.states(
        tiny.tokens.encode_sources(s.german for s in short), tiny.tokens.encode_targets(s.english for s in short)
    )
    index = ScanIndex(ArrayKeys(states.keys.half().numpy()), "cpu")
    scorer = MemoryScorer(index, states.values, FixedCombiner(4, 0.6, 5.0))
    sources = tiny.tokens.encode_sources(s.german for s in short)
    settings = limited(LIMIT, beam, n_best=beam, retrieval_margin=within)
    found = search(tiny, sources, settings, scorer)
    assert_same(found, beam_search(tiny, sources, settings, scorer))
    assert any(best.skipped for hypotheses in found for best in hypotheses) == (within < math.inf)


def test_a_room_is_used_again(tiny: BaseModel, short: list[Any]) -> None:
    """What a batch leaves behind is nothing to the next one."""
    assert tiny.lean is not None
    settings = limited(LIMIT, 3)
    fused = CudaGraphSearch(tiny, tiny.lean, BaseScorer())
    sources = tiny.tokens.encode_sources(s.german for s in short)
    for batch in (sources[:4], sources[4:7], sources[:4][::-1]):
        limits = [settings.limit(len(ids), tiny.tokens.longest_target) for ids in batch]
        found = fused.search(batch, rules_of(tiny, settings), limits)
        assert_same(found, beam_search(tiny, batch, settings, BaseScorer()))
    assert len(fused._rooms) == 1


def test_room_grows_in_doublings() -> None:
    assert [round_up(count, 32) for count in (1, 32, 33, 65, 200)] == [32, 32, 64, 128, 256]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("beam", [1, 4])
def test_the_recorded_step(tiny_folder: Any, short: list[Any], beam: int) -> None:
    from ibidem.model import load_model

    model = load_model(tiny_folder, device="cuda")
    sources = model.tokens.encode_sources(s.german for s in short)
    states = model.states(sources, model.tokens.encode_targets(s.english for s in short))
    index = ScanIndex(ArrayKeys(states.keys.cpu().half().numpy()), "cuda")
    scorer = MemoryScorer(index, states.values, FixedCombiner(4, 0.6, 5.0))
    for settings in (limited(LIMIT, beam), limited(2 * LIMIT, beam)):
        assert_same(search(model, sources, settings, scorer), beam_search(model, sources, settings, scorer))
