"""transformers' own `generate()` with the settings of ibidem's search, and memories to search in."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ibidem.combine import AdaptiveCombiner, ContextualCombiner, ContextualNetwork, EntryTable, MetaK
from ibidem.decode import MemoryScorer, SearchSettings
from ibidem.memory import Memory, ModelIdentity, SegmentData
from ibidem.retrieve import ArrayKeys, ExactIndex

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ibidem.combine import Combiner
    from ibidem.model import BaseModel


def limited(
    limit: int, beam: int = 4, length_penalty: float = 1.0, n_best: int = 1, retrieval_margin: float = math.inf
) -> SearchSettings:
    """Make settings by which every translation has at most `limit` tokens, and no hypothesis skips retrieval."""
    return SearchSettings(beam, length_penalty, 0, limit, n_best, retrieval_margin)


def generate(
    model: BaseModel,
    sources: Sequence[Sequence[int]],
    settings: SearchSettings,
    *,
    prefix: Sequence[int] | None = None,
    processors: Sequence[Any] = (),
) -> list[list[tuple[list[int], float | None]]]:
    """Return the n best translations of each source, without prompt and end, with their scores in beam search."""
    tokens = model.tokens
    longest = max(len(ids) for ids in sources)
    padded = torch.tensor([[*ids, *[tokens.pad] * (longest - len(ids))] for ids in sources])
    mask = torch.tensor([[1] * len(ids) + [0] * (longest - len(ids)) for ids in sources])
    start = [tokens.start[0]] if prefix is None else [*tokens.start, *prefix]
    given = len(tokens.start) - 1 if prefix is None else 0
    output = model.network.generate(
        input_ids=padded,
        attention_mask=mask,
        decoder_input_ids=torch.tensor([start] * len(sources)),
        decoder_start_token_id=tokens.start[0],
        forced_bos_token_id=tokens.start[1] if given else None,
        max_new_tokens=settings.max_length_extra + given,
        num_beams=settings.beam,
        num_return_sequences=settings.n_best,
        length_penalty=settings.length_penalty,
        early_stopping=False,
        do_sample=False,
        logits_processor=list(processors),
        output_scores=True,
        return_dict_in_generate=True,
    )
    skipped = len(tokens.start)
    found = []
    for sequence in output.sequences.tolist():
        words = sequence[skipped:]
        ends = [i for i, word in enumerate(words) if word == tokens.eos]
        found.append(words[: ends[0]] if ends else words)
    scores = output.sequences_scores.tolist() if settings.beam > 1 else [None] * len(found)
    pairs = list(zip(found, scores, strict=True))
    return [pairs[i : i + settings.n_best] for i in range(0, len(pairs), settings.n_best)]


def contextual(k: int = 8) -> ContextualCombiner:
    """Make a contextual combiner with random weights."""
    torch.manual_seed(5)
    network = ContextualNetwork(k, scale=20.0).requires_grad_(False)
    for layer in (network.base, network.temperature, network.score):
        layer.weight.normal_(std=0.3)
    return ContextualCombiner(network)


def adaptive() -> AdaptiveCombiner:
    """Make an adaptive combiner with random weights."""
    torch.manual_seed(2)
    return AdaptiveCombiner(MetaK(8, scale=20.0).eval().requires_grad_(False), 10.0)


def memory_scorer(model: BaseModel, sources: Sequence[str], targets: Sequence[str], combiner: Combiner) -> MemoryScorer:
    """Make a scorer over these pairs in RAM, with keys as a memory stores them."""
    states = model.states(model.tokens.encode_sources(sources), model.tokens.encode_targets(targets))
    keys = ArrayKeys(states.keys.numpy().astype(np.float16))
    return MemoryScorer(ExactIndex(keys), EntryTable(states.values), combiner)


def write_memory(model: BaseModel, pairs: list[Any], path: Path) -> Memory:
    """Make a memory folder of these sentences."""
    identity = ModelIdentity(
        name=model.name,
        model_fingerprint=model.fingerprint,
        tokenizer_fingerprint=model.tokenizer_fingerprint,
        dimension=model.dimension,
        vocabulary_size=model.vocabulary_size,
        source_language="de",
        target_language="en",
    )
    memory = Memory.create(path, identity)
    if not pairs:
        return memory
    sources = model.tokens.encode_sources(pair.german for pair in pairs)
    states = model.states(sources, model.tokens.encode_targets(pair.english for pair in pairs))
    with memory.edit() as edit:
        edit.append_segment(
            SegmentData(
                keys=states.keys.half().numpy(),
                values=states.values.numpy().astype(np.int32),
                log_probs=model.log_probs(states).numpy(),
                lengths=np.array(states.lengths),
                sources=[pair.german for pair in pairs],
                targets=[pair.english for pair in pairs],
                origins=["test"] * len(pairs),
                locations=list(range(1, len(pairs) + 1)),
            )
        )
        edit.set_complete(True)
        return edit.commit()
