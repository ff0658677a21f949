"""Systems that translate the same token ids and are timed against each other."""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from ibidem.combine import Candidates
from ibidem.decode import BaseScorer, BeamSearcher, SearchSettings, beam_search, load_memory_scorer
from ibidem.errors import UsageError
from ibidem.memory import ADAPTIVE_COMBINER_ARTEFACT

if TYPE_CHECKING:
    from torch import Tensor

    from ibidem.combine import Weights
    from ibidem.decode import BestTokens, Scorer
    from ibidem.memory import Memory
    from ibidem.model import BaseModel

Batch = Sequence[Sequence[int]]
# The target tokens that each source token allows
Shortlist = Mapping[int, Sequence[int]]


@dataclass(frozen=True)
class System:
    """Hold a system that is timed.

    Attributes:
        name: Name of the system.
        translate: Translates a batch of token ids with a beam size, and returns the number of generated tokens.
    """

    name: str
    translate: Callable[[Batch, int], int]


def base_system(model: BaseModel, name: str = "base") -> System:
    """Build the system of the base model alone, in our own search.

    Args:
        model: The base model.
        name: Name of the system.
    """
    return memory_system(model, BaseScorer(), name)


def memory_system(model: BaseModel, scorer: Scorer, name: str = "memory", best: BestTokens | None = None) -> System:
    """Build the system of the base model with a scorer, in our own search.

    Args:
        model: The base model.
        scorer: The scorer of a memory.
        name: Name of the system.
        best: Another function that mixes the distributions; retrieval is then never skipped.
    """
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


def generate_system(model: BaseModel, name: str = "generate()") -> System:
    """Build the system of the base model alone in transformers' `generate()`.

    Args:
        model: The base model.
        name: Name of the system.
    """

    @torch.inference_mode()
    def translate(batch: Batch, beam: int) -> int:
        ids, mask = model.pad(batch)
        found = model.network.generate(
            input_ids=ids,
            attention_mask=mask,
            num_beams=beam,
            do_sample=False,
            max_length=_longest_target(model, batch) + len(model.tokens.start),
            length_penalty=1.0,
            early_stopping=False,
        )[:, 1:]
        ends = found.eq(model.tokens.eos).long().argmax(dim=1)
        return int(torch.where(found.eq(model.tokens.eos).any(dim=1), ends + 1, found.shape[1]).sum())

    return System(name, translate)


def paper_system(memory: Memory, model: BaseModel, name: str = "paper's index and mixture") -> System:
    """Build the system with the paper's index (appendix B: IVF1024, PQ64), combiner and full-vocabulary mixture.

    Args:
        memory: The memory; an index of its keys is built now.
        model: The base model that made the memory.
        name: Name of the system.
    """
    # The paper has no contextual combiner.
    combiner = "distance-decay" if memory.artefact(ADAPTIVE_COMBINER_ARTEFACT) is None else "adaptive"
    scorer = load_memory_scorer(memory, model, combiner=combiner, index="paper")
    return memory_system(model, scorer, name, dense_candidates)


def dense_candidates(
    logits: Tensor, weights: Weights, values: Tensor, count: int, banned: Tensor | None = None
) -> Candidates:
    """Find the best tokens as published code does: write out both distributions, add them, and sort.

    Args:
        logits: [rows, vocabulary], of the base model.
        weights: The weights of the base model [rows] and of the neighbours [rows, k].
        values: [rows, k], the tokens of the neighbours.
        count: Number of tokens to return.
        banned: Tokens that are never returned.

    Returns:
        The tokens and log-probabilities, [rows, count].
    """
    retrieved = torch.zeros_like(logits).scatter_add_(1, values, weights.neighbours)
    mixed = (logits.softmax(dim=1) * weights.base[:, None] + retrieved).log()
    if banned is not None:
        mixed.index_fill_(1, banned, -torch.inf)
    return Candidates(*mixed.topk(min(count, mixed.shape[1]), dim=1))


def has_ctranslate2() -> bool:
    """Return whether CTranslate2 is installed."""
    return find_spec("ctranslate2") is not None


def ctranslate2_system(model: BaseModel, name: str = "CTranslate2", shortlist: Shortlist | None = None) -> System:
    """Build the system of the base model alone in CTranslate2: int8 on a CPU, float16 on a GPU.

    Its threads and torch's disturb each other in one process, so the comparison is fair on one thread only
    (`--threads 1`).

    Args:
        model: The base model, converted now.
        name: Name of the system.
        shortlist: As for `ctranslate2_search`.

    Raises:
        UsageError: CTranslate2 is not installed, or the model is not a Marian model.
    """
    search = ctranslate2_search(model, shortlist)
    return System(name, lambda batch, beam: sum(len(tokens) + 1 for tokens in search(batch, beam)))


def ctranslate2_search(model: BaseModel, shortlist: Shortlist | None = None) -> Callable[[Batch, int], list[list[int]]]:
    """Return the beam search of CTranslate2 over a model.

    Args:
        model: The base model, converted now.
        shortlist: The target tokens of each source token; a batch is translated with the tokens of its sources only,
            as with Marian's lexical shortlists. None allows all tokens.

    Returns:
        A function that translates a batch of token ids with a beam size into token ids without the last,
        end-of-sentence token.

    Raises:
        UsageError: CTranslate2 is not installed, or the model is not a Marian model.
    """
    translator = _convert(model, shortlist)
    eos = str(model.tokens.eos)

    def search(batch: Batch, beam: int) -> list[list[int]]:
        found = translator.translate_batch(
            [list(map(str, source)) for source in batch],
            beam_size=beam,
            length_penalty=1.0,
            max_decoding_length=_longest_target(model, batch),
            max_input_length=0,
            end_token=eos,
            use_vmap=shortlist is not None,
        )
        return [list(map(int, one.hypotheses[0])) for one in found]

    return search


def _longest_target(model: BaseModel, batch: Batch) -> int:
    """Return the largest number of target tokens that our own search allows for a batch."""
    return max(SearchSettings().limit(len(source), model.tokens.max_target_length) for source in batch)


def _convert(model: BaseModel, shortlist: Shortlist | None) -> Any:
    """Convert the model to a CTranslate2 translator whose tokens are the decimal token ids."""
    if not has_ctranslate2():
        raise UsageError("CTranslate2 is not installed: run `pip install ctranslate2`, or leave it out of --against.")
    if type(model.network).__name__ != "MarianMTModel":
        raise UsageError(f"CTranslate2 is measured with Marian models only, not {type(model.network).__name__}.")
    import ctranslate2
    from ctranslate2.converters.transformers import MarianMTLoader

    class Loader(MarianMTLoader):  # type: ignore[misc]
        """Keep the padding token, which the decoder starts with and which need not be the last token here."""

        def _remove_pad_weights(self, spec: Any) -> None:
            pass

    words = [str(number) for number in range(model.network.config.vocab_size)]
    tokenizer = SimpleNamespace(
        get_vocab=lambda: {word: number for number, word in enumerate(words)},
        eos_token=words[model.tokens.eos],
        unk_token=words[model.tokens.pad],  # no token is unknown
    )
    spec = Loader()(copy.deepcopy(model.network), tokenizer)  # the loader changes the network
    spec.validate()
    on_gpu = model.device.type == "cuda"
    spec.optimize(quantization="float16" if on_gpu else "int8")
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        if shortlist is not None:
            lines = (f"{source}\t{' '.join(map(str, targets))}\n" for source, targets in shortlist.items())
            Path(folder, "vmap.txt").write_text("".join(lines), "utf-8")
        return ctranslate2.Translator(
            folder,
            device=model.device.type,
            inter_threads=1,
            intra_threads=torch.get_num_threads(),
        )
