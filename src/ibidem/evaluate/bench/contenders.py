"""Ways of translating the same token ids, to be raced against each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ibidem.decode import BaseScorer, BeamSearcher, SearchSettings, beam_search

if TYPE_CHECKING:
    from ibidem.decode import BestTokens, Scorer
    from ibidem.model import BaseModel

Batch = Sequence[Sequence[int]]


@dataclass(frozen=True)
class System:
    """A name, and a way to translate a batch with a beam; it gives the number of tokens of the translations."""

    name: str
    translate: Callable[[Batch, int], int]


def base_contender(model: BaseModel, name: str = "base") -> System:
    """The base model alone, in our own search."""
    return memory_contender(model, BaseScorer(), name)


def memory_contender(model: BaseModel, scorer: Scorer, name: str = "memory", best: BestTokens | None = None) -> System:
    """The base model with a scorer, in our own search; best: another way to mix, and then all hypotheses ask."""
    searcher = BeamSearcher(model)

    def translate(batch: Batch, beam: int) -> int:
        settings = SearchSettings(beam=beam, retrieval_margin=None if best is None else math.inf)
        found = (
            searcher(batch, settings, scorer)
            if best is None
            else beam_search(model, batch, settings, scorer, best=best)
        )
        return sum(len(hypotheses[0].tokens) + 1 for hypotheses in found)

    return System(name, translate)


def generate_contender(model: BaseModel, name: str = "generate()") -> System:
    """The base model alone, by transformers' own `generate()`."""

    @torch.inference_mode()
    def translate(batch: Batch, beam: int) -> int:
        ids, mask = model.pad(batch)
        longest = max(SearchSettings().limit(len(source), model.tokens.longest_target) for source in batch)
        found = model.network.generate(
            input_ids=ids,
            attention_mask=mask,
            num_beams=beam,
            do_sample=False,
            max_length=longest + len(model.tokens.start),
            length_penalty=1.0,
            early_stopping=False,
        )[:, 1:]
        ends = found.eq(model.tokens.eos).long().argmax(dim=1)
        return int(torch.where(found.eq(model.tokens.eos).any(dim=1), ends + 1, found.shape[1]).sum())

    return System(name, translate)
