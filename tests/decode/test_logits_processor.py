"""A memory inside `generate()` against our own search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from ibidem.combine import Combiner, FixedCombiner
from ibidem.decode import BaseScorer, MemoryLogitsProcessor, beam_search

from .oracle import adaptive, generate, limited, memory_scorer

if TYPE_CHECKING:
    from ibidem.model import BaseModel

LIMIT = 10


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("combiner", [FixedCombiner(4, 0.5, 10.0), adaptive()], ids=["fixed", "adaptive"])
def test_inside_generate_it_finds_what_our_search_finds(
    any_model: BaseModel, short: list[Any], beam: int, combiner: Combiner
) -> None:
    """Half of the sentences are in the memory, so that it improves some translations and spoils others."""
    known = short[::2]
    scorer = memory_scorer(any_model, [s.german for s in known], [s.english for s in known], combiner)
    sources = any_model.tokens.encode_sources(s.german for s in short)
    settings = limited(LIMIT, beam)
    found = beam_search(any_model, sources, settings, scorer)
    with MemoryLogitsProcessor(any_model, scorer) as processor:
        expected = generate(any_model, sources, settings, processors=[processor])
    assert [best[0].tokens for best in found] == [best[0][0] for best in expected]
    for best, own in zip(found, expected, strict=True):
        assert own[0][1] is None or best[0].score == pytest.approx(own[0][1], abs=1e-4)
    assert not any_model.projection._forward_pre_hooks
    base = beam_search(any_model, sources, settings, BaseScorer())
    assert [best[0].tokens for best in base] != [best[0].tokens for best in found]


def test_earlier_processors_still_count(tiny: BaseModel, short: list[Any]) -> None:
    """A token that the caller forbids stays forbidden, though the neighbours have it."""
    scorer = memory_scorer(tiny, [short[0].german], [short[0].english], FixedCombiner(1, 0.99, 1e-5))
    sources = tiny.tokens.encode_sources([short[0].german])
    first = tiny.tokens.encode_targets([short[0].english])[0][0]
    with MemoryLogitsProcessor(tiny, scorer) as processor:
        assert generate(tiny, sources, limited(LIMIT), processors=[processor])[0][0][0][0] == first
        output = tiny.network.generate(
            torch.tensor(sources),
            logits_processor=[processor],
            suppress_tokens=[first],
            num_beams=4,
            max_new_tokens=8,
        )
    assert first not in output[0].tolist()


def test_the_hook_is_removed_when_generate_fails(tiny: BaseModel, short: list[Any]) -> None:
    scorer = memory_scorer(tiny, [short[0].german], [short[0].english], FixedCombiner(1, 0.5, 1.0))
    with pytest.raises(RuntimeError, match="outside"), MemoryLogitsProcessor(tiny, scorer) as processor:
        processor(torch.zeros(1, 1), torch.zeros(1, tiny.vocabulary_size))
    assert not tiny.projection._forward_pre_hooks
